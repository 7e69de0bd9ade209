"""The receivers of webhooks that docs/SECURITY.md shows, run as they stand there."""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import pytest

from .waiting import wait_until

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/SECURITY.md"


@contextlib.contextmanager
def shown_receiver(language, secret, port, folder):
    """A receiver as the page shows it ("python" or "js"), listening; yields the file with what it prints."""
    if language == "js" and shutil.which("node") is None:
        pytest.skip("node is not installed")
    section = PAGE.read_text(encoding="utf-8").split("## Signed webhooks")[1]
    code = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL).group(1)
    program = [sys.executable, "-c", code] if language == "python" else ["node", "-e", code]
    printed = folder / "printed"
    with printed.open("ab") as output:
        process = subprocess.Popen(program, stdout=output, stderr=output,
                                   env={**os.environ, "WEBHOOK_SECRET": secret, "PORT": str(port)})

    def listens():
        assert process.poll() is None, printed.read_text(encoding="utf-8")
        with contextlib.closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(listens, "the receiver listens")
        yield printed
    finally:
        process.kill()
        process.wait()
