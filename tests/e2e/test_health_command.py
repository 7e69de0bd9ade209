"""`quipu health`: the health check of containers and supervisors, which asks the server itself."""

import pytest

from harness import quipu
from harness.receivers import Handler, Receiver, running


@pytest.fixture
def health(binary, tmp_path):
    def command(*arguments, env=None):
        return quipu.run(binary, "health", *arguments, cwd=tmp_path, env=env)

    return command


def test_a_server_that_is_alive_is_ok_by_flag_and_by_environment(http_server, health):
    address = f"127.0.0.1:{http_server.port}"
    for done in (health("--listen", address), health("--server", f"http://{address}"),
                 health(env={"QUIPU_LISTEN": address}), health(env={"QUIPU_LISTEN": f"0.0.0.0:{http_server.port}"})):
        assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_the_settings_of_a_container_are_no_hindrance(http_server, health):
    """Those that only flags of the server complete: a gateway alone, whose bus the check does not know."""
    done = health(env={"QUIPU_LISTEN": f"0.0.0.0:{http_server.port}", "QUIPU_ROLES": "gateway"})
    assert done.returncode == 0, done.stderr


def test_no_server_is_1_and_says_so(health, free_port):
    done = health("--listen", f"127.0.0.1:{free_port}")
    assert done.returncode == 1
    assert done.stdout == "" and "no server answers at" in done.stderr


class Sick(Handler):
    status, body = 500, b'{"status":"sick"}'

    def do_GET(self):
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)


class Stranger(Sick):
    status, body = 200, b"<html>It works!</html>"


@pytest.mark.parametrize("kind, words", [(Sick, "HTTP 500"), (Stranger, "is not quipu")])
def test_an_answer_that_is_not_ours_is_1(health, kind, words):
    with running(Receiver(kind)) as server:
        done = health("--listen", f"127.0.0.1:{server.server_port}")
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.0.0.1", ":80", "127.0.0.1:", "["])
def test_an_address_that_names_no_server_is_2(health, listen):
    done = health("--listen", listen)
    assert done.returncode == 2
    assert "--" in done.stderr and done.stdout == ""


def test_it_takes_no_words(health):
    assert health("now").returncode == 2
