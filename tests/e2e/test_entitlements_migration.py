"""Entitlements of a version without sources: a database made by its migrations gets the sources that its audit tells of."""

import itertools

import pytest

from harness.old_schema import OldSchema
from harness.problems import assert_problem
from harness.verify import from_now, verified

ROLES = ("--roles", "entitlements,notifications")
OLD = OldSchema("entitlements.db", [("common", 1, "base"), ("common", 2, "operator_actions"), ("entitlements", 1, "entitlements")])
DAY_S = 24 * 3600
_events = (f"00000000-0000-4000-8000-{number:012}" for number in itertools.count(1))


def old_entitlement(store, user, *lines):
    """Statements for an entitlement with this history of (purchase, days ago), from version 1; it is told by an audit
    as the old version wrote it."""
    statements = []
    for version, (purchase, days) in enumerate(lines, 1):
        action, reason = ("GRANTED", "purchase") if version % 2 else ("REVOKED", "refund")
        statements.append(
            "INSERT INTO entitlement_audit (occurred_at, user_id, stock_keeping_unit, action, version, reason, purchase_id, "
            f"event_id) VALUES ({from_now(store, -days * DAY_S)}, '{user}', 'item1', '{action}', {version}, '{reason}', "
            f"'{purchase}', '{next(_events)}')")
    status = "ACTIVE" if len(lines) % 2 else "REVOKED"
    statements.append(
        "INSERT INTO entitlements (user_id, stock_keeping_unit, status, version, updated_at) "
        f"SELECT '{user}', 'item1', '{status}', {len(lines)}, occurred_at FROM entitlement_audit "
        f"WHERE user_id = '{user}' AND version = {len(lines)}")
    return statements


def drop_old_audit(store):
    """As --audit-keep-months does it: what is older than two months or so is gone."""
    if store.name == "postgres":
        return ["SELECT quipu_drop_audit_months(2)"]
    return [f"DELETE FROM entitlement_audit WHERE occurred_at < {from_now(store, -100 * DAY_S)}"]


def old_months(store):
    if store.name != "postgres":
        return []
    return ["SELECT quipu_make_audit_month(date_trunc('month', now() AT TIME ZONE 'UTC') - n * interval '1 month') "
            "FROM generate_series(1, 11) n"]


@pytest.fixture
def migrated(serve, store, entitlements_client):
    """A client of the new version, on what the old one has left behind."""
    OLD.make(store)
    OLD.run(store, [
        *old_months(store),
        *old_entitlement(store, "bought", ("p_1", 30)),
        *old_entitlement(store, "again", ("p_1", 32), ("p_1", 31), ("p_2", 30)),
        *old_entitlement(store, "same", ("p_1", 32), ("p_1", 31), ("p_1", 30)),
        *old_entitlement(store, "refunded", ("p_1", 31), ("p_1", 30)),
        *old_entitlement(store, "other", ("p_1", 31), ("p_9", 30)),
        *old_entitlement(store, "lost", ("p_1", 300)),
        *old_entitlement(store, "lost-refunded", ("p_1", 300), ("p_1", 299)),
        *old_entitlement(store, "half", ("p_1", 300), ("p_1", 30)),
        *old_entitlement(store, "half-again", ("p_1", 300), ("p_1", 31), ("p_2", 30)),
        *drop_old_audit(store),
    ])
    server = serve(store, *ROLES)
    return entitlements_client(server), server


def status_of(client, user):
    (entry,) = client.list(user).json()["entitlements"]
    return entry["status"], entry["version"]


def test_sources_come_from_the_audit(binary, migrated):
    client, server = migrated
    assert {user: client.sources(user) for user in (
        "bought", "again", "same", "refunded", "other", "lost", "lost-refunded", "half", "half-again")} == {
        "bought": {("purchase", "p_1"): "ACTIVE"},
        "again": {("purchase", "p_2"): "ACTIVE", ("purchase", "p_1"): "REVOKED"},
        "same": {("purchase", "p_1"): "ACTIVE"},
        "refunded": {("purchase", "p_1"): "REVOKED"},
        "other": {("purchase", "p_1"): "REVOKED"},
        "lost": {("migrated", "migrated"): "ACTIVE"},
        "lost-refunded": {},
        "half": {("purchase", "p_1"): "REVOKED"},
        "half-again": {("purchase", "p_2"): "ACTIVE", ("purchase", "p_1"): "REVOKED"},
    }
    assert verified(binary, server, "entitlements")[0] == set()


def test_the_audit_of_before_is_listed_as_far_back_as_it_goes(migrated):
    client, _ = migrated
    for user, versions in (("again", [3, 2, 1]), ("half-again", [3, 2]), ("lost", [])):
        lines = client.ask("GET", f"/v1/users/{user}/entitlement-audit").json()["audit"]
        assert [line["version"] for line in lines] == versions


def test_a_purchase_that_was_refunded_before_grants_nothing_now(migrated):
    client, _ = migrated
    for user in ("again", "refunded", "other", "half", "half-again"):
        before = status_of(client, user)
        assert_problem(client.grant(user, purchase="p_1"), 409, "ENTITLEMENT_STATE_CONFLICT")
        assert status_of(client, user) == before


def test_the_refund_of_what_was_bought_before_ends_it(binary, migrated):
    client, server = migrated
    assert client.grant("bought", purchase="p_2").json()["version"] == 1
    assert client.revoke("bought", purchase="p_1").json()["status"] == "ACTIVE"
    assert client.revoke("bought", purchase="p_2").json()["status"] == "REVOKED"
    assert client.revoke("same", purchase="p_1").json()["version"] == 4
    assert verified(binary, server, "entitlements")[0] == set()


def test_where_the_audit_is_gone_the_refund_of_any_purchase_ends_it(binary, migrated):
    client, server = migrated
    client.grant("lost", purchase="p_2")
    assert client.revoke("lost", purchase="p_2").json()["status"] == "ACTIVE", "that one is known"
    assert client.revoke("lost", purchase="p_2").status == 409
    assert client.revoke("lost", purchase="p_7").json()["status"] == "REVOKED"
    assert client.sources("lost") == {
        ("migrated", "migrated"): "REVOKED", ("purchase", "p_2"): "REVOKED", ("purchase", "p_7"): "REVOKED"}
    assert client.grant("lost", purchase="p_7").status == 409
    assert client.grant("lost", purchase="p_8").json()["version"] == 3
    assert verified(binary, server, "entitlements")[0] == set()


def test_a_process_of_the_old_version_cannot_write_beside_the_new_one(serve, postgres_store):
    serve(postgres_store, *ROLES)
    with pytest.raises(Exception, match="null value in column \"step\""):
        OLD.run(postgres_store, old_entitlement(postgres_store, "new", ("p_1", 0)))
