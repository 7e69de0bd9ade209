"""Combined batches answer as one by one would, in one process and in two that share one PostgreSQL."""

import os
import random
import threading
import time

import pytest

from harness.counts import INT64_MAX, action, increase_request, new_id
from harness.http import Connection, ask_all, ask_behind_a_commit, render
from harness.waiting import HANG_S

LONG_SECONDS = 5.0 if os.environ.get("QUIPU_EFFORT") == "full" else 2.0


def post(item, verb, amount=None):
    return render("POST", action(item, verb), None if amount is None else {"amount": amount})


def test_mixed_changes_of_many_items_in_one_burst_are_exact(counts, shared_server):
    choose = random.Random(1)
    items = [counts.new_item() for _ in range(20)]
    sums = dict.fromkeys(items, 0)
    requests = []
    for _ in range(400):
        item, amount = choose.choice(items), choose.randint(1, 1000)
        verb = choose.choice(["increase", "decrease"])
        sums[item] += amount if verb == "increase" else -amount
        requests.append((shared_server.port, post(item, verb, amount)))
    answers = ask_all(requests)
    assert {answer.status for answer in answers} == {200}
    assert {item: counts.value(item) for item in items} == sums


def test_an_overflow_refuses_only_the_offender(counts, shared_server):
    """Whatever the order of the burst, the many small changes fit and the one that does not is refused alone."""
    item, other = counts.new_item(INT64_MAX - 1000), counts.new_item()
    requests = [post(item, "increase", 1) for _ in range(100)] + [post(other, "increase") for _ in range(100)]
    requests.insert(70, post(item, "increase", INT64_MAX))
    answers = ask_all((shared_server.port, request) for request in requests)
    refused = [answer for answer in answers if answer.status != 200]
    assert [(answer.status, answer.code) for answer in refused] == [(409, "COUNT_OVERFLOW")]
    assert counts.value(item) == INT64_MAX - 900
    assert counts.value(other) == 100


def test_unknown_items_in_a_burst_are_404_and_the_rest_is_exact(counts, shared_server):
    item = counts.new_item()
    requests = [increase_request(item if number % 2 else new_id("missing")) for number in range(200)]
    answers = ask_all((shared_server.port, request) for request in requests)
    assert [answer.status for answer in answers] == [404, 200] * 100
    assert counts.value(item) == 100


def test_of_many_creates_of_one_item_one_succeeds(counts, shared_server):
    item = new_id()
    requests = [
        render("POST", "/api/v1/internal/counts", {"itemId": item, "initialValue": number}) for number in range(50)
    ]
    answers = ask_all((shared_server.port, request) for request in requests)
    assert sorted(answer.status for answer in answers) == [201] + [409] * 49
    winner = next(answer for answer in answers if answer.status == 201)
    assert counts.get(item).json() == winner.json()


def test_of_many_deletes_of_one_item_one_succeeds(counts, shared_server):
    item = counts.new_item()
    answers = ask_all((shared_server.port, render("DELETE", f"/api/v1/internal/counts/{item}")) for _ in range(50))
    assert sorted(answer.status for answer in answers) == [204] + [404] * 49


def test_every_answer_of_a_mixed_burst_on_one_item_fits_some_order(counts, shared_server):
    """Increases by distinct powers of two and resets: a value names exactly the changes since the last reset.

    Seen as sets, the answers between two resets must grow one change at a time.
    """
    item = counts.new_item()
    requests = [post(item, "increase", 1 << bit) for bit in range(60)]
    for place in (15, 30, 45):
        requests.insert(place, post(item, "reset"))
    answers = ask_all((shared_server.port, request) for request in requests)
    assert {answer.status for answer in answers} == {200}
    values = sorted((answer.json()["value"] for answer in answers), key=int.bit_count)
    first_changes = [value for value in values if value.bit_count() == 1]
    chains = [[value for value in values if value & first] for first in first_changes]
    assert sum(map(len, chains)) == 60, "every increase stands in the chain that one first change began"
    for chain in chains:
        for smaller, larger in zip(chain, chain[1:]):
            assert smaller & larger == smaller and (larger ^ smaller).bit_count() == 1
    assert counts.value(item) in [chain[-1] for chain in chains] + [0]


@pytest.mark.parametrize(
    "arguments", [["--batch-max", "1"], ["--batch-max", "3"], ["--lanes", "4", "--loops", "4"]], ids=" ".join
)
def test_the_result_does_not_depend_on_how_batches_are_cut(serve, client, store, arguments):
    server = serve(store, "--deadline", "1h", *arguments)
    counts = client(server)
    items = [counts.new_item() for _ in range(4)]
    answers = ask_all((server.port, increase_request(items[number % 4])) for number in range(200))
    assert {answer.status for answer in answers} == {200}
    assert [counts.value(item) for item in items] == [50] * 4


def test_requests_that_wait_together_share_a_transaction(serve, client, store, tmp_path):
    """The one idea: what waits while one commits is committed at once, with --batch-max 1 one by one."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    held = {"QUIPU_FAILPOINTS": "commit.before=hold@2", "QUIPU_FAILPOINT_GATE": str(gate)}  # the first creates the item
    for batch_max, commits in (("1", 300), ("1024", 2)):
        server = serve(store, "--batch-max", batch_max, "--deadline", "1h", env=held)
        counts = client(server)
        item = counts.new_item()
        before = server.metric("quipu_commit_duration_seconds_count")
        answers = ask_behind_a_commit(server, gate, [increase_request(item)] * 300)
        assert {answer.status for answer in answers} == {200}
        assert server.metric("quipu_commit_duration_seconds_count") - before == commits
        server.stop()


class Worker(threading.Thread):
    """Keeps a burst of requests on random items under way at one server, and adds up what was acknowledged."""

    BURST = 24

    def __init__(self, port, items, seed, until):
        super().__init__(daemon=True)
        self._port, self._items, self._until = port, items, until
        self._choose = random.Random(seed)
        self.sums = dict.fromkeys(items, 0)
        self.done = 0
        self.errors = []

    def run(self):
        connections = [Connection(self._port) for _ in range(self.BURST)]
        while time.monotonic() < self._until and not self.errors:
            self._burst(connections)
        for connection in connections:
            connection.close()

    def _burst(self, connections):
        changes = []
        for connection in connections:
            item, amount = self._choose.choice(self._items), self._choose.randint(1, 100)
            verb = self._choose.choice(["increase", "decrease"])
            connection.send(post(item, verb, amount))
            changes.append((item, amount if verb == "increase" else -amount))
        for connection, (item, change) in zip(connections, changes):
            answer = connection.read_answer()
            if answer.status != 200:
                self.errors.append(answer)
                continue
            self.sums[item] += change
            self.done += 1


def test_two_processes_with_overlapping_batches_make_no_error_and_exact_sums(serve, client, database, postgres_store):
    """For LONG_SECONDS: batches over the same rows, in random order, in both processes."""
    servers = [serve(postgres_store, "--deadline", "1h") for _ in range(2)]
    counts = client(servers[0])
    items = [counts.new_item() for _ in range(40)]
    until = time.monotonic() + LONG_SECONDS
    workers = [Worker(servers[seed % 2].port, items, seed, until) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(LONG_SECONDS + HANG_S)
        assert not worker.is_alive(), "a request was never answered"
    assert [error for worker in workers for error in worker.errors] == []
    assert all(worker.done > 0 for worker in workers)
    for item in items:
        assert database.value(item) == sum(worker.sums[item] for worker in workers)
