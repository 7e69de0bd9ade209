"""The operator's commands, against a server that plays the routes they use."""

import base64
import contextlib
import datetime
import http.server
import json
import re
import socket
import subprocess
import threading
import urllib.parse

import pytest

from harness import quipu
from engines.server import free_port
from harness.waiting import HANG_S

KINDS = ["outbox", "dialog-outbox", "notification", "poison"]
UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def letter(kind, number, **more):
    return {
        "id": f"id-{number}", "kind": kind, "event_type": "EntitlementGranted", "aggregate_key": f"user-{number}:gold",
        "position": "", "error": "HTTP 500", "attempt_count": 10, "created_at": "2026-01-08T07:10:00Z", **more,
    }


class Problem(Exception):
    def __init__(self, status, code, detail):
        super().__init__(detail)
        self.status = status
        self.body = {"type": "about:blank", "title": "Title", "status": status, "code": code, "detail": detail}


class Operator(http.server.BaseHTTPRequestHandler):
    """The routes of the server, on letters that a test puts into `self.server.letters`."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.serve()

    def do_POST(self):
        self.serve()

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, dict(self.headers.items()), body))
        with self.server.lock:
            override = self.server.overrides.get(urllib.parse.urlsplit(self.path).path)
        if override:
            override(self)
            return
        try:
            answer, headers = self.route(json.loads(body) if body else None)
            self.send(200, answer, headers)
        except Problem as problem:
            self.send(problem.status, problem.body, {}, "application/problem+json")

    def send(self, status, answer, headers=None, content_type="application/json"):
        data = answer if isinstance(answer, bytes) else json.dumps(answer, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def route(self, body):
        path, _, query = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query))
        match [urllib.parse.unquote(part) for part in path.split("/")[1:]]:
            case ["operator", "dlq", kind] if kind in self.server.letters and self.command == "GET":
                return self.list(kind, query)
            case ["operator", "dlq", kind, name] if kind in self.server.letters and self.command == "GET":
                found = self.find(kind, name)
                return {**found, "payload": base64.b64encode(b"\x00\x01").decode(), "event": {"user_id": "ü"}}, {}
            case ["operator", "dlq", kind, name, "replay"] if kind in self.server.letters and body is None:
                return self.settle(kind, name, "REPLAYED", {})
            case ["operator", "dlq", kind, name, "discard"] if kind in self.server.letters and body["why"]:
                return self.settle(kind, name, "DISCARDED", body)
            case ["operator", "outbox", "resend"] if "outbox" in self.server.letters:
                self.server.since = body["since"]
                return {"resent": self.server.resent}, {}
        raise Problem(404, "ROUTE_NOT_FOUND", "nothing is served here")

    def list(self, kind, query):
        letters = self.server.letters[kind]
        size = min(int(query.get("limit", 50)), self.server.page)
        start = int(query.get("after", 0))
        headers = {}
        if start + size < len(letters):
            headers["Link"] = f'</operator/dlq/{kind}?limit={size}&after={start + size}>; rel="next"'
        return {"letters": letters[start : start + size]}, headers

    def find(self, kind, name):
        for one in self.server.letters[kind]:
            if one["id"] == name:
                return one
        raise Problem(404, "DEAD_LETTER_NOT_FOUND", f'no dead letter of the kind {kind} has the id "{name}"')

    def settle(self, kind, name, resolution, body):
        found = self.find(kind, name)
        if found["event_type"] is None and resolution == "REPLAYED":
            raise Problem(409, "DEAD_LETTER_UNREADABLE", "its event cannot be read, so it cannot be sent again")
        self.server.letters[kind].remove(found)
        self.server.settled.append((kind, name, resolution, body.get("why")))
        return {"id": name, "kind": kind, "resolution": resolution}, {}


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address=("127.0.0.1", 0)):
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Operator)
        self.lock = threading.Lock()
        self.letters = {kind: [] for kind in KINDS}
        self.requests = []
        self.overrides = {}
        self.settled = []
        self.page = 50
        self.resent = 0
        self.since = None
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """A client that hangs up is no error of the test."""

    def override(self, path, answer):
        with self.lock:
            self.overrides[path] = answer


@contextlib.contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server():
    with running(Server()) as one:
        yield one


@pytest.fixture
def run(binary, tmp_path):
    """Runs a command of the program, in the test's folder."""

    def command(*arguments, **more):
        return quipu.run(binary, *arguments, cwd=tmp_path, **more)

    return command


@pytest.fixture
def ask(run, server):
    """Runs a command against the test's server."""
    return lambda *arguments, **more: run(*arguments, "--server", server.url, **more)


def refused(done, *words):
    """A wrong use: exit 2, a sentence, nothing on standard output."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr
    return done.stderr.startswith("quipu: ")


def failed(done, message):
    assert done.returncode == 1
    assert done.stderr == f"quipu: {message}\n"


# ---- list


def test_list_shows_the_letters_of_all_kinds_in_columns(ask, server):
    server.letters["outbox"] = [letter("outbox", 1), letter("outbox", 22, error="the bus is away", attempt_count=3)]
    server.letters["poison"] = [letter("poison", 3, event_type=None, aggregate_key=None, attempt_count=None)]
    done = ask("dlq", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "ID            EVENT TYPE          AGGREGATE KEY  ATTEMPTS  SINCE                 ERROR\n"
        "outbox/id-1   EntitlementGranted  user-1:gold    10        2026-01-08T07:10:00Z  HTTP 500\n"
        "outbox/id-22  EntitlementGranted  user-22:gold   3         2026-01-08T07:10:00Z  the bus is away\n"
        "poison/id-3   -                   -              -         2026-01-08T07:10:00Z  HTTP 500\n"
    )


def test_list_says_so_where_there_are_none(ask):
    done = ask("dlq", "list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "no dead letters\n", "")


def test_list_follows_the_pages_of_every_kind(ask, server):
    server.page = 2
    server.letters["outbox"] = [letter("outbox", number) for number in range(5)]
    server.letters["notification"] = [letter("notification", number) for number in range(3)]
    done = ask("dlq", "list")
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert names == [f"outbox/id-{n}" for n in range(5)] + [f"notification/id-{n}" for n in range(3)]
    assert len(server.requests) == 3 + 2 + 1 + 1


@pytest.mark.parametrize("limit", [2, 3, 4])
def test_list_shows_no_more_than_its_limit_and_says_that_there_are_more(ask, server, limit):
    server.letters["outbox"] = [letter("outbox", number) for number in range(3)]
    server.letters["poison"] = [letter("poison", number) for number in range(3)]
    done = ask("dlq", "list", "--limit", limit)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1 + limit
    assert done.stderr == f"quipu: there are more than {limit}; see them with --limit\n"
    assert server.requests[0][1] == f"/operator/dlq/outbox?limit={limit + 1}"


def test_list_shows_exactly_its_limit_without_a_word(ask, server):
    server.letters["outbox"] = [letter("outbox", number) for number in range(3)]
    done = ask("dlq", "list", "--limit=3")
    assert len(done.stdout.splitlines()) == 1 + 3
    assert done.stderr == ""


def test_list_shows_100_where_nothing_is_said(ask, server):
    server.letters["notification"] = [letter("notification", number) for number in range(150)]
    done = ask("dlq", "list")
    assert len(done.stdout.splitlines()) == 1 + 100
    assert "more than 100" in done.stderr
    assert len(ask("dlq", "list", "--limit", 1000).stdout.splitlines()) == 1 + 150


def test_a_kind_whose_role_does_not_run_is_passed_over(ask, server):
    del server.letters["outbox"]
    server.letters["poison"] = [letter("poison", 1)]
    done = ask("dlq", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].startswith("poison/id-1 ")


def test_a_server_without_such_roles_is_no_empty_list(ask, server):
    server.letters.clear()
    failed(ask("dlq", "list"), f"the quipu at {server.url} runs no role with dead letters")


def test_what_a_letter_says_cannot_steer_the_terminal(ask, server):
    evil = "a\x1b[31mb\nc\x9bd\u00e4"
    server.letters["outbox"] = [letter("outbox", 1, error=evil, event_type=evil), letter("outbox", 2)]
    done = ask("dlq", "list")
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("a\\x1b[31mb\\x0ac\\xc2\\x9bd\u00e4")
    assert lines[1].index("user-1:gold") == lines[2].index("user-2:gold")
    shown = ask("dlq", "show", "outbox/id-1").stdout
    assert json.loads(shown)["error"] == evil
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)


@pytest.mark.parametrize("link", [
    '<http://elsewhere.example/operator/dlq/outbox>; rel="next"', '<//elsewhere.example/>; rel="next"',
    '</operator/dlq/outbox?after=1>; rel="prev"', '</operator/dlq/outbox?after=1>', "nonsense", "</unfinished",
])
def test_a_link_that_is_not_the_next_page_of_this_server_is_not_followed(ask, server, link):
    page = {"letters": [letter("outbox", 1)]}
    server.override("/operator/dlq/outbox", lambda handler: handler.send(200, page, {"Link": link}))
    done = ask("dlq", "list")
    assert done.returncode == 0
    assert len(server.requests) == len(KINDS)


@pytest.mark.parametrize("link", [
    '</operator/dlq/poison?limit=1&after=1>; rel=next',
    '</elsewhere>; rel="prev", </operator/dlq/poison?limit=1&after=1>; title=a; REL="next"',
])
def test_a_link_is_read_however_it_is_written(ask, server, link):
    server.letters["poison"] = [letter("poison", 1), letter("poison", 2)]
    page = {"letters": [letter("outbox", 1)]}
    server.override("/operator/dlq/outbox", lambda handler: handler.send(200, page, {"Link": link}))
    ask("dlq", "list")
    assert server.requests[1][1] == "/operator/dlq/poison?limit=1&after=1"


def test_pages_without_letters_end_the_list(ask, server):
    link = {"Link": '</operator/dlq/outbox?after=1>; rel="next"'}
    server.override("/operator/dlq/outbox", lambda handler: handler.send(200, {"letters": []}, link))
    assert ask("dlq", "list").returncode == 0
    assert len(server.requests) == len(KINDS)


def test_a_failure_of_one_kind_fails_the_list(ask, server):
    server.letters["outbox"] = [letter("outbox", 1)]
    problem = {"status": 503, "code": "STORE_UNAVAILABLE", "detail": "the store cannot be reached"}
    server.override("/operator/dlq/poison", lambda handler: handler.send(503, problem))
    done = ask("dlq", "list")
    failed(done, "the store cannot be reached")
    assert done.stdout == ""


@pytest.mark.parametrize("limit", ["0", "-1", "many", "", "1000001"])
def test_a_wrong_limit_is_refused(ask, server, limit):
    assert refused(ask("dlq", "list", f"--limit={limit}"), "--limit must be a number from 1 to 1000000")
    assert server.requests == []


# ---- show


def test_show_prints_one_letter_as_json(ask, server):
    server.letters["notification"] = [letter("notification", 1)]
    done = ask("dlq", "show", "notification/id-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {**letter("notification", 1), "payload": "AAE=", "event": {"user_id": "ü"}}
    assert '\n  "event_type": "EntitlementGranted",\n' in done.stdout
    assert "ü" in done.stdout and done.stdout.endswith("}\n")


def test_show_of_an_unknown_letter_tells_what_the_server_says(ask):
    failed(ask("dlq", "show", "outbox/nobody"), 'no dead letter of the kind outbox has the id "nobody"')


def test_an_id_is_one_segment_of_the_path_whatever_is_in_it(ask, server):
    names = ["a/b", "..", "a b?c#d%20e", "ü", "-"]
    server.letters["outbox"] = [letter("outbox", 0, id=name) for name in names]
    for name in names:
        done = ask("dlq", "show", f"outbox/{name}")
        assert json.loads(done.stdout)["id"] == name
        assert server.requests[-1][1].count("/") == 4


def test_a_letter_of_a_role_that_does_not_run_is_told_as_such(ask, server):
    del server.letters["poison"]
    message = f"the quipu at {server.url} runs no role with dead letters of the kind poison"
    failed(ask("dlq", "show", "poison/1"), message)
    failed(ask("dlq", "replay", "poison/1"), f"poison/1: {message}")


@pytest.mark.parametrize("name", ["17", "outbox", "outbox/", "/17", "Outbox/17", "letters/17", "outboxes/17"])
def test_what_names_no_letter_is_refused(ask, server, name):
    for verb in ("show", "replay"):
        assert refused(ask("dlq", verb, name), f'"{name}" names no dead letter', "outbox/ID")
    assert refused(ask("dlq", "replay", "outbox/1", name), name)
    assert server.requests == []


# ---- replay and discard


def test_replay_tells_of_each_letter(ask, server):
    server.letters["outbox"] = [letter("outbox", 1)]
    server.letters["poison"] = [letter("poison", 2)]
    done = ask("dlq", "replay", "outbox/id-1", "poison/id-2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "outbox/id-1: replayed\npoison/id-2: replayed\n"
    assert [one[:3] for one in server.settled] == [("outbox", "id-1", "REPLAYED"), ("poison", "id-2", "REPLAYED")]


def test_one_that_fails_does_not_stop_the_rest(ask, server):
    server.letters["outbox"] = [letter("outbox", 1), letter("outbox", 2, event_type=None), letter("outbox", 3)]
    done = ask("dlq", "replay", "outbox/id-1", "outbox/id-2", "outbox/gone", "outbox/id-3")
    assert done.returncode == 1
    assert done.stdout == "outbox/id-1: replayed\noutbox/id-3: replayed\n"
    assert done.stderr == (
        "quipu: outbox/id-2: its event cannot be read, so it cannot be sent again\n"
        'quipu: outbox/gone: no dead letter of the kind outbox has the id "gone"\n'
    )


def test_discard_sends_the_reason(ask, server):
    server.letters["notification"] = [letter("notification", 1), letter("notification", 2)]
    why = 'the "user"\nis gone: ü'
    done = ask("dlq", "discard", "notification/id-1", "--why", why, "notification/id-2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "notification/id-1: discarded\nnotification/id-2: discarded\n"
    assert server.settled == [("notification", f"id-{n}", "DISCARDED", why) for n in (1, 2)]


@pytest.mark.parametrize("why", ["", " ", "\n", b"\xff"])
def test_discard_without_a_reason_is_refused(ask, server, why, binary):
    server.letters["outbox"] = [letter("outbox", 1)]
    assert refused(ask("dlq", "discard", "outbox/id-1"), "--why TEXT")
    done = subprocess.run(
        [str(binary), "dlq", "discard", "outbox/id-1", "--server", server.url, "--why", why],
        env=quipu.environment(), capture_output=True, check=False, timeout=HANG_S)
    assert done.returncode == 2 and b"--why must say why" in done.stderr
    assert server.settled == []


def test_every_change_has_a_key_of_its_own(ask, server):
    server.letters["outbox"] = [letter("outbox", 1), letter("outbox", 2)]
    ask("dlq", "replay", "outbox/id-1", "outbox/id-2")
    ask("outbox", "resend", "--since", "1h")
    keys = [headers["Idempotency-Key"] for method, _, headers, _ in server.requests if method == "POST"]
    assert len(set(keys)) == len(keys) == 3
    assert all(UUID.match(key) for key in keys)
    types = [headers.get("Content-Type") for _, _, headers, _ in server.requests]
    assert types == [None, None, "application/json"]


# ---- resend


@pytest.mark.parametrize("since, expected", [
    ("2026-01-08T07:10:00Z", "2026-01-08T07:10:00Z"),
    ("2026-01-08T08:10:00.25+01:00", "2026-01-08T07:10:00.250Z"),
])
def test_resend_since_a_time(ask, server, since, expected):
    server.resent = 1234
    done = ask("outbox", "resend", "--since", since)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1234 events will be sent again\n", "")
    assert server.since == expected


def test_resend_since_so_long_ago(ask, server):
    server.resent = 1
    done = ask("outbox", "resend", "--since=24h")
    assert (done.returncode, done.stdout) == (0, "1 event will be sent again\n")
    since = datetime.datetime.fromisoformat(server.since.replace("Z", "+00:00"))
    ago = datetime.datetime.now(datetime.timezone.utc) - since
    assert datetime.timedelta(0) <= ago - datetime.timedelta(hours=24) < datetime.timedelta(minutes=1)


@pytest.mark.parametrize("since", ["", "yesterday", "2026-01-08", "2026-02-30T00:00:00Z", "-1h", "0", "24"])
def test_a_wrong_time_is_refused(ask, server, since):
    assert refused(ask("outbox", "resend", f"--since={since}"), "--since must be a time such as", f'"{since}"')
    assert server.requests == []


def test_resend_without_an_outbox(ask, server):
    del server.letters["outbox"]
    failed(ask("outbox", "resend", "--since", "1h"), f"the quipu at {server.url} runs no role with an outbox")


# ---- how they are used


@pytest.mark.parametrize("arguments, words", [
    (["dlq"], ["list, show, replay or discard"]),
    (["dlq", "burn"], ["list, show, replay or discard"]),
    (["outbox"], ["resend"]),
    (["outbox", "list"], ["resend"]),
    (["dlq", "list", "outbox/1"], ["quipu dlq list [--limit N]"]),
    (["dlq", "list", "--why", "x"], ["quipu dlq list [--limit N]"]),
    (["dlq", "show"], ["quipu dlq show KIND/ID"]),
    (["dlq", "show", "outbox/1", "outbox/2"], ["quipu dlq show KIND/ID"]),
    (["dlq", "replay"], ["quipu dlq replay KIND/ID..."]),
    (["dlq", "replay", "outbox/1", "--limit", "1"], ["quipu dlq replay KIND/ID..."]),
    (["dlq", "discard", "--why", "x"], ["quipu dlq discard KIND/ID... --why TEXT"]),
    (["outbox", "resend"], ["quipu outbox resend [dialog-outbox] --since TIME"]),
    (["outbox", "resend", "--since", "1h", "now"], ["outbox (of entitlements) and dialog-outbox", "now"]),
    (["outbox", "resend", "--since", "1h", "outbox", "now"], ["quipu outbox resend [dialog-outbox] --since TIME"]),
    (["dlq", "list", "--since", "1h"], ["there is no option --since"]),
    (["dlq", "list", "--loud"], ["there is no option --loud"]),
    (["serve", "dlq"], ['"dlq" is not understood']),
])
def test_a_wrong_use_is_refused_with_the_right_one(ask, server, arguments, words):
    assert refused(ask(*arguments), *words)
    assert server.requests == []


def test_help_shows_the_commands(run):
    text = run("help").stdout
    for words in ["dlq list [--limit N]", "dlq show KIND/ID", "dlq replay KIND/ID...", "dlq discard", "outbox resend",
                  "--server URL"]:
        assert words in text


# ---- which server


def test_without_a_server_it_says_what_to_do(run, tmp_path):
    port = free_port()
    message = f"no quipu answers at http://127.0.0.1:{port}; start it, or name it with --server"
    failed(run("dlq", "list", "--listen", f"127.0.0.1:{port}"), message)
    failed(run("dlq", "show", "outbox/1", "--server", f"http://127.0.0.1:{port}/"), message)
    done = run("dlq", "replay", "outbox/1", "outbox/2", "--server", f"http://127.0.0.1:{port}")
    failed(done, f"outbox/1: {message}")
    failed(run("outbox", "resend", "--since", "1h", env={"QUIPU_LISTEN": f"127.0.0.1:{port}"}), message)
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


def test_credentials_are_sent_and_never_shown(run, server):
    url = server.url.replace("//", "//user:s3cr3t@")
    assert run("dlq", "list", env={"QUIPU_SERVER": url}).returncode == 0
    assert server.requests[0][2]["Authorization"] == "Basic " + base64.b64encode(b"user:s3cr3t").decode()
    port = free_port()
    done = run("dlq", "list", env={"QUIPU_SERVER": f"http://user:s3cr3t@127.0.0.1:{port}"})
    failed(done, f"no quipu answers at http://127.0.0.1:{port}; start it, or name it with --server")
    printed = run("serve", "--print-config", env={"QUIPU_SERVER": url}).stdout
    assert "s3cr3t" not in printed and "user:***@" in printed


def test_proxies_of_the_environment_are_not_used(ask):
    assert ask("dlq", "list", env={"http_proxy": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"}).returncode == 0


# ---- odd servers


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"letters":'])
@pytest.mark.parametrize("status", [200, 404, 502])
def test_what_is_no_quipu_is_told_as_such(ask, server, body, status):
    server.override("/operator/dlq/outbox", lambda handler: handler.send(status, body))
    failed(ask("dlq", "list"), f"what answers at {server.url} is no quipu (HTTP {status})")


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


def test_a_server_that_does_not_answer_is_given_up(ask, server):
    ended = threading.Event()
    server.override("/operator/dlq/outbox", lambda handler: ended.wait(30))
    try:
        failed(ask("dlq", "list"), f"the quipu at {server.url} has not answered within 10 s")
    finally:
        ended.set()


def test_an_answer_without_an_end_is_cut_off(ask, server):
    def pour(handler):
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b" " * 65536)

    server.override("/operator/dlq/outbox", pour)
    failed(ask("dlq", "list"), f"the answer of {server.url} is too long")


def test_a_real_server_without_these_routes_is_told_as_such(serve, run, sqlite_store):
    server = serve(sqlite_store)
    url = f"http://127.0.0.1:{server.port}"
    failed(run("dlq", "list", "--server", url), f"the quipu at {url} runs no role with dead letters")
    failed(run("outbox", "resend", "--since", "1h", "--server", url), f"the quipu at {url} runs no role with an outbox")
