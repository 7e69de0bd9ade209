"""A real browser: Debian's Chromium, driven by playwright-core from npm, and a server for the pages that it opens.

A test gives a script of tests/e2e/browser/ to the browser and checks what it returns. playwright-core is not among
Debian's packages, so if npm's registry cannot be reached, the test is skipped and says so."""

import contextlib
import functools
import http.server
import json
import pathlib
import shutil
import subprocess

import pytest

from .receivers import Receiver, running
from .waiting import HANG_S

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "browser"


class Browser:
    """`browser.run("badge.js", page=..., server=...)` returns what the script returns."""

    def __init__(self, folder):
        """Installs the driver in `folder`, or skips the test."""
        for program in ("chromium", "node", "npm"):
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")
        self._folder = pathlib.Path(folder) / "browser"
        shutil.copytree(SOURCE, self._folder)
        try:
            done = subprocess.run(
                ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline"],
                cwd=self._folder, capture_output=True, text=True, timeout=HANG_S, check=False)
        except subprocess.TimeoutExpired:
            pytest.skip("npm's registry does not answer")
        if done.returncode != 0:
            pytest.skip(f"npm cannot install playwright-core: {done.stderr.strip().splitlines()[-1]}")

    def run(self, script, limit_s=2 * HANG_S, **arguments):
        done = subprocess.run(
            ["node", "run.js", shutil.which("chromium"), str(HANG_S * 1000), script, json.dumps(arguments)],
            cwd=self._folder, capture_output=True, text=True, timeout=limit_s, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


def player(browser, script):
    """`player(browser, "console.js")(server, "overview")` plays a story of a script with the pages of a server."""
    def play(server, story, **arguments):
        return browser.run(script, story=story, server=f"http://127.0.0.1:{server.port}", **arguments)
    return play


class _Pages(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def page_server():
    """Serves tests/e2e/browser/ on a port of its own, and so from an origin of its own, which it returns."""
    with running(Receiver(functools.partial(_Pages, directory=str(SOURCE)))) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}"
