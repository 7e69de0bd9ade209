"""The program under test, and the fixtures of the end-to-end tests, which are in harness/fixtures.

Every process is started by a fixture and ended by it, by pid, whether the test passed or not; one that a killed run
leaves behind is ended by the kernel (engines/process.py). A test that fails shows the end of the logs of the servers it
used.
"""

import os
import pathlib
import signal
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

from engines.ports import Port  # noqa: E402  (the folders are named above)
from engines.process import die_with_parent  # noqa: E402
from harness.fixtures import LOGS, Servers  # noqa: E402
from harness.openapi import OpenApi  # noqa: E402

FIXTURES = ("engines", "counts", "gateway", "pots", "entitlements", "unread", "access")
pytest_plugins = [f"harness.fixtures.{name}" for name in FIXTURES]


def pytest_configure(config):
    """SIGTERM ends the run like Ctrl-C does, so that fixtures end their processes. A worker of a run that is killed
    ends at once, and its processes with it."""
    if hasattr(config, "workerinput"):
        die_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for title, tail in item.stash.get(LOGS, []):
            report.sections.append((title, tail()))


@pytest.fixture(scope="session")
def binary():
    """The program: $QUIPU, or the one that tests/run.py has built without sanitizers."""
    path = pathlib.Path(os.environ.get("QUIPU", ROOT / "build-plain" / "quipu")).resolve()
    assert os.access(path, os.X_OK), f"no program at {path}: build it, or set QUIPU to its path"
    return path


@pytest.fixture
def free_port():
    """A port on which nobody listens, unless a server of the test does."""
    with Port() as port:
        yield port.number


@pytest.fixture(scope="session")
def openapi():
    return OpenApi.from_files()


@pytest.fixture
def serve(binary, tmp_path, request):
    """Starts servers and ends them: `serve(store, '--batch-max', 1)`."""
    servers = Servers(binary, tmp_path, request.node)
    yield servers
    servers.close()


@pytest.fixture(scope="module")
def module_serve(binary, tmp_path_factory, request):
    """`serve` for servers that the tests of a file share."""
    servers = Servers(binary, tmp_path_factory.mktemp("shared"), request.node)
    yield servers
    servers.close()
