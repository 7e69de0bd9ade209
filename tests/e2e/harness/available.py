"""Servers that may not be on this machine."""

import contextlib

import pytest

from engines.server import Unavailable


@contextlib.contextmanager
def available(start):
    """The server that `start` starts; the test is skipped, with the reason, if it cannot be had."""
    with contextlib.ExitStack() as resources:
        try:
            server = resources.enter_context(start())
        except Unavailable as reason:
            pytest.skip(str(reason))
        yield server
