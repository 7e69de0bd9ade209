"""Which server the operator's commands speak to, and what they make of odd ones."""

import base64
import contextlib
import subprocess
import threading

import pytest

from engines import process
from harness import quipu
from harness.operator import ask, run, server  # noqa: F401  (fixtures)
from harness.operator import Server, failed, letter, refused
from harness.receivers import running
from harness.waiting import HANG_S


@pytest.fixture(scope="module", autouse=True)
def given_up(binary, tmp_path_factory):
    """A command that a server never answers. It takes 10 s to give up, so it does that beside the other tests."""
    ended = threading.Event()
    with running(Server()) as silent:
        silent.override("/operator/dlq/outbox", lambda handler: ended.wait(HANG_S))
        try:
            with process.running(
                [binary, "dlq", "list", "--server", silent.url], cwd=tmp_path_factory.mktemp("given-up"),
                env=quipu.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            ) as command:
                yield command, silent
        finally:
            ended.set()


# ---- which server


def test_without_a_server_it_says_what_to_do(run, tmp_path, free_port):
    message = f"no server answers at http://127.0.0.1:{free_port}; start it, or name another one with --server"
    failed(run("dlq", "list", "--listen", f"127.0.0.1:{free_port}"), message)
    failed(run("dlq", "show", "outbox/1", "--server", f"http://127.0.0.1:{free_port}/"), message)
    done = run("dlq", "replay", "outbox/1", "outbox/2", "--server", f"http://127.0.0.1:{free_port}")
    failed(done, f"outbox/1: {message}")
    failed(run("outbox", "resend", "--since", "1h", env={"QUIPU_LISTEN": f"127.0.0.1:{free_port}"}), message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("listen", ["127.0.0.1:{}", "0.0.0.0:{}", "localhost:{}"])
def test_the_server_is_where_it_listens(run, server, listen):
    server.letters["outbox"] = [letter("outbox", 1)]
    done = run("dlq", "list", "--listen", listen.format(server.server_port), "--insecure")
    assert "outbox/id-1" in done.stdout, done.stderr


@pytest.mark.parametrize("listen", ["[::1]:{}", "[::]:{}"])
def test_the_server_is_where_it_listens_on_ipv6(run, listen):
    try:
        server = Server(("::1", 0))
    except OSError:
        pytest.skip("there is no IPv6 here")
    with running(server):
        done = run("dlq", "list", "--listen", listen.format(server.server_port), "--insecure")
        assert (done.returncode, done.stdout) == (0, "no dead letters\n"), done.stderr


def test_a_port_that_is_not_known_must_be_named(run):
    assert refused(run("dlq", "list", "--listen", "127.0.0.1:0"), "--server")


def test_the_server_may_stand_in_environment_and_file(run, server, tmp_path):
    assert run("dlq", "list", env={"QUIPU_SERVER": server.url}).returncode == 0
    (tmp_path / "quipu.ini").write_text(f"server = {server.url}\n")
    assert run("dlq", "list", "--config", "quipu.ini").returncode == 0


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://127.0.0.1", "http://", "http://h/path", "http://h?q",
                                 "http://h#part", "http://h:port", "file:///etc/passwd"])
def test_a_server_that_cannot_be_one_is_refused(run, url):
    assert refused(run("dlq", "list", "--server", url), "--server cannot be used")


def test_credentials_are_sent_and_never_shown(run, server, free_port):
    url = server.url.replace("//", "//user:s3cr3t@")
    assert run("dlq", "list", env={"QUIPU_SERVER": url}).returncode == 0
    assert server.requests[0][2]["Authorization"] == "Basic " + base64.b64encode(b"user:s3cr3t").decode()
    done = run("dlq", "list", env={"QUIPU_SERVER": f"http://user:s3cr3t@127.0.0.1:{free_port}"})
    failed(done, f"no server answers at http://127.0.0.1:{free_port}; start it, or name another one with --server")
    printed = run("serve", "--print-config", env={"QUIPU_SERVER": url}).stdout
    assert "s3cr3t" not in printed and "user:***@" in printed


def test_proxies_of_the_environment_are_not_used(ask):
    assert ask("dlq", "list", env={"http_proxy": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"}).returncode == 0


# ---- odd servers


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"letters":'])
@pytest.mark.parametrize("status", [200, 404, 502])
def test_what_is_no_quipu_is_told_as_such(ask, server, body, status):
    server.override("/operator/dlq/outbox", lambda handler: handler.send(status, body))
    failed(ask("dlq", "list"), f"the server at {server.url} is not quipu (HTTP {status})")


def test_a_redirect_is_not_followed(ask, server):
    answer = {"title": "Moved"}
    server.override(
        "/operator/dlq/outbox", lambda handler: handler.send(307, answer, {"Location": "/operator/dlq/poison"}))
    failed(ask("dlq", "list"), "Moved")
    assert len(server.requests) == 1


@pytest.mark.parametrize("problem, message", [
    ({"title": "Internal Server Error", "detail": "something\nbroke\x1b[31m"}, "something\\x0abroke\\x1b[31m"),
    ({"title": "Internal Server Error"}, "Internal Server Error"),
    ({"detail": 5}, "HTTP 500"),
    ({"detail": "not valid", "errors": [{"field": "limit", "message": "must be an integer"}]},
     "limit must be an integer"),
    ({"detail": "not valid", "errors": []}, "not valid"),
    ({"detail": "not valid", "errors": [5]}, "not valid"),
    ({"detail": "not valid", "errors": "all"}, "not valid"),
])
def test_a_refusal_is_told_in_one_line(ask, server, problem, message):
    server.override("/operator/dlq/outbox", lambda handler: handler.send(500, problem))
    failed(ask("dlq", "list"), message)


def test_a_server_that_hangs_up_is_told_as_such(ask, server):
    server.override("/operator/dlq/outbox", lambda handler: setattr(handler, "close_connection", True))
    done = ask("dlq", "list")
    assert done.returncode == 1
    assert f"no answer from {server.url}: " in done.stderr


def test_an_answer_without_an_end_is_cut_off(ask, server):
    def pour(handler):
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b" " * 65536)

    server.override("/operator/dlq/outbox", pour)
    failed(ask("dlq", "list"), f"the answer from {server.url} is too long")


def test_a_real_server_without_these_routes_is_told_as_such(serve, run, sqlite_store):
    server = serve(sqlite_store)
    url = f"http://127.0.0.1:{server.port}"
    failed(run("dlq", "list", "--server", url), f"the server at {url} runs no role with dead letters")
    failed(run("outbox", "resend", "--since", "1h", "--server", url),
           f"the server at {url} runs no role with the requested outbox")


def test_a_server_that_does_not_answer_is_given_up(given_up):
    """The last of the file: it has had its time meanwhile."""
    command, silent = given_up
    _, told = command.communicate(timeout=HANG_S)
    assert (command.returncode, told) == (1, f"quipu: the server at {silent.url} did not answer within 10 s\n")
