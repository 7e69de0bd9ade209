"""Conservation: whatever runs at once, in one process or in two, and whoever is killed, no coin is made or lost."""

import collections
import os
import threading

import pytest

from harness.http import ask_all, ask_behind_a_commit
from harness.pot_load import PotLoad
from harness.pots import KINDS, coins, counts_of, request, tables_of
from harness.waiting import HANG_S, wait_until

# How many changes at least, of all loads together.
LONG = pytest.mark.parametrize("changes", [1000, pytest.param(10_000, marks=pytest.mark.full)])
ROLES = ["--roles", "pots", "--deadline", "1h"]
MAX_COINS = [10, 100, 1000, 10**6, 2**31 - 1]


class Watch(threading.Thread):
    """Looks at the tables all the time: no pot may ever be seen below zero or above its most."""

    QUERY = (
        "SELECT p.id, p.max_coins, min(c.coin_count), sum(c.coin_count) FROM pot p JOIN coin c ON c.pot_id = p.id "
        "GROUP BY p.id, p.max_coins HAVING min(c.coin_count) < 0 OR sum(c.coin_count) > p.max_coins")

    def __init__(self, tables):
        super().__init__(daemon=True)
        self._tables = tables
        self._stopping = threading.Event()
        self.looks = 0
        self.wrong = []

    def run(self):
        while not self._stopping.wait(0.02):
            self.wrong += self._tables.query(self.QUERY)
            self.looks += 1

    def stop(self):
        self._stopping.set()
        self.join(HANG_S)
        assert self.looks > 0 and self.wrong == []


def stored(tables, pot_ids):
    names = {number: name for name, number in KINDS.items()}
    rows = tables.query("SELECT pot_id, denomination, coin_count FROM coin")
    return {(pot_id, names[kind]): count for pot_id, kind, count in rows if pot_id in pot_ids and count}


def ledger(loads):
    total = collections.Counter()
    for load in loads:
        assert load.unexpected == []
        total.update(load.balance)
    return {place: count for place, count in total.items() if count}


def run_loads(loads, changes):
    """Until all together have made that many changes, and each of them some."""
    for load in loads:
        load.start()
    wait_until(lambda: sum(load.acknowledged for load in loads) >= changes and all(load.acknowledged for load in loads),
               f"{changes} changes")
    for load in loads:
        load.stop()


@LONG
def test_two_processes_and_many_connections_conserve_every_coin(serve, pots_client, postgres_store, changes):
    servers = [serve(postgres_store, *ROLES), serve(postgres_store, *ROLES)]
    pots, tables = pots_client(servers[0]), tables_of(postgres_store)
    pot_ids = [pots.new_pot(max_coins=most) for most in MAX_COINS * 2]
    watch = Watch(tables)
    watch.start()
    loads = [PotLoad(servers[seed % 2].port, pot_ids, seed, keyed=seed < 2) for seed in range(4)]
    run_loads(loads, changes)
    watch.stop()
    assert all(load.unknown == [] for load in loads)
    assert sum(load.refused["POT_FULL"] for load in loads) > 0
    assert {load_refusal for load in loads for load_refusal in load.refused} <= {"POT_FULL", "POT_LOCKED"}
    assert ledger(loads) == stored(tables, pot_ids)
    assert tables.query("SELECT count(*) FROM pot WHERE lock IS NOT NULL") == [(0,)]


@LONG
def test_one_process_on_sqlite_conserves_every_coin(serve, pots_client, sqlite_store, changes):
    server = serve(sqlite_store, *ROLES)
    pots = pots_client(server)
    pot_ids = [pots.new_pot(max_coins=most) for most in MAX_COINS]
    loads = [PotLoad(server.port, pot_ids, seed, keyed=seed == 0) for seed in range(3)]
    run_loads(loads, changes)
    server.stop()
    tables = tables_of(sqlite_store)
    assert ledger(loads) == stored(tables, pot_ids)
    assert tables.query("SELECT count(*) FROM pot WHERE lock IS NOT NULL") == [(0,)]


def test_kill_9_of_one_process_loses_and_makes_no_coin(serve, pots_client, postgres_store):
    survivor = serve(postgres_store, *ROLES)
    pots, tables = pots_client(survivor), tables_of(postgres_store)
    pot_ids = [pots.new_pot(max_coins=most) for most in MAX_COINS]
    watch = Watch(tables)
    watch.start()
    lasting = [PotLoad(survivor.port, pot_ids, seed) for seed in range(2)]
    for load in lasting:
        load.start()
    killed = []
    for seed in range(10, 13):
        doomed = serve(postgres_store, *ROLES)
        load = PotLoad(doomed.port, pot_ids, seed)
        load.start()
        load.wait_acknowledged(100)
        doomed.kill()
        load.join(HANG_S)
        assert not load.is_alive()
        killed.append(load)
    for load in lasting:
        load.wait_acknowledged(100)
        load.stop()
        assert load.unknown == []
    assert sum(len(load.unknown) for load in killed) > 0, "some requests were cut off"
    for load in killed:
        for change in load.unknown:
            load.record(change, pots.call(change.method, change.fields, key=change.key))
    watch.stop()
    assert ledger(lasting + killed) == stored(tables, pot_ids)


def test_kill_9_on_sqlite_loses_and_makes_no_coin(serve, pots_client, sqlite_store):
    server = serve(sqlite_store, *ROLES)
    pot_ids = [pots_client(server).new_pot(max_coins=most) for most in MAX_COINS]
    loads = []
    for seed in range(3):
        load = PotLoad(server.port, pot_ids, seed)
        load.start()
        load.wait_acknowledged(100)
        server.kill()
        load.join(HANG_S)
        server = serve(sqlite_store, *ROLES)
        pots = pots_client(server)
        for change in load.unknown:
            load.record(change, pots.call(change.method, change.fields, key=change.key))
        loads.append(load)
    server.stop()
    assert ledger(loads) == stored(tables_of(sqlite_store), pot_ids)


def test_changes_of_one_pot_that_wait_together_share_a_transaction(serve, pots_client, store, tmp_path):
    """The one idea: what waits while one commits is committed at once, with --batch-max 1 one by one."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    held = {"QUIPU_FAILPOINTS": "commit.before=hold@2", "QUIPU_FAILPOINT_GATE": str(gate)}  # the first creates the pot
    for batch_max, commits in (("1", 300), ("1024", 2)):
        server = serve(store, *ROLES, "--batch-max", batch_max, "--deadline", "1h", env=held)
        pot_id = pots_client(server).new_pot(max_coins=1000)
        before = server.metric("quipu_commit_duration_seconds_count")
        answers = ask_behind_a_commit(server, gate, [request("AddCoins", {"pot_id": pot_id, "coins": coins(gold=1)})] * 300)
        assert {answer.status for answer in answers} == {200}
        assert server.metric("quipu_commit_duration_seconds_count") - before == commits
        server.stop()


def test_a_burst_never_passes_the_most_nor_falls_below_zero(serve, pots_client, store):
    server = serve(store, *ROLES)
    pots = pots_client(server)
    pot_id = pots.new_pot(max_coins=100)
    adds = ask_all(
        (server.port, request("AddCoins", {"pot_id": pot_id, "coins": coins(bronze=1, gold=2)})) for _ in range(60))
    assert sorted(answer.status for answer in adds) == [200] * 33 + [412] * 27
    removes = ask_all((server.port, request("RemoveCoins", {"pot_id": pot_id, "count": 7})) for _ in range(40))
    assert {answer.status for answer in removes} == {200}
    removed = collections.Counter()
    for answer in removes:
        removed.update(counts_of(answer.json()))
    assert removed == {"BRONZE": 33, "GOLD": 66}
    assert pots.content(pot_id) == {}


def test_of_many_who_make_one_pot_one_succeeds(serve, pots_client, postgres_store):
    servers = [serve(postgres_store, *ROLES), serve(postgres_store, *ROLES)]
    answers = ask_all(
        (servers[number % 2].port, request("CreatePot", {"pot_name": "the one", "max_coins": 10 + number}))
        for number in range(60))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 59
    winner = next(answer for answer in answers if answer.status == 200)
    assert pots_client(servers[0]).get("ViewPotByName", {"pot_name": "the one"}) == winner.json()
    wait_until(lambda: servers[0].metric("quipu_parked_commands") == 0, "nothing is parked")
