"""What answers may take: clients that ask for the largest and never read them exhaust nothing, and others are served."""

from pathlib import Path

import pytest

from harness.attack import MEASURABLE, Attack, Peak
from harness.http import render
from harness.unread import new_user
from harness.waiting import wait_until

MIB = 1024 * 1024
CLIENT_BYTES = 64 * MIB
# For the whole process. A sanitizer's allocator needs more for the same memory, and its shadow an eighth.
RESIDENT_MAX = {False: 160 * MIB, True: 400 * MIB}
ESCAPED = "\x7f"  # in an answer six bytes


def is_sanitized(server):
    return "asan" in Path(f"/proc/{server.pid}/maps").read_text()


def fill_dialog(unread, sender, receiver, count=70):
    """Messages that make the largest list there is."""
    for _ in range(count):
        unread.sent_unescaped(sender, receiver, ESCAPED * 16384)


@pytest.fixture
def victim(serve, sqlite_store, unread_client):
    server = serve(sqlite_store, "--roles", "counts,dialogs,counters", "--client-bytes", CLIENT_BYTES,
                   "--deadline", "1h", env=MEASURABLE)
    return server, unread_client(server)


def lists_answered(server):
    return server.metrics().get('quipu_http_requests_total{route="/dialogs/list",method="GET",code="200"}', 0)


def largest_list(user, other):
    return render("GET", f"/dialogs/list?receiverId={other}&limit=1000", headers={"X-User-Id": user})


def test_the_largest_answers_that_nobody_reads_stay_within_the_limit(victim):
    server, unread = victim
    eve, other, alice, bob = (new_user() for _ in range(4))
    fill_dialog(unread, eve, other)
    unread.sent(alice, bob)
    with Peak(server) as peak, Attack(server, 200, first=largest_list(eve, other) * 64, reads=False):
        def enough_gave_way():
            assert len(unread.list(alice, bob).json()) == 1
            assert unread.ask("GET", "/healthz").status == 200
            return server.metrics()['quipu_http_connections_ended_total{for="memory"}'] >= 50

        wait_until(enough_gave_way, "attackers are closed for their memory")
    print(f"at most {peak.kib / 1024:.0f} MiB resident")
    assert peak.kib * 1024 < RESIDENT_MAX[is_sanitized(server)]


def test_whoever_reads_gets_every_one_of_many_large_answers(victim):
    server, unread = victim
    eve, other = new_user(), new_user()
    fill_dialog(unread, eve, other)
    expected = unread.list(eve, other, limit=1000).body
    with server.connect() as connection:
        connection.send(largest_list(eve, other) * 40)
        for _ in range(40):
            answer = connection.read_answer()
            assert answer.status == 200 and answer.body == expected


def test_a_user_who_asks_for_long_lists_does_not_keep_another_waiting(victim):
    """All of eve's lists wait before alice's; hers comes with the next round of the reader."""
    server, unread = victim
    eve, other, alice, bob = (new_user() for _ in range(4))
    fill_dialog(unread, eve, other)
    unread.sent(alice, bob)
    before = asked = lists_answered(server)
    with Attack(server, 40, first=largest_list(eve, other) * 4):
        def eve_is_done():
            nonlocal asked
            assert len(unread.list(alice, bob).json()) == 1
            asked += 1
            return lists_answered(server) - asked == 160

        wait_until(eve_is_done, "all of eve's lists are answered", interval=0)
    print(f"alice was answered {asked - before} times meanwhile")
    assert asked - before > 20
