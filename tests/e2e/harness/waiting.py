"""Waiting, as tests/engines does it."""

from engines.waiting import HANG_S, wait_until  # noqa: F401
