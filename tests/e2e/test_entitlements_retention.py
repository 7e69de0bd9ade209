"""What is swept and what is kept, months of the audit, and the metrics that tell of it all."""

import datetime
import re

import pytest

from harness.entitlements import SqliteLocal
from harness.protos import ROOT
from harness.waiting import wait_until

METRICS = """
quipu_outbox_pending quipu_outbox_oldest_seconds quipu_outbox_failed quipu_outbox_published_total
quipu_outbox_retried_total quipu_outbox_given_up_total quipu_outbox_lost_claims_total
quipu_inbox_taken_total quipu_inbox_repeated_total quipu_inbox_poison_total
quipu_notifications quipu_notifications_oldest_seconds quipu_notifications_sent_total
quipu_notifications_retried_total quipu_notifications_given_up_total quipu_dead_letters
""".split()


def later(time):
    return {"QUIPU_TEST_CLOCK_OFFSET": time}


def counts(stack):
    return tuple(stack.count(table) for table in ("outbox_events", "processed_events", "notifications"))


def test_what_is_old_is_swept_at_the_start_and_not_before(serve, entitlements_client, entitlement_stack):
    server = serve(entitlement_stack)
    client = entitlements_client(server)
    users = client.granted(3)
    entitlement_stack.wait_all_sent(3)
    server.stop()
    for offset, expected in [("23h", (3, 3, 3)), ("25h", (0, 3, 3)), ("29d", (0, 3, 3)), ("31d", (0, 0, 0))]:
        server = serve(entitlement_stack, env=later(offset))
        wait_until(lambda: counts(entitlement_stack) == expected, f"{expected} after {offset}")
        server.stop()
    server = serve(entitlement_stack)
    assert len(entitlements_client(server).list(users[0]).json()["entitlements"]) == 1
    assert entitlement_stack.count("entitlement_audit") == 3


def test_what_is_not_done_is_never_swept(serve, entitlements_client, nats_stack, nats):
    server = serve(nats_stack)
    client = entitlements_client(server)
    client.wait_sent(client.granted())
    nats.stop()
    client.granted(2)
    nats.start()
    server.stop()
    nats_stack.database.query("UPDATE outbox_events SET status = 'FAILED' WHERE event_id = "
                              "(SELECT event_id FROM outbox_events WHERE status = 'PENDING' LIMIT 1)")
    nats_stack.database.query("UPDATE notifications SET status = 'PENDING', sent_at = NULL, next_retry_at = 'infinity'")
    nats.stop()
    serve(nats_stack, env=later("40d"), ready=False)
    wait_until(lambda: nats_stack.count("processed_events") == 0, "the sweep is through")
    wait_until(lambda: nats_stack.count("outbox_events", "status = 'PUBLISHED'") == 0, "the sweep is through")
    assert {row["status"] for row in nats_stack.rows("outbox_events", "status")} <= {"PENDING", "IN_FLIGHT", "FAILED"}
    assert nats_stack.count("outbox_events") == 2
    assert nats_stack.count("notifications") == 1


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def months(database):
    rows = database.query("SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
                          "WHERE inhparent = 'entitlement_audit'::regclass ORDER BY relname")
    return [name for (name,) in rows if re.fullmatch(r"entitlement_audit_y\d{4}m\d\d", name)]


def month_names(first, count):
    year, month = divmod(first.year * 12 + first.month - 1, 12)
    return [f"entitlement_audit_y{(year * 12 + month + n) // 12}m{(year * 12 + month + n) % 12 + 1:02}"
            for n in range(count)]


def test_the_audit_has_a_partition_for_this_month_and_three_more_and_drops_old_ones(
    serve, entitlements_client, nats_stack
):
    today = now()
    server = serve(nats_stack)
    entitlements_client(server).granted(2)
    assert months(nats_stack.database) == month_names(today, 4)
    assert nats_stack.query("", "SELECT count(*) AS n FROM ONLY entitlement_audit_default")[0]["n"] == 0
    server.stop()
    server = serve(nats_stack, env=later("190d"))
    ahead = month_names(today + datetime.timedelta(days=190), 4)
    wait_until(lambda: set(ahead) <= set(months(nats_stack.database)), "three months ahead, half a year later")
    entitlements_client(server).granted(3)
    assert nats_stack.count("entitlement_audit") == 5, "without the option nothing is dropped"
    server.stop()
    serve(nats_stack, "--audit-keep-months", "2", env=later("190d"))
    wait_until(lambda: nats_stack.count("entitlement_audit") == 3, "what is older is dropped")
    assert month_names(today, 1)[0] not in months(nats_stack.database)
    assert set(ahead) <= set(months(nats_stack.database))


def test_old_lines_of_the_audit_go_on_sqlite_too(serve, entitlements_client, tmp_path):
    stack = SqliteLocal(tmp_path)
    server = serve(stack)
    entitlements_client(server).granted(2)
    server.stop()
    server = serve(stack, env=later("190d"))
    entitlements_client(server).granted(3)
    assert stack.count("entitlement_audit") == 5
    server.stop()
    serve(stack, "--audit-keep-months", "2", env=later("190d"))
    wait_until(lambda: stack.count("entitlement_audit") == 3, "what is older is deleted")


# ---- metrics


def test_every_metric_of_the_manual_is_there_and_those_that_count_move(entitlements, entitlements_server, shared_stack):
    def metric(name):
        return entitlements_server.metric(name)

    names = {key.split("{")[0] for key in entitlements_server.metrics()}
    assert set(METRICS) <= names
    before = {name: metric(name) for name in METRICS}
    user = entitlements.granted()
    entitlements.wait_sent(user)
    wait_until(lambda: metric("quipu_notifications_sent_total") == before["quipu_notifications_sent_total"] + 1, "sent")
    assert metric("quipu_outbox_published_total") == before["quipu_outbox_published_total"] + 1
    assert metric("quipu_inbox_taken_total") == before["quipu_inbox_taken_total"] + 1
    states = {key for key in entitlements_server.metrics() if key.startswith("quipu_notifications{")}
    assert states == {f'quipu_notifications{{state="{state}"}}' for state in ("PENDING", "PROCESSING", "FAILED")}


def test_gauges_tell_what_waits_and_what_was_given_up(serve, entitlements_client, nats_stack, nats):
    server = serve(nats_stack)
    client = entitlements_client(server)
    client.wait_sent(client.granted())
    server.stop()
    nats_stack.database.query(
        "UPDATE notifications SET status = 'FAILED'; "
        "INSERT INTO notification_dlq SELECT notification_id, 'notification', '', '', '', 'x', '', 10, now() "
        "FROM notifications")
    inserted = now()
    nats_stack.database.query(
        "INSERT INTO outbox_events (event_id, event_type, aggregate_key, trace_id, payload, status, created_at, next_retry_at)"
        " VALUES (gen_random_uuid(), 'x', 'x', '', '', 'FAILED', now(), NULL),"
        " (gen_random_uuid(), 'x', 'x', '', '', 'PENDING', now() - interval '100 s', now() + interval '1 hour')")
    server = serve(nats_stack)
    wait_until(lambda: server.metric("quipu_outbox_failed") == 1, "the failed event is counted")
    assert server.metric("quipu_outbox_pending") == 1
    assert 100 <= server.metric("quipu_outbox_oldest_seconds") <= 100 + (now() - inserted).total_seconds()
    wait_until(lambda: server.metrics()['quipu_notifications{state="FAILED"}'] == 1, "the failed notification too")
    wait_until(lambda: server.metric("quipu_dead_letters") == 1, "the dead letter too")


@pytest.mark.parametrize("name", METRICS)
def test_the_manual_names_it(name):
    assert name in (ROOT / "docs" / "ENTITLEMENTS.md").read_text()
