"""Waiting for a condition. The only place of the tests that sleeps."""

import time

# No test measures how fast something was by this: it only ends a hang, and a busy machine stays far below it.
HANG_S = 120.0


def wait_until(condition, what, timeout=HANG_S, interval=0.01, explain=None):
    """Polls `condition` until it is true and returns its value; fails with `what` at the deadline.

    `explain` returns what there is instead, for the one who reads the failure.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {timeout:g} s in vain: {what}" + (f"; {explain()}" if explain else ""))
        time.sleep(interval)
