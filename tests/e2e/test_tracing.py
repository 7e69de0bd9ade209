"""traceparent: passed on if it is valid, replaced if it is not, and never a reason to fail anybody."""

import contextlib
import re
import sqlite3

import pytest

from harness.counts import new_key

VALID = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STRANGE = ["\xff" * 55, "\xc0\x80", "x" * 55, TRACE.upper(), TRACE + "-more", "0" * 4000]


def grant(server, user, trace):
    body = {"user_id": user, "stock_keeping_unit": "s", "reason": "purchase", "purchase_id": user}
    return server.ask("POST", "/v1/entitlements/grants", body, {"Idempotency-Key": new_key(), "traceparent": trace})


def traces(store):
    """{user: what was stored with the event}."""
    sql = "SELECT aggregate_key, trace_id FROM outbox_events"
    if store.name == "postgres":
        rows = store.database.query(sql)
    else:
        with contextlib.closing(sqlite3.connect(f"file:{store.data}/entitlements.db?mode=ro", uri=True)) as connection:
            rows = connection.execute(sql).fetchall()
    return {key.split(":")[0]: trace for key, trace in rows}


def test_a_valid_one_is_passed_on_and_any_other_replaced(serve, store):
    server = serve(store, "--roles", "entitlements,notifications")
    assert grant(server, "good", TRACE).status == 200
    for number, trace in enumerate(STRANGE):
        assert grant(server, f"strange-{number}", trace).status == 200, trace
    stored = traces(store)
    assert stored.pop("good") == TRACE
    assert len(stored) == len(STRANGE)
    assert all(VALID.fullmatch(trace) for trace in stored.values()), stored
    assert len(set(stored.values())) == len(STRANGE)


@pytest.mark.parametrize("path, body", [
    ("/api/send", {"userId": "u", "message": "m"}),
    ("/dialogs/send", {"receiverId": "v", "text": "t"}),
])
def test_no_service_stumbles_over_it(serve, store, path, body):
    server = serve(store, "--roles", "gateway,sender,dialogs,counters")
    assert server.ask("POST", "/api/config", {"userId": "u", "rateLimit": 100, "timeWindow": 60}).status == 200
    for trace in STRANGE:
        answer = server.ask("POST", path, body, {"X-User-Id": "u", "traceparent": trace})
        assert answer.status in (200, 201), (trace, answer)
