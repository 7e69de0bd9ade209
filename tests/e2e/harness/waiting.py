"""Waiting for a condition with a deadline. The only place of the suite that sleeps."""

import time


def wait_until(condition, what, timeout=15.0, interval=0.01):
    """Polls `condition` until it is true and returns its value; fails with `what` at the deadline."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {timeout:g} s in vain: {what}")
        time.sleep(interval)
