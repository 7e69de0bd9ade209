"""Rows are reached by their indexes, also in a table that was all but empty when its statements were planned: an outbox
usually is, until the broker has been away for a while."""

import re

import pytest

from harness.plans import explained
from harness.waiting import wait_until

ROWS = 5000
LOOKED_UP = {
    "outbox_events": r"Index Cond: \(event_id = ",
    "notifications": r"Index Cond: \(notification_id = ",
    "entitlements": r"Index Cond: \(\(user_id = ",
    "entitlement_sources": r"entitlement_sources.*\n.*Index Cond: \(\(user_id = ",
}


def grow(database):
    """As a flood of grants would, faster than anybody analyzes."""
    database.query(
        "INSERT INTO outbox_events (event_id, event_type, aggregate_key, trace_id, payload, created_at) "
        "SELECT gen_random_uuid(), event_type, aggregate_key, trace_id, payload, created_at FROM outbox_events, "
        f"generate_series(1, {ROWS})")
    database.query("INSERT INTO entitlements SELECT user_id || n, stock_keeping_unit, status, version, updated_at, step "
                   f"FROM entitlements, generate_series(1, {ROWS}) n")
    database.query("INSERT INTO entitlement_sources SELECT user_id || n, stock_keeping_unit, kind, source_id, reason, "
                   f"status, granted_at, revoked_at FROM entitlement_sources, generate_series(1, {ROWS}) n")
    database.query(
        "INSERT INTO notifications (notification_id, event_id, event_type, user_id, stock_keeping_unit, version, "
        "aggregate_key, trace_id, payload, occurred_at, status, created_at, sent_at) SELECT gen_random_uuid(), event_id, "
        "event_type, user_id, stock_keeping_unit, version, aggregate_key, trace_id, payload, occurred_at, status, "
        f"created_at, sent_at FROM notifications, generate_series(1, {ROWS})")


def grant_twice(client):
    """The second grant looks the sources up."""
    user = client.granted()
    assert client.grant(user, purchase="p_2").status == 200
    client.wait_sent(user)


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "never-analyzed"])
def test_a_plan_for_few_rows_is_not_kept_when_there_are_many(serve, entitlements_client, nats_stack, analyzed):
    database = nats_stack.database
    serve(nats_stack).stop()
    for table in LOOKED_UP:
        database.query(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    with explained(database, *LOOKED_UP):
        server = serve(nats_stack, "--outbox-poll", "20ms")
        client = entitlements_client(server)
        grant_twice(client)
        if analyzed:
            database.query("VACUUM ANALYZE outbox_events, notifications, entitlements, entitlement_sources")
        grant_twice(client)  # planned, for two rows
        grow(database)
        nats_stack.wait_published()
        start = database.server.log_size()

        def looked_up():
            grant_twice(client)
            text = database.log_since(start)
            return all(re.search(condition, text) for condition in LOOKED_UP.values())

        wait_until(looked_up, "all are looked up by index")
        assert not re.search(rf"Seq Scan on ({'|'.join(LOOKED_UP)}) ", database.log_since(start))
        server.stop()
