"""Many clients, two processes, several relays: the rules hold as if one request came after the other."""

import collections

from harness.entitlement_load import Grants, Rivals
from harness.entitlement_model import assert_explained
from harness.entitlements import GRANTS, REVOKES, change, new_user, request_bytes
from harness.http import ask_all
from harness.verify import verified
from harness.waiting import wait_until


def lines_of(stack, pair):
    where = "user_id = '{}' AND stock_keeping_unit = '{}'".format(*pair)
    return sorted(stack.rows("entitlement_audit", where=where), key=lambda line: (line["version"], line["step"]))


def assert_told_once(stack, pairs, last_versions):
    """Events and notifications are the changes of the status, one each."""
    total = sum(last_versions.values())
    stack.wait_all_sent(total)
    for pair in pairs:
        user, unit = pair
        where = f"user_id = '{user}' AND stock_keeping_unit = '{unit}'"
        versions = list(range(1, last_versions[pair] + 1))
        turns = [line for line in lines_of(stack, pair) if line["step"] == 0]
        assert [line["version"] for line in turns] == versions
        assert [line["action"] for line in turns] == ["GRANTED" if v % 2 else "REVOKED" for v in versions]
        notified = sorted(stack.rows("notifications", "version, event_id", where), key=lambda row: row["version"])
        assert [row["version"] for row in notified] == versions
        assert [str(row["event_id"]) for row in notified] == [str(line["event_id"]) for line in turns]
        if versions:
            (row,) = stack.rows("entitlements", where=where)
            assert (row["version"], row["status"]) == (versions[-1], "ACTIVE" if versions[-1] % 2 else "REVOKED")
    assert stack.count("entitlement_audit", "event_id IS NOT NULL") == stack.count("outbox_events") == total


def test_random_changes_from_many_connections_have_a_sequential_explanation(
    binary, serve, entitlements_client, entitlement_stack
):
    servers = [serve(entitlement_stack)]
    if entitlement_stack.engine == "postgres":
        servers.append(serve(entitlement_stack.beside()))
    pairs = [(user, unit) for user in (new_user(), new_user()) for unit in ("a", "b")]
    rivals = Rivals(pairs, *servers).run()
    last = {}
    for pair in pairs:
        model = assert_explained(rivals.answers_of(pair), lines_of(entitlement_stack, pair))
        last[pair] = model.version
        assert entitlements_client(servers[0]).sources(*pair) == {
            source: "ACTIVE" if active else "REVOKED" for source, active in model.sources.items()}
    assert sum(last.values()) > 20
    assert_told_once(entitlement_stack, pairs, last)
    assert verified(binary, servers[-1], "entitlements")[0] == set()


def test_of_a_hundred_grants_at_one_moment_one_is_the_change(serve, nats_stack):
    servers, user = [serve(nats_stack), serve(nats_stack.beside())], new_user()
    for version, target in enumerate([GRANTS, REVOKES], 1):
        answers = ask_all((servers[n % 2].port, request_bytes(target, change(user))) for n in range(100))
        statuses = collections.Counter(answer.status for answer in answers)
        assert statuses == {200: 1, 409: 99}
        assert {(a.json().get("entitlement") or a.json())["version"] for a in answers} == {version}
    assert_told_once(nats_stack, [(user, "item1")], {(user, "item1"): 2})


def test_three_relays_under_load_publish_every_event_once(serve, nats_stack, nats):
    """A plain subscription sees what JetStream would drop as repeated."""
    options = ["--outbox-poll", "20ms", "--outbox-batch", "10"]
    servers = [serve(nats_stack, *options), *(serve(nats_stack.beside(), *options) for _ in range(2))]
    with nats.tapped() as tap, Grants(*servers, threads=6) as grants:
        grants.wait_granted(600)
        wait_until(lambda: nats_stack.rows("outbox_events", "count(DISTINCT locked_by) AS n")[0]["n"] == 3,
                   "all three have a share")
        grants.finish()
        count = nats_stack.count("entitlement_audit")
        nats_stack.wait_all_sent(count)
        published = collections.Counter(message.id for message in tap.take_all())
    assert len(published) == count and set(published.values()) == {1}
    assert nats_stack.count("outbox_events", "claim_epoch <> 1 OR attempt_count <> 0") == 0
    assert nats_stack.count("notifications", "claim_epoch <> 1 OR attempt_count <> 0") == 0
    for name in ("quipu_outbox_published_total", "quipu_inbox_taken_total"):
        wait_until(lambda name=name: sum(server.metric(name) for server in servers) == count, "all are counted")
    assert sum(server.metric("quipu_inbox_repeated_total") for server in servers) == 0
