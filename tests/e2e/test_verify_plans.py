"""No page of quipu verify goes through more rows than it looks at, wherever in a table it is: what it reads is found by
an index, and read in its order."""

import re

import pytest

from harness.plans import explained
from harness.quipu import run
from harness.verify import walk

PARTS = 4  # at most so many rows are read for one that is looked at: those of a pot's coins, of an audit's neighbours
NODE = re.compile(r"-> .*Scan.* on (?:public\.)?(\w+).*\(actual time=\S+ rows=(\d+) loops=(\d+)\)")
WASTE = re.compile(r"Rows Removed by (?:Filter|Index Recheck|Join Filter): (\d+)")

KEYS = """INSERT INTO idempotency_keys
    SELECT '{scope}', 'key-' || n, decode(repeat('00', 32), 'hex'), {status}, 'application/json', '',
        convert_to('{body}', 'UTF8'), '', now(), '', now() + interval '1 day' FROM generate_series(1, {rows}) n"""
COUNT = '{{"itemId":"item-1","value":0}}'
MADE = '{{"itemId":"item-1","currentValue":0,"lastUpdatedAt":"2026-01-08T07:10:00Z"}}'

FILL = {
    "counts": [
        "INSERT INTO count_values SELECT 'item-' || n, n, now() FROM generate_series(1, {rows}) n",
        KEYS.replace("{scope}", "POST /api/v1/counts/{{itemId}}/reset").replace("{status}", "200").replace("{body}", COUNT),
        KEYS.replace("{scope}", "POST /api/v1/internal/counts").replace("{status}", "201").replace("{body}", MADE),
    ],
    "limits": [
        "INSERT INTO rate_limit_store SELECT 'user-' || n, 5, 1, 1, now(), 2 FROM generate_series(1, {rows}) n",
        KEYS.replace("{scope}", "POST /api/send").replace("{status}", "200").replace("{body}", "{{}}"),
    ],
    "pots": [
        "INSERT INTO pot (pot_name, max_coins) SELECT 'Pot' || n, 100 FROM generate_series(1, {rows}) n",
        "INSERT INTO coin (pot_id, denomination, coin_count) SELECT id, d, 1 FROM pot, unnest(ARRAY[1, 100]) d",
    ],
    # of each pair of users, one message of many is looked at
    "dialogs": [
        "INSERT INTO messages (receiver_id, id, sender_id, text, created_at, in_conversation) "
        "SELECT 'user-' || n, lpad(m::text, 7, '0') || '-x', 'alice', 'hello', now(), true "
        "FROM generate_series(1, {rows}) n, generate_series(1, 5) m",
        "INSERT INTO conversations SELECT 'user-' || n, 'alice', '0000005' FROM generate_series(1, {rows}) n",
        "INSERT INTO conversations SELECT 'alice', 'user-' || n, '0000005' FROM generate_series(1, {rows}) n",
    ],
    # half a year of history, a thousandth of it of one user
    "entitlements": [
        "SELECT quipu_make_audit_month(date_trunc('month', now() AT TIME ZONE 'UTC') - n * interval '1 month') "
        "FROM generate_series(1, 5) n",
        "INSERT INTO entitlements SELECT 'user-' || n, 'item', 'ACTIVE', 3, now() - interval '40 days', 0 "
        "FROM generate_series(1, {rows}) n",
        "INSERT INTO entitlement_sources SELECT 'user-' || n, 'item', 'purchase', 'p' || p, 'r', "
        "CASE p WHEN 1 THEN 'ACTIVE' ELSE 'REVOKED' END, now(), CASE p WHEN 1 THEN NULL ELSE now() END "
        "FROM generate_series(1, {rows}) n, generate_series(1, 2) p",
        "INSERT INTO entitlement_audit SELECT now() - (40 + n %% 100) * interval '1 day', 'user-' || n, 'item', "
        "CASE v %% 2 WHEN 1 THEN 'GRANTED' ELSE 'REVOKED' END, v, 'r', 'p', gen_random_uuid(), 0 "
        "FROM generate_series(1, {rows}) n, generate_series(1, 3) v",
        "INSERT INTO outbox_events (event_id, event_type, aggregate_key, trace_id, payload, status, claim_epoch, "
        "locked_by, locked_at, created_at, published_at) SELECT event_id, 'EntitlementGranted', 'k', '', '', "
        "'PUBLISHED', 1, 'me', now(), occurred_at, now() FROM entitlement_audit",
    ],
    "notifications": [
        "INSERT INTO notifications (notification_id, event_id, event_type, user_id, stock_keeping_unit, version, "
        "aggregate_key, trace_id, payload, occurred_at, created_at, status, claim_epoch, sent_at) "
        "SELECT gen_random_uuid(), 'event-' || n, 't', 'u', 'item', 1, 'k', '', '', now(), now(), 'SENT', 1, now() "
        "FROM generate_series(1, {rows}) n",
        "INSERT INTO processed_events SELECT event_id, now() FROM notifications",
        "INSERT INTO notification_dlq SELECT notification_id, 'notification', 't', 'k', '', 'why', '', 1, now() "
        "FROM notifications",
    ],
}


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "never-analyzed"])
@pytest.mark.parametrize("size, limit", [(4_000, 200), pytest.param(20_000, 500, marks=pytest.mark.full)])
@pytest.mark.parametrize("service", FILL)
def test_a_page_reads_what_it_looks_at_and_no_more(
    serve, binary, database, postgres_store, service, size, limit, analyzed
):
    done = run(binary, "migrate", "--store", database.url)
    assert done.returncode == 0, done.stderr
    for statement in FILL[service]:
        database.query(statement.format(rows=size), ())
    if analyzed:
        database.query("ANALYZE")
    database.query(f"ALTER DATABASE {database.name} SET auto_explain.log_analyze = 'on'")
    with explained(database, "count_values", "idempotency_keys", "rate_limit_store", "pot", "coin", "entitlements",
                   "entitlement_sources", r"entitlement_audit\w*", "outbox_events", "notifications",
                   "processed_events", "notification_dlq", "messages", "conversations") as plans:
        server = serve(postgres_store, "--roles", "all")
        _, checked = walk(server, service, limit)
        server.stop()

    assert sum(checked) >= 2 * size
    pages = [plan for plan in plans if "Limit" in plan and "quipu_now" not in plan and "Update on" not in plan]
    assert len(pages) >= 2 * size / limit
    for plan in pages:
        assert "Seq Scan" not in plan and "Bitmap" not in plan, plan
        for table, rows, loops in NODE.findall(plan):
            assert int(rows) * int(loops) <= limit * PARTS, (table, plan)
        assert all(int(rows) <= limit for rows in WASTE.findall(plan)), plan
