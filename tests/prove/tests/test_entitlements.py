"""Entitlements: a change without its line, event or notification is found, and so is one too many."""

import pytest

REPLAY = "the table and the sources are what the audit tells"
ANSWERS = "every acknowledged change is one line of the audit, and no other"
ORDER = "the audit is in an order that real time allows"
OUTBOX = "every change of a status is one published event"
NOTIFIED = "one per event, and sent"
USER, UNIT = "s1e0", "unit0"


def payload(event, version):
    """The protobuf of an event: id, user, unit, version."""
    fields = b"".join(bytes([number << 3 | 2, len(text)]) + text.encode()
                      for number, text in ((1, event), (4, USER), (5, UNIT)))
    return fields + bytes([8 << 3, version])


class Shop:
    def __init__(self, story):
        self.story = story
        for service in ("entitlements", "notifications"):
            story.database(service)

    def change(self, kind, purchase, version, state, **more):
        return self.story.tell("entitlements", kind, USER, UNIT, purchase,
                               answer={"version": version, "status": state}, **more)

    def line(self, action, purchase, version, event=None, step=0):
        self.story.row("entitlements", "entitlement_audit", occurred_at=version * 10 + step, user_id=USER,
                       stock_keeping_unit=UNIT, version=version, step=step, action=action, reason="purchase",
                       purchase_id=purchase, event_id=event)

    def event(self, event, version, kind="EntitlementGranted", status="PUBLISHED"):
        self.story.row("entitlements", "outbox_events", event_id=event, event_type=kind, aggregate_key=f"{USER}:{UNIT}",
                       trace_id="", payload=payload(event, version), status=status, created_at=0)

    def notified(self, event, number=1, status="SENT"):
        self.story.row("notifications", "notifications", notification_id=f"{event}-{number}", event_id=event, event_type="",
                       user_id=USER, stock_keeping_unit=UNIT, version=1, aggregate_key="", trace_id="", payload=b"",
                       occurred_at=0, created_at=0, status=status)

    def state(self, status, version, *sources):
        self.story.row("entitlements", "entitlements", user_id=USER, stock_keeping_unit=UNIT, status=status, version=version,
                       updated_at=0)
        for source in sources:
            self.story.row("entitlements", "entitlement_sources", user_id=USER, stock_keeping_unit=UNIT, kind="purchase",
                           source_id=source, reason="purchase", status="ACTIVE", granted_at=0)

    def judge(self):
        return self.story.judge("entitlements")


@pytest.fixture
def shop(story):
    return Shop(story)


@pytest.fixture
def granted(shop):
    """One grant, whole in every table."""
    shop.change("grant", "p1", 1, "ACTIVE")
    shop.line("GRANTED", "p1", 1, "e1")
    shop.event("e1", 1)
    shop.notified("e1")
    return shop


def test_a_grant_that_is_in_every_table_is_fine(granted):
    granted.state("ACTIVE", 1, "p1")
    assert granted.judge() == {}


def test_two_sources_and_the_end_of_both_are_fine(granted):
    granted.change("grant", "p2", 1, "ACTIVE")
    granted.line("GRANTED", "p2", 1, step=1)
    granted.change("revoke", "p1", 1, "ACTIVE")
    granted.line("REVOKED", "p1", 1, step=2)
    granted.change("revoke", "-", 2, "REVOKED")
    granted.line("REVOKED", None, 2, "e2")
    granted.event("e2", 2, "EntitlementRevoked")
    granted.notified("e2")
    granted.state("REVOKED", 2)
    assert granted.judge() == {}


def test_an_acknowledged_grant_without_a_line_is_found(granted):
    granted.state("ACTIVE", 1, "p1")
    granted.change("grant", "p2", 1, "ACTIVE")
    assert ANSWERS in granted.judge()


def test_a_line_of_a_refused_grant_is_found(granted):
    granted.change("grant", "p2", 1, "ACTIVE", status=503)
    granted.line("GRANTED", "p2", 1, step=1)
    granted.state("ACTIVE", 1, "p1", "p2")
    assert ANSWERS in granted.judge()


def test_a_line_that_nobody_asked_for_is_found(granted):
    granted.line("GRANTED", "p2", 1, step=1)
    granted.state("ACTIVE", 1, "p1", "p2")
    assert ANSWERS in granted.judge()


def test_another_version_than_the_client_was_told_is_found(granted):
    granted.change("grant", "p2", 2, "ACTIVE")
    granted.line("GRANTED", "p2", 1, step=1)
    granted.state("ACTIVE", 1, "p1", "p2")
    assert ANSWERS in granted.judge()


def test_a_row_that_its_audit_does_not_give_is_found(granted):
    granted.state("ACTIVE", 2, "p1")
    assert REPLAY in granted.judge()


def test_a_source_that_is_gone_is_found(granted):
    granted.state("ACTIVE", 1)
    assert REPLAY in granted.judge()


def test_a_purchase_that_grants_twice_is_found(granted):
    granted.line("GRANTED", "p1", 1, step=1)
    granted.state("ACTIVE", 1, "p1")
    assert REPLAY in granted.judge()


def test_an_order_that_real_time_forbids_is_found(shop):
    shop.change("grant", "p2", 1, "ACTIVE", at=10, until=20)
    shop.change("grant", "p1", 1, "ACTIVE", at=30, until=40)
    shop.line("GRANTED", "p1", 1, "e1")
    shop.line("GRANTED", "p2", 1, step=1)
    shop.event("e1", 1)
    shop.notified("e1")
    shop.state("ACTIVE", 1, "p1", "p2")
    assert ORDER in shop.judge()


def test_a_change_without_an_event_is_found(shop):
    shop.change("grant", "p1", 1, "ACTIVE")
    shop.line("GRANTED", "p1", 1, "e1")
    shop.notified("e1")
    shop.state("ACTIVE", 1, "p1")
    assert OUTBOX in shop.judge()


def test_an_event_without_a_change_is_found(granted):
    granted.event("e2", 2)
    granted.state("ACTIVE", 1, "p1")
    assert OUTBOX in granted.judge()


def test_an_event_that_was_never_published_is_found(shop):
    shop.change("grant", "p1", 1, "ACTIVE")
    shop.line("GRANTED", "p1", 1, "e1")
    shop.event("e1", 1, status="IN_FLIGHT")
    shop.notified("e1")
    shop.state("ACTIVE", 1, "p1")
    assert OUTBOX in shop.judge()


def test_an_event_that_tells_something_else_is_found(shop):
    shop.change("grant", "p1", 1, "ACTIVE")
    shop.line("GRANTED", "p1", 1, "e1")
    shop.event("e1", 7)
    shop.notified("e1")
    shop.state("ACTIVE", 1, "p1")
    assert OUTBOX in shop.judge()


def test_a_second_notification_is_found(granted):
    granted.notified("e1", 2)
    granted.state("ACTIVE", 1, "p1")
    assert NOTIFIED in granted.judge()


def test_a_notification_that_was_not_sent_is_found(shop):
    shop.change("grant", "p1", 1, "ACTIVE")
    shop.line("GRANTED", "p1", 1, "e1")
    shop.event("e1", 1)
    shop.notified("e1", status="PENDING")
    shop.state("ACTIVE", 1, "p1")
    assert NOTIFIED in shop.judge()
