"""A full disk and an fsync that fails under SQLite: a clear 503, no acknowledged change lost, and it works again."""

import pytest

from harness import faults
from harness.counts import new_key
from harness.faults import NO_LEAK_CHECK
from harness.problems import assert_problem
from harness.stores import SqliteStore
from harness.waiting import wait_until


class Ledger:
    """Keyed increases of one item, one after the other, and what became of them."""

    def __init__(self, counts, item):
        self.counts, self.item = counts, item
        self.acknowledged = 0
        self.unknown = []

    def increase(self):
        key = new_key()
        answer = self.counts.increase(self.item, key=key)
        if answer.status == 200:
            self.acknowledged += 1
        else:
            assert_problem(answer, 503, answer.code)
            assert answer.code in ("STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"), answer
            if answer.code == "OUTCOME_UNKNOWN":
                self.unknown.append(key)
        return answer

    def assert_settled(self, counts):
        value = counts.value(self.item)
        assert self.acknowledged <= value <= self.acknowledged + len(self.unknown), self.unknown
        for key in self.unknown:
            assert counts.increase(self.item, key=key).status == 200
        assert counts.value(self.item) == self.acknowledged + len(self.unknown)


@pytest.fixture
def small_disk(tmp_path):
    directory = tmp_path / "disk"
    directory.mkdir()
    try:
        with faults.small_disk(directory, "4m"):
            yield directory
    except faults.Unavailable as reason:
        pytest.skip(str(reason))


def test_a_full_disk_is_a_503_and_works_again_when_there_is_room(small_disk, serve, client):
    store = SqliteStore(small_disk / "data")
    server = serve(store)
    counts = client(server)
    ledger = Ledger(counts, counts.new_item())
    for _ in range(20):
        assert ledger.increase().status == 200

    filler = faults.fill_disk(small_disk)
    wait_until(lambda: ledger.increase().status == 503, "the disk's last room is used up", interval=0)
    for _ in range(10):
        ledger.increase()
    assert server.ask("GET", "/healthz").status == 200

    filler.unlink()
    wait_until(lambda: ledger.increase().status == 200, "changes work again")
    wait_until(server.ready, "/readyz says ready again")
    for _ in range(20):
        assert ledger.increase().status == 200
    ledger.assert_settled(counts)
    server.stop()
    ledger.assert_settled(client(serve(store)))


def test_after_a_crash_on_a_full_disk_no_acknowledged_change_is_lost(small_disk, serve, client):
    store = SqliteStore(small_disk / "data")
    server = serve(store)
    counts = client(server)
    ledger = Ledger(counts, counts.new_item())
    filler = faults.fill_disk(small_disk)
    wait_until(lambda: ledger.increase().status == 503, "the disk's last room is used up", interval=0)
    server.kill()
    filler.unlink()
    ledger.assert_settled(client(serve(store)))


@pytest.fixture
def failing_fsync(tmp_path):
    """A block in which the server's fsync fails; skips where this machine forbids tracing."""

    def fault(server):
        return faults.failing_fsync(server.pid, tmp_path)

    return fault


def fail_some(ledger, server, failing_fsync):
    try:
        with failing_fsync(server):
            wait_until(lambda: ledger.increase().status == 503, "a change is refused")
            for _ in range(5):
                ledger.increase()
    except faults.Unavailable as reason:
        pytest.skip(str(reason))


def test_a_failing_fsync_is_a_503_and_works_again_after(serve, client, sqlite_store, failing_fsync):
    server = serve(sqlite_store, env=NO_LEAK_CHECK)
    counts = client(server)
    ledger = Ledger(counts, counts.new_item())
    for _ in range(5):
        assert ledger.increase().status == 200
    fail_some(ledger, server, failing_fsync)
    wait_until(lambda: ledger.increase().status == 200, "changes work again")
    ledger.assert_settled(counts)


def test_a_crash_after_a_failing_fsync_proves_every_answer_true(serve, client, sqlite_store, failing_fsync):
    """What was called 'nothing changed' must not turn up after recovery; what was acknowledged must be there."""
    server = serve(sqlite_store, env=NO_LEAK_CHECK)
    counts = client(server)
    ledger = Ledger(counts, counts.new_item())
    for _ in range(5):
        assert ledger.increase().status == 200
    fail_some(ledger, server, failing_fsync)
    server.kill()
    ledger.assert_settled(client(serve(sqlite_store)))
