"""Servers that may not be installed on this machine."""

import contextlib

import pytest

from engines.server import Unavailable


@contextlib.contextmanager
def available(start):
    """Returns the server that `start` starts, or skips the test with the reason if it is not available."""
    with contextlib.ExitStack() as resources:
        try:
            server = resources.enter_context(start())
        except Unavailable as reason:
            pytest.skip(str(reason))
        yield server
