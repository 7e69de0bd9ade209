"""Atomic batches: a transfer between counts is never half done, whatever interleaves, crashes or is locked."""

import random
import threading

import pytest

from harness.counts import new_key
from harness.http import Connection, ConnectionLost, ask_all, render
from harness.problems import assert_problem
from harness.waiting import wait_until

BATCH = "/api/v1/counts/batch"
START = 20


def transfer(source, target, amount, key=None):
    changes = [{"itemId": source, "verb": "decrease", "amount": amount},
               {"itemId": target, "verb": "increase", "amount": amount}]
    return render("POST", BATCH, {"atomic": True, "changes": changes}, {"Idempotency-Key": key} if key else {})


def random_transfer(chance, wallets, key=None):
    source, target = chance.sample(wallets, 2)
    return transfer(source, target, chance.randint(1, 15), key)


def assert_nothing_is_lost(counts, wallets):
    values = [counts.value(wallet) for wallet in wallets]
    assert sum(values) == START * len(wallets) and min(values) >= 0, values


def test_of_many_transfers_at_one_moment_each_is_made_or_refused_as_a_whole(serve, client, store):
    servers = [serve(store)] if store.name == "sqlite" else [serve(store), serve(store)]
    counts, chance = client(servers[0]), random.Random(4)
    wallets = [counts.new_bounded(START, 0) for _ in range(8)]
    answers = ask_all((servers[n % len(servers)].port, random_transfer(chance, wallets)) for n in range(300))
    assert {answer.status for answer in answers} <= {200, 409}
    for answer in answers:
        if answer.status == 409:
            assert answer.json()["index"] == 0 and answer.code == "COUNT_OUT_OF_BOUNDS"
    assert any(answer.status == 200 for answer in answers)
    assert_nothing_is_lost(counts, wallets)


def mixed_transfer(chance, wallets):
    """From two wallets to a third, with the three changes in any order: a refusal may come after changes that are undone."""
    first, second, target = chance.sample(wallets, 3)
    amounts = chance.randint(1, 12), chance.randint(1, 12)
    changes = [{"itemId": first, "verb": "decrease", "amount": amounts[0]},
               {"itemId": second, "verb": "decrease", "amount": amounts[1]},
               {"itemId": target, "verb": "increase", "amount": sum(amounts)}]
    chance.shuffle(changes)
    return changes


def follow(values, changes):
    """What one transfer does to the model: the index of the change that is refused, or None and the values are changed."""
    after = dict(values)
    for index, change in enumerate(changes):
        after[change["itemId"]] += change["amount"] if change["verb"] == "increase" else -change["amount"]
        if after[change["itemId"]] < 0:
            return index
    values.update(after)
    return None


def test_transfers_one_after_the_other_do_what_a_model_says(serve, client, store):
    server = serve(store)
    counts, chance = client(server), random.Random(7)
    wallets = [counts.new_bounded(START, 0) for _ in range(4)]
    values, refused = dict.fromkeys(wallets, START), set()
    with Connection(server.port) as connection:
        for _ in range(200):
            changes = mixed_transfer(chance, wallets)
            connection.send(render("POST", BATCH, {"atomic": True, "changes": changes}))
            answer, index = connection.read_answer(), follow(values, changes)
            assert answer.status == (200 if index is None else 409)
            if index is not None:
                assert answer.json()["index"] == index
                refused.add(index)
            assert {wallet: counts.value(wallet) for wallet in wallets} == values
    assert refused == {0, 1, 2}


def test_clients_that_hang_up_before_their_answer_leave_no_half_transfer(serve, client, store):
    """Two processes share a PostgreSQL."""
    servers = [serve(store)] if store.name == "sqlite" else [serve(store), serve(store)]
    counts, chance = client(servers[0]), random.Random(8)
    wallets = [counts.new_bounded(START, 0) for _ in range(6)]
    for n in range(200):
        with Connection(servers[n % len(servers)].port) as connection:
            for _ in range(chance.randint(1, 4)):
                changes = mixed_transfer(chance, wallets)
                connection.send(render("POST", BATCH, {"atomic": True, "changes": changes}))
            if chance.random() < 0.5:
                assert connection.read_answer().status in (200, 409)
    for server in servers:
        server.stop()  # after everything that it has taken
    assert_nothing_is_lost(client(serve(store)), wallets)


class Transfers(threading.Thread):
    """Sends transfers one after the other until the server dies; `open` has the one without an answer."""

    def __init__(self, port, wallets, seed):
        super().__init__()
        self.port, self.wallets, self.chance = port, wallets, random.Random(seed)
        self.done, self.open = 0, None

    def run(self):
        try:
            with Connection(self.port) as connection:
                while True:
                    self.open = random_transfer(self.chance, self.wallets, new_key())
                    connection.send(self.open)
                    assert connection.read_answer().status in (200, 409)
                    self.done += 1
        except (ConnectionLost, OSError):
            pass


def test_after_kill_9_no_transfer_is_half_done_and_a_retry_is_made_once(serve, client, store):
    server = serve(store)
    wallets = [client(server).new_bounded(START, 0) for _ in range(6)]
    for seed in range(3):
        senders = [Transfers(server.port, wallets, 10 * seed + n) for n in range(6)]
        for sender in senders:
            sender.start()
        wait_until(lambda: sum(sender.done for sender in senders) > 60, "sixty transfers are answered")
        server.kill()
        for sender in senders:
            sender.join()
        server = serve(store)
        assert_nothing_is_lost(client(server), wallets)
        retries = [(server.port, sender.open) for sender in senders]
        first, again = ask_all(retries), ask_all(retries)
        assert [answer.body for answer in first] == [answer.body for answer in again]
        assert_nothing_is_lost(client(server), wallets)


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_crash_beside_the_commit_leaves_no_half_transfer(serve, client, store, point):
    server = serve(store)
    source, target = (client(server).new_bounded(START, 0) for _ in range(2))
    server.stop()
    server, request = serve(store, env={"QUIPU_FAILPOINTS": f"{point}=kill"}), transfer(source, target, 5, new_key())
    with Connection(server.port) as connection:
        connection.send(request)
        server.expect_to_be_killed()
    counts = client(serve(store))
    values = (counts.value(source), counts.value(target))
    assert values == ((START, START) if point == "commit.before" else (START - 5, START + 5))
    (answer,) = ask_all([(counts.port, request)])
    assert answer.status == 200
    assert (counts.value(source), counts.value(target)) == (START - 5, START + 5)


def test_a_transfer_waits_as_a_whole_for_a_row_that_is_locked_and_holds_nobody_up(serve, client, database, postgres_store):
    server = serve(postgres_store, "--deadline", "1h")
    counts = client(server)
    source, target, other = (counts.new_bounded(START, 0) for _ in range(3))
    with database.locked_row(target) as release, Connection(server.port) as connection:
        connection.send(transfer(source, target, 5))
        wait_until(lambda: server.metric("quipu_parked_commands") == 1, "the transfer is parked")
        assert counts.increase(source).json()["value"] == START + 1
        assert counts.increase(other).json()["value"] == START + 1
        assert counts.value(target) == START and not connection.readable(0)
        release()
        assert [result["value"] for result in connection.read_answer().json()["results"]] == [START - 4, START + 5]


def test_a_transfer_that_cannot_wait_any_longer_has_changed_nothing(serve, client, database, postgres_store):
    hasty, counts = serve(postgres_store, "--deadline", "300ms"), client(serve(postgres_store))
    source, target = (counts.new_bounded(START, 0) for _ in range(2))
    with database.locked_row(target), Connection(hasty.port) as connection:
        connection.send(transfer(source, target, 5))
        assert_problem(connection.read_answer(), 503, "OVERLOADED")
        assert counts.value(source) == START
    assert counts.value(target) == START
