"""What answers may take: clients that ask for the largest and never read them exhaust nothing, and others are served."""

import datetime
import json
from pathlib import Path

import pytest

from harness.attack import MEASURABLE, Attack, Peak
from harness.counts import new_key
from harness.entitlements import change
from harness.http import render
from harness.http2 import INITIAL_WINDOW, Http2
from harness.unread import new_user
from harness.waiting import wait_until

CLIENT_BYTES = 64 * 1024 * 1024
# For the whole process. A sanitizer's allocator needs more for the same memory, and its shadow an eighth.
RESIDENT_MAX = {False: 160_000_000, True: 400_000_000}
ESCAPED = "\x7f"  # in an answer six bytes
QUOTES = '"' * 120  # in an answer two bytes each


# One is under way when a read comes, the next one has it, and the loop may have the answer of one more before it.
ROUNDS_MAX = 4


def is_sanitized(server):
    return "asan" in Path(f"/proc/{server.pid}/maps").read_text()


class Dialogs:
    """Lists of messages."""

    route = "/dialogs/list"
    client = "unread_client"
    closed = 50  # attackers, at least

    def __init__(self, client):
        self._client = client
        self.eve, self.alice, self._other = (new_user() for _ in range(3))

    def fill(self):
        """Creates the largest list there is for eve, and a short one for alice."""
        for _ in range(70):
            self._client.sent_unescaped(self.eve, self._other, ESCAPED * 16384)
        self._client.sent(self.alice, self._other)

    def request(self, user):
        return render("GET", f"/dialogs/list?receiverId={self._other}&limit=1000", headers={"X-User-Id": user})


class Sources:
    """Entitlements that many purchases have paid for."""

    route = "/v1/users/{user_id}/entitlements/{stock_keeping_unit}"
    client = "entitlements_client"
    closed = 0  # the kernel takes most of so short an answer

    def __init__(self, client):
        self._client = client
        self.eve, self.alice = new_user(), new_user()

    def fill(self):
        grants = [change(self.eve, reason=QUOTES, purchase=f"{number}{QUOTES}") for number in range(1000)]
        for some in (grants[:500], grants[500:]):
            answer = self._client.ask(
                "POST", "/v1/entitlements/grants/batch", {"grants": [{**one, "idempotency_key": new_key()} for one in some]})
            assert answer.status == 200 and b"problem" not in answer.body, answer
        assert self._client.grant(self.alice).status == 200

    def request(self, user):
        return render("GET", f"/v1/users/{user}/entitlements/item1")


@pytest.fixture
def server(serve, sqlite_store, request):
    return serve(sqlite_store, "--roles", "counts,dialogs,counters,entitlements,notifications",
                 "--client-bytes", CLIENT_BYTES, "--deadline", "1h", *getattr(request, "param", []), env=MEASURABLE)


@pytest.fixture(params=[Dialogs, Sources], ids=["dialogs", "sources"])
def reads(request, server):
    """Reads of one service: eve's answer is as large as it can be, and alice's is small."""
    reads = request.param(request.getfixturevalue(request.param.client)(server))
    reads.fill()
    return reads


def answered(server, reads):
    return server.metrics().get(f'quipu_http_requests_total{{route="{reads.route}",method="GET",code="200"}}', 0)


def ask(server, request):
    with server.connect() as connection:
        connection.send(request)
        answer = connection.read_answer()
    assert answer.status == 200, answer
    return answer.body


def test_the_largest_answers_that_nobody_reads_stay_within_the_limit(server, reads):
    asked, state = answered(server, reads), {}
    with Peak(server) as peak, Attack(server, 200, first=reads.request(reads.eve) * 64, reads=False):
        def attackers_are_served_or_closed():
            nonlocal asked
            assert len(ask(server, reads.request(reads.alice))) < 1000
            asked += 1
            assert server.ask("GET", "/healthz").status == 200
            metrics = server.metrics()
            closed = metrics['quipu_http_connections_ended_total{for="memory"}']
            refused = metrics.get(f'quipu_http_requests_total{{route="{reads.route}",method="GET",code="503"}}', 0)
            state.update(closed=closed, refused=refused, served=answered(server, reads) - asked)
            return closed >= reads.closed and sum(state.values()) >= 200

        wait_until(attackers_are_served_or_closed, "as many are served, refused or closed as attack", explain=lambda: state)
    print(f"at most {peak.kib * 1024 / 1e6:.0f} MB resident")
    assert peak.kib * 1024 < RESIDENT_MAX[is_sanitized(server)]


def test_whoever_reads_gets_every_one_of_many_large_answers(server, reads):
    expected = ask(server, reads.request(reads.eve))
    assert len(expected) > 400_000
    with server.connect() as connection:
        connection.send(reads.request(reads.eve) * 40)
        for _ in range(40):
            answer = connection.read_answer()
            assert answer.status == 200 and answer.body == expected


def test_whoever_reads_over_http2_gets_every_one_of_many_large_answers(server, reads):
    expected = ask(server, reads.request(reads.eve))
    head, *lines = reads.request(reads.eve).decode().strip().split("\r\n")
    headers = [tuple(line.lower().split(": ", 1)) for line in lines if line.lower().startswith("x-user-id")]
    with Http2(server.port, settings={INITIAL_WINDOW: 2**24}) as connection:
        connection.open_window()
        streams = [connection.request("GET", head.split()[1], headers=headers) for _ in range(40)]
        for stream in streams:
            answer = connection.answer(stream)
            assert answer.status == 200 and answer.body == expected


def times_of(server, reads):
    """Returns the (begin, end) of alice's requests and the ends of eve's, in seconds, as the access log has them."""
    alice, eve = [], []
    for line in server.log_text().splitlines():
        entry = json.loads(line)
        if entry["part"] == "access" and entry["route"] == reads.route:
            end = datetime.datetime.fromisoformat(entry["time"].replace("Z", "+00:00")).timestamp()
            if entry["bytes"] < 1000:
                alice.append((end - entry["duration_us"] / 1e6, end))
            else:
                eve.append(end)
    return alice, eve


@pytest.mark.parametrize("server", [["--loops", 1, "--access-log"]], indirect=True)
def test_a_user_who_asks_for_large_answers_does_not_keep_another_waiting(server, reads):
    """All of eve's reads wait before alice's; hers comes with the next round of the reader, which has one of eve's. The log of
    a single loop tells how many of eve's were answered while one of alice's waited, however busy the machine is."""
    waits = []

    def alice_met_eve():
        with Attack(server, 40, first=reads.request(reads.eve) * 4):
            for _ in range(20):
                ask(server, reads.request(reads.alice))
        alice, eve = times_of(server, reads)
        waits[:] = [sum(begin < end <= answer for end in eve) for begin, answer in alice]
        return sum(wait > 0 for wait in waits) >= 10

    wait_until(alice_met_eve, "ten of alice's reads had to wait for one of eve's", interval=0)
    assert max(waits) <= ROUNDS_MAX, waits
