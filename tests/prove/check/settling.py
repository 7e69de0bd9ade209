"""Some promises hold in the end: an event is published, delivered and applied after the change was acknowledged."""

import time

PAUSE_S = 0.5


def eventually(cluster, check):
    """Checks until the invariant holds or the time that such promises may take is over. Returns the last judgment."""
    deadline = time.monotonic() + cluster.settle_s
    while True:
        invariant = check()
        if invariant.holds or time.monotonic() >= deadline:
            return invariant
        time.sleep(PAUSE_S)
