"""The planner reaches pots and coins by their indexes, whatever the size of the tables, so that all processes lock pots
in the order of their ids."""

import random

import pytest

from harness.http import ask_all
from harness.plans import explained, scans_of
from harness.pots import coins, new_key, request
from harness.quipu import run

LOCKED = 8  # pots behind the others, in other hands: they are tried again with SKIP LOCKED


def fill(database, pots):
    database.query(
        "INSERT INTO pot (pot_name, max_coins) SELECT 'Pot ' || n, 1000000 FROM generate_series(1, %s) n",
        (pots + LOCKED,))
    database.query(
        "UPDATE pot SET lock = gen_random_uuid(), lock_expire_time = 'infinity' WHERE id > %s", (pots,))
    database.query(
        "INSERT INTO coin (pot_id, denomination, coin_count) SELECT id, d, 1000 FROM pot, unnest(ARRAY[1, 100]) d")


def bursts(pots):
    choose = random.Random(1)
    ids = [choose.randint(1, pots) for _ in range(60)]
    yield [request("AddCoins", {"pot_id": pot_id, "coins": coins(silver=1, gold=2)}) for pot_id in ids]
    yield [request("RemoveCoins", {"pot_id": pot_id, "count": 5}, key=new_key()) for pot_id in ids]
    yield [request("ListCoins", {"pot_id": pot_id}) for pot_id in ids]
    yield [request("ViewPot", {"pot_id": pot_id}) for pot_id in ids]
    yield [request("ViewPotByName", {"pot_name": f"Pot {pot_id}"}) for pot_id in ids]
    yield [request("CreatePot", {"pot_name": f"New {number}", "max_coins": 10}) for number in range(30)]
    yield [request("ListPots", {"page": number}) for number in range(1, 10)]


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "never-analyzed"])
@pytest.mark.parametrize("pots", [10, 10_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_batches_use_the_indexes_whatever_the_size_of_the_tables(
    serve, binary, database, postgres_store, pots, analyzed
):
    done = run(binary, "migrate", "--roles", "pots", "--store", database.url)
    assert done.returncode == 0, done.stderr
    fill(database, pots)
    if analyzed:
        database.query("ANALYZE")
    with explained(database, "pot", "coin") as plans:
        server = serve(postgres_store, "--roles", "pots", "--pots-lock-retries", "3")
        for burst in bursts(pots):
            assert {answer.status for answer in ask_all((server.port, data) for data in burst)} == {200}
        answers = ask_all(
            (server.port, request("RemoveCoins", {"pot_id": pots + 1 + number, "count": 1})) for number in range(LOCKED))
        assert {answer.status for answer in answers} == {409}
        server.stop()

    for table in ("pot", "coin"):
        assert scans_of(plans, table, r"Index (Only )?Scan")
        assert scans_of(plans, table, r"(Seq Scan|Bitmap Heap Scan)") == []
    takes = [plan for plan in plans if "Update on pot" in plan]
    assert takes and not [plan for plan in takes if "Hash" in plan or "Merge" in plan]
    assert [plan for plan in takes if "LockRows" in plan], "SKIP LOCKED was never used"
    # The ids that were sent are the outer side of the join; only where there are few pots may it be an index in the
    # order of the ids. Either way rows are locked in that order.
    for plan in takes:
        assert "Nested Loop" in plan and "Sort" not in plan, plan
        assert pots < 1000 or plan.index("Scan on") < plan.index("Index Scan"), plan
