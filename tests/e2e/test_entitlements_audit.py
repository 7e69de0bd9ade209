"""What a user had and when: lists by status, and the audit page by page, newest first, on both stores."""

import re
from urllib.parse import quote

import pytest

from harness.entitlements import change, new_user, request_bytes
from harness.http import ask_all
from harness.plans import explained
from harness.problems import assert_bad_request


def audit_pages(client, user, query=""):
    """The lines of each page, following the links."""
    target, pages = f"/v1/users/{quote(user, safe='')}/entitlement-audit{query}", []
    while target:
        answer = client.ask("GET", target)
        assert answer.status == 200, answer
        assert answer.json()["user_id"] == user
        pages.append(answer.json()["audit"])
        target = answer.next_page()
    return pages


def brief(lines):
    return [(line["stock_keeping_unit"], line["action"], line["version"], line["reason"], line["purchase_id"]) for line in lines]


def test_a_list_can_be_restricted_to_a_status_page_by_page(entitlements):
    user, units = new_user(), ["a", "b", "c", "d", "e"]
    for unit in units:
        assert entitlements.grant(user, unit).status == 200
    for unit in ("b", "d"):
        assert entitlements.revoke(user, unit).status == 200
    for status, expected in (("ACTIVE", ["a", "c", "e"]), ("REVOKED", ["b", "d"])):
        entries, target = [], f"/v1/users/{user}/entitlements?status={status}&limit=1"
        while target:
            page = entitlements.ask("GET", target)
            entries += page.json()["entitlements"]
            target = page.next_page()
        assert [(entry["stock_keeping_unit"], entry["status"]) for entry in entries] == [(unit, status) for unit in expected]
    assert len(entitlements.list(user).json()["entitlements"]) == 5
    assert entitlements.list(new_user(), "?status=ACTIVE").json()["entitlements"] == []


@pytest.mark.parametrize("status", ["", "active", "EXPIRED", "ACTIVE,REVOKED"])
def test_a_status_that_does_not_exist_is_refused(entitlements, status):
    assert_bad_request(entitlements.list(new_user(), f"?status={status}"), "status")


def test_the_audit_has_every_change_newest_first(entitlements):
    user = new_user()
    assert entitlements.grant(user, purchase="p_1").status == 200
    assert entitlements.grant(user, purchase="p_2").status == 200
    assert entitlements.grant(user, purchase="p_2").status == 409
    assert entitlements.revoke(user, purchase="p_1").status == 200
    assert entitlements.revoke(user, reason="fraud", purchase=None).status == 200
    assert entitlements.grant(user, "item2", reason="gift", purchase=None).status == 200
    (lines,) = audit_pages(entitlements, user)
    assert brief(lines) == [
        ("item2", "GRANTED", 1, "gift", None), ("item1", "REVOKED", 2, "fraud", None), ("item1", "REVOKED", 1, "refund", "p_1"),
        ("item1", "GRANTED", 1, "purchase", "p_2"), ("item1", "GRANTED", 1, "purchase", "p_1"),
    ]
    assert [line["event_id"] is not None for line in lines] == [True, True, False, False, True]
    assert audit_pages(entitlements, new_user()) == [[]]


def test_pages_of_the_audit_have_every_line_once_also_of_one_moment(entitlements):
    user, units = new_user(), ["b", "a.1.2", "ü?&", "%41", "z"]
    requests = [(entitlements.port, request_bytes("/v1/entitlements/grants", change(user, unit, purchase=f"p_{number}"), f"{user}-{unit}-{number}"))
                for number in range(4) for unit in units]
    assert {answer.status for answer in ask_all(requests)} == {200}
    (whole,) = audit_pages(entitlements, user, "?limit=1000")
    assert len(whole) == 20
    assert [line["occurred_at"] for line in whole] == sorted((line["occurred_at"] for line in whole), reverse=True)
    for limit in (1, 3, 19, 20, 21):
        pages = audit_pages(entitlements, user, f"?limit={limit}")
        assert sum(pages, []) == whole
        assert {len(page) for page in pages[:-1]} <= {limit}


@pytest.mark.parametrize("before", ["", "x", "1", "1.2", "1.2.3x.a", "99999999999999999999.1.1.a", "253402300800000000.1.0.a",
                                    "-253402300800000000.1.0.a", "1.1.0." + "x" * 129])
def test_a_cursor_that_no_link_has_is_refused(entitlements, before):
    assert_bad_request(entitlements.ask("GET", f"/v1/users/{new_user()}/entitlement-audit?before={before}"), "before")


def test_the_audit_of_a_user_is_read_by_index_and_without_the_months_after_the_cursor(serve, entitlements_client, nats_stack):
    database = nats_stack.database
    serve(nats_stack).stop()
    database.query("SELECT quipu_make_audit_month(date_trunc('month', now() AT TIME ZONE 'UTC') - n * interval '1 month') "
                   "FROM generate_series(1, 3) n")
    database.query(
        "INSERT INTO entitlement_audit (occurred_at, user_id, stock_keeping_unit, action, version, step, reason, purchase_id) "
        "SELECT now() - n * interval '1 hour', 'user-' || n % 7, 'item1', 'GRANTED', n, 0, 'gift', NULL FROM generate_series(1, 2000) n")
    with explained(database, r"entitlement_audit\w*") as plans:
        server = serve(nats_stack)
        pages = audit_pages(entitlements_client(server), "user-3", "?limit=100")
        server.stop()
    assert [len(page) for page in pages] == [100, 100, 86]
    assert [line["version"] for page in pages for line in page] == [n for n in range(1, 2001) if n % 7 == 3]
    reads = [plan for plan in plans if "Limit" in plan]
    assert len(reads) == 3
    assert not any(re.search("Seq Scan|Sort  ", plan) for plan in reads), reads
    assert "Subplans Removed" in reads[-1], "no month was left out"
