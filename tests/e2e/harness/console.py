"""What the pages of the console show: limits, entitlements, dead letters, pots."""

import contextlib
import sqlite3

from .unread import new_user

TWIRP = "/twirp/pyggpot.pot.Pot"


def dead_letter(store, name, payload, error="410 Gone", kind="notification", about="u_123:film"):
    """Writes a dead letter beside the running server."""
    with contextlib.closing(sqlite3.connect(store.data / "notifications.db")) as connection, connection:
        connection.execute(
            "INSERT INTO notification_dlq (id, kind, event_type, aggregate_key, position, last_error, payload, attempt_count,"
            " created_at) VALUES (?, ?, 'EntitlementGranted', ?, ?, ?, ?, 10, 1790000000000000)",
            (name, kind, about, f"at {name}", error, payload))


def grant(server, user, unit="film-pass", reason="purchase"):
    body = {"user_id": user, "stock_keeping_unit": unit, "reason": reason, "purchase_id": unit}
    assert server.ask("POST", "/v1/entitlements/grants", body, {"Idempotency-Key": new_user()}).status == 200


def set_limit(server, user):
    assert server.ask("POST", "/api/config", {"userId": user, "rateLimit": 5, "timeWindow": 60}).status == 200


def new_count(server, item):
    assert server.ask("POST", "/api/v1/internal/counts", {"itemId": item}).status == 201


def new_pot(server, name):
    assert server.ask("POST", f"{TWIRP}/CreatePot", {"pot_name": name, "max_coins": 50}).status == 200


def send(server, sender, receiver, text="hello"):
    answer = server.ask("POST", "/dialogs/send", {"receiverId": receiver, "text": text}, {"X-User-Id": sender})
    assert answer.status == 200
