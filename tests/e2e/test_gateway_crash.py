"""kill -9 under load and at every failpoint: never more than the limit, and every 200 is sent."""

import pytest

from harness.gateway import new_text, texts_sent
from harness.gateway_stacks import on_each_engine, SHORT_LEASE
from harness.http import ConnectionLost
from harness.sends import Sends
from harness.waiting import wait_until

# a queue commits once at the start: the sender joins its group
POINTS = ["commit.before=kill", "commit.after=kill", "gateway.reserved=kill", "gateway.published=kill",
          "bus.commit.before=kill@2", "bus.commit.after=kill@2"]


def wait_sent(stack, gateway, *servers):
    """Returns when everything that was queued before is printed: the queue keeps its order, and what a killed sender had
    claimed follows after its lease."""
    marker = new_text()
    assert gateway.send(gateway.new_user(1), marker).status == 200
    wait_until(lambda: marker in texts_sent(*servers), "a message that was queued last is printed")
    wait_until(lambda: stack.unsent() == 0, "nothing is left")


def assert_exact(limit, rounds, printed):
    """`rounds` are all sends there were, `printed` all lines: every admitted one, and no more than the limit."""
    admitted = {message for sends in rounds for message in sends.admitted}
    unknown = {message for sends in rounds for message, _ in sends.unknown}
    sent = {message for message in printed if message in admitted | unknown}
    assert all(not sends.unexpected for sends in rounds)
    assert admitted <= sent, f"{len(admitted - sent)} were acknowledged and never sent"
    assert len(sent) <= limit
    ids = [body["messageId"] for sends in rounds for body in sends.admitted.values()]
    assert len(ids) == len(set(ids))


@on_each_engine
def test_after_kill_9_under_load_every_200_is_sent_and_never_more_than_the_limit(serve, gateway_client, stack):
    limit, rounds, servers = 100, [], [serve(stack, *SHORT_LEASE)]
    user = gateway_client(servers[0]).new_user(limit)
    for _ in range(2):
        with Sends(user, servers[-1], threads=6) as sends:
            sends.wait_under_way(20)
            servers[-1].kill()
            sends.join()
        rounds.append(sends)
        servers.append(serve(stack, *SHORT_LEASE))
    with Sends(user, servers[-1], threads=4, refusals=5) as sends:
        sends.finish()
    rounds.append(sends)
    wait_sent(stack, gateway_client(servers[-1]), servers[-1])
    assert_exact(limit, rounds, texts_sent(*servers))
    # a slot that is used up belongs to a send that was answered with 200 or not at all
    assert sum(len(sends.admitted) + len(sends.unknown) for sends in rounds) >= limit
    if not stack.cache.startswith("redis"):  # which may have counted what never reached the store
        assert stack.row(user)["reserved_count"] == limit


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("stack", ["sqlite-memory", "postgres-redis"], indirect=True)
def test_after_kill_9_at_a_failpoint_no_send_is_admitted_beyond_the_limit(serve, gateway_client, stack, point):
    server = serve(stack)
    user, lost = gateway_client(server).new_user(3), new_text()
    server.stop()
    crashed = serve(stack, *SHORT_LEASE, env={"QUIPU_FAILPOINTS": point})
    crashed.wait_all_up()  # Redis too, which has to count what is lost
    with pytest.raises(ConnectionLost):
        gateway_client(crashed).send(user, lost)
    crashed.expect_to_be_killed()
    server = serve(stack, *SHORT_LEASE)
    server.wait_all_up()
    gateway = gateway_client(server)
    admitted = gateway.use_up(user)
    wait_sent(stack, gateway, server)
    sent = set(texts_sent(crashed, server))
    assert set(admitted) <= sent
    assert len(sent & {*admitted, lost}) <= 3
    # before the first commit nothing is reserved, but Redis has counted it; before the queue's nothing is published
    assert len(admitted) == (3 if "commit.before=kill" == point and not stack.cache.startswith("redis") else 2)
    assert (lost in sent) == (point in ("gateway.published=kill", "bus.commit.after=kill@2"))


@on_each_engine
def test_after_kill_9_while_a_batch_also_records_the_one_before_every_200_is_sent(serve, gateway_client, stack):
    limit = 2000
    crashed = serve(stack, *SHORT_LEASE, "--lanes", "1", env={"QUIPU_FAILPOINTS": "commit.combined=kill"})
    user = gateway_client(crashed).new_user(limit)
    with Sends(user, crashed, threads=6, refusals=5) as first:
        first.join()
    crashed.expect_to_be_killed()
    server = serve(stack, *SHORT_LEASE)
    with Sends(user, server, threads=4, refusals=5) as second:
        second.finish()
    wait_sent(stack, gateway_client(server), server)
    assert_exact(limit, [first, second], texts_sent(crashed, server))


def test_one_of_two_processes_is_killed_and_the_other_goes_on(serve, gateway_client, redis_stack):
    limit = 300
    doomed, other = serve(redis_stack, *SHORT_LEASE), serve(redis_stack.beside(), *SHORT_LEASE)
    user = gateway_client(other).new_user(limit)
    with Sends(user, doomed, threads=3) as first, Sends(user, other, threads=3, refusals=10) as second:
        first.wait_under_way(30)
        doomed.kill()
        first.join()
        second.finish()
    assert not second.failed and second.unknown == []
    assert limit - len(first.unknown) <= len(first.admitted) + len(second.admitted) <= limit
    restarted = serve(redis_stack, *SHORT_LEASE)  # its queue is where it was
    for server in (restarted, other):
        wait_sent(redis_stack, gateway_client(server), restarted, other)
    assert_exact(limit, [first, second], texts_sent(doomed, other, restarted))


@on_each_engine
def test_a_restart_keeps_configurations_and_counts(serve, gateway_client, stack):
    server = serve(stack)
    gateway = gateway_client(server)
    users = [gateway.new_user(3) for _ in range(5)]
    for user in users:
        gateway.send(user)
    before = [gateway.look(user).json() for user in users]
    server.stop()
    gateway = gateway_client(serve(stack))
    assert [gateway.look(user).json() for user in users] == before
    assert all(len(gateway.use_up(user)) == 2 for user in users)
