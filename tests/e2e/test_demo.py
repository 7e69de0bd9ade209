"""`quipu demo`: a server on a temporary folder, traffic for every service, and nothing left behind, however it ends."""

import os
import re
import signal

import pytest

from harness.demo import ENDED, running_demo
from harness.quipu import read_metrics, run
from harness.waiting import HANG_S, wait_until


def test_it_plays_every_service_and_points_to_the_console(demo):
    one = demo("--seconds", 1)
    wait_until(lambda: ENDED in one.output(), "the traffic ends")
    assert "text/html" in one.ask("GET", "/console").header("content-type")
    assert one.ask("GET", "/api/v1/internal/counts/page:home").json()["currentValue"] >= 1
    assert one.ask("GET", "/api/config/101").json()["currentCount"] >= 1
    assert one.ask("GET", "/v1/users/u_0/entitlements").json()["entitlements"]
    assert one.ask("POST", "/twirp/pyggpot.coin.Coin/ListCoins", {"pot_id": 1}).json()["coins"]
    assert one.ask("GET", "/dialogs/list?receiverId=bob", headers={"X-User-Id": "alice"}).json()
    assert re.search(r"^\d+ requests were answered and 0 refused", one.output(), re.MULTILINE)


@pytest.fixture(scope="module")
def playing(binary, tmp_path_factory):
    """A demo in the middle of its traffic, for tests that only look at it."""
    with running_demo(binary, tmp_path_factory.mktemp("playing"), "--seconds", 3600) as one:
        yield one


@pytest.mark.parametrize("lane", ["counts", "gateway", "entitlements", "pots", "dialogs"])
def test_requests_arrive_together_so_that_every_service_combines_some(playing, lane):
    def combined():
        samples = read_metrics(playing.ask("GET", "/metrics"))
        requests, commits = (samples[f'quipu_batch_size_{what}{{lane="{lane}-write-0"}}'] for what in ("sum", "count"))
        return requests > commits + 10  # not just the one batch that is being counted

    wait_until(combined, "there are more requests than commits")


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


def test_a_server_that_ends_during_the_traffic_is_reported_with_its_log(demo):
    one = demo("--seconds", 3600)
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


@pytest.mark.parametrize("arguments", [["--seconds", "x"], ["--seconds", "-1"], ["--seconds", "3601"], ["words"]])
def test_wrong_arguments_are_refused(binary, tmp_path, arguments):
    done = run(binary, "demo", *arguments, env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 2 and "usage: quipu demo" in done.stderr and list(tmp_path.iterdir()) == []
