"""Some promises hold in the end: an event is published, delivered and applied after the change was acknowledged."""

import time

from .tables import Tables

PAUSE_S = 0.5
OPEN = {
    "entitlements": "SELECT count(*) FROM outbox_events WHERE status IN ('PENDING', 'IN_FLIGHT')",
    "notifications": "SELECT count(*) FROM notifications WHERE status IN ('PENDING', 'PROCESSING')",
    "dialogs": "SELECT count(*) FROM dialog_outbox_events WHERE status IN ('PENDING', 'IN_FLIGHT')",
}


def eventually(cluster, check):
    """Checks until the invariant holds or the time that such promises may take is over. Returns the last judgment."""
    deadline = time.monotonic() + cluster.settle_s
    while True:
        invariant = check()
        if invariant.holds or time.monotonic() >= deadline:
            return invariant
        time.sleep(PAUSE_S)


def waiting(cluster, services):
    """How many events and notifications still wait, and unread messages that are not counted yet: 0 when everything has
    settled."""
    with Tables(cluster) as tables:
        total = sum(tables.rows(service, statement)[0][0] for service, statement in OPEN.items() if service in services)
        if "counters" in services:
            total += _uncounted(tables)
        return total


def _uncounted(tables):
    unread = dict(tables.rows("dialogs", "SELECT receiver_id, count(*) FROM messages WHERE NOT is_read GROUP BY 1"))
    counted = dict(tables.rows("counters", "SELECT user_id, count FROM counters WHERE type = 'UnreadMessages' AND count > 0"))
    return sum(unread.get(user, 0) != counted.get(user, 0) for user in unread.keys() | counted.keys())
