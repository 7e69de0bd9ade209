"""`quipu demo`: a server on a temporary folder, traffic for every service, and nothing left behind, however it ends."""

import os
import re
import signal

import pytest

from engines import process
from harness.http import Connection
from harness.quipu import environment, run
from harness.waiting import HANG_S, wait_until

ENDED = "The traffic has ended. The server runs until Ctrl-C."


class Demo:
    """A running `quipu demo`, whose temporary folders are in `folder`."""

    def __init__(self, binary, folder, *arguments, env=None):
        self.folder, self._output, self.errors = folder / "temporary", folder / "stdout", folder / "stderr"
        self.folder.mkdir()
        with self._output.open("wb") as stdout, self.errors.open("wb") as stderr:
            self.process = process.start([binary, "demo", "--listen", "127.0.0.1:0", *arguments], stdout=stdout,
                                         stderr=stderr, env=environment({"TMPDIR": str(self.folder), **(env or {})}))
        line = wait_until(lambda: re.search(r"console +http://127\.0\.0\.1:(\d+)/console\n", self.output()), "it welcomes")
        self.port = int(line.group(1))
        (self.server,) = process.children(self.process.pid)

    def output(self):
        return self._output.read_text()

    def ask(self, method, path, body=None, headers=None):
        with Connection(self.port) as connection:
            answer = connection.ask(method, path, body, headers)
        assert answer.status == 200, answer
        return answer

    def server_is_gone(self):
        return not os.path.exists(f"/proc/{self.server}")


@pytest.fixture
def demo(binary, tmp_path):
    started = []

    def start(*arguments, env=None):
        started.append(Demo(binary, tmp_path, *arguments, env=env))
        return started[-1]

    yield start
    for one in started:
        process.end(one.process)
        wait_until(one.server_is_gone, "the server ends with the demo")


def test_it_plays_every_service_and_points_to_the_console(demo):
    one = demo("--seconds", 1)
    wait_until(lambda: ENDED in one.output(), "the traffic ends")
    assert "text/html" in one.ask("GET", "/console").header("content-type")
    assert one.ask("GET", "/api/v1/internal/counts/page:home").json()["currentValue"] >= 1
    assert one.ask("GET", "/api/config/1").json()["currentCount"] >= 1
    assert one.ask("GET", "/v1/users/u_0/entitlements").json()["entitlements"]
    assert one.ask("POST", "/twirp/pyggpot.coin.Coin/ListCoins", {"pot_id": 1}).json()["coins"]
    assert one.ask("GET", "/dialogs/list?receiverId=bob", headers={"X-User-Id": "alice"}).json()
    assert re.search(r"^\d+ requests were answered and 0 refused", one.output(), re.MULTILINE)


@pytest.mark.parametrize("seconds", [0, 3600])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_any_time_and_removes_its_folder(demo, seconds, how):
    one = demo("--seconds", seconds)
    assert list(one.folder.iterdir())
    one.process.send_signal(how)
    assert one.process.wait(HANG_S) == 0, one.errors.read_text()
    assert one.server_is_gone() and list(one.folder.iterdir()) == []


def test_it_meets_no_data_and_no_engine_of_another_server(demo, tmp_path):
    mine = tmp_path / "mine"
    one = demo("--seconds", 0, env={"QUIPU_DATA": str(mine), "QUIPU_STORE": "postgres://nobody@127.0.0.1:1/none"})
    wait_until(lambda: ENDED in one.output(), "the traffic ends")
    assert not mine.exists()


def test_a_server_that_ends_by_itself_is_reported_with_its_log(demo):
    one = demo("--seconds", 0)
    wait_until(lambda: ENDED in one.output(), "the traffic ends")
    os.kill(one.server, signal.SIGKILL)
    assert one.process.wait(HANG_S) == 1
    assert "the server ended by itself" in one.errors.read_text() and list(one.folder.iterdir()) == []


def test_a_server_that_cannot_start_is_reported_with_the_way_out(binary, tmp_path):
    for address in ("127.0.0.1:99999", "192.0.2.1:80"):
        done = run(binary, "demo", "--listen", address, env={"TMPDIR": str(tmp_path)})
        assert done.returncode == 1 and address in done.stderr and "127.0.0.1:0" in done.stderr
        assert list(tmp_path.iterdir()) == []


def test_killing_it_ends_the_server(demo):
    one = demo("--seconds", 3600)
    one.process.kill()
    wait_until(one.server_is_gone, "the kernel ends the server")


@pytest.mark.parametrize("arguments", [["--seconds", "x"], ["--seconds", "-1"], ["--seconds", "99999999999"], ["words"]])
def test_wrong_arguments_are_refused(binary, tmp_path, arguments):
    done = run(binary, "demo", *arguments, env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 2 and "usage: quipu demo" in done.stderr and list(tmp_path.iterdir()) == []
