"""API keys: which opens which route, how they are replaced, and that they are seen nowhere."""

import collections
import re

import pytest

from harness.counts import COLLECTION, action, new_id, new_key, record
from harness.http import Connection, render
from harness.keys import KEPT, Key, KeyFile
from harness.quipu import run
from harness.routes import list_routes
from harness.stores import SqliteStore
from harness.unread import Follower
from harness.waiting import wait_until
from harness.workers import Workers

SCOPES = ["external", "internal", "admin"]
NEEDED = {"external": "external", "internal": "internal", "admin": "admin", "user": "internal", "owner": "internal"}
ROLES = ["counts", "gateway", "sender", "entitlements", "notifications", "pots", "dialogs", "counters"]


def bearer(text):
    return {"Authorization": f"Bearer {text}"}


class Guarded:
    """A server of every role with keys of all kinds."""

    def __init__(self, binary, directory, serve):
        self.file = KeyFile(binary, directory / "keys")
        self.keys = {scope: self.file.new(scope, scope) for scope in SCOPES}
        for role in ROLES:
            for scope in SCOPES:
                self.keys[scope, role] = self.file.new(f"{scope}.{role}", f"{scope}:{role}")
        self.server = serve(SqliteStore(directory / "data"), "--roles", "all", "--api-keys", self.file.path,
                            "--log-level", "debug")

    def ask(self, method, path, key=None, body=None, headers=None):
        return self.server.ask(method, path, body, {**(self.keys[key].headers if key else {}), **(headers or {})})

    def refusals(self):
        samples = self.server.metrics(self.keys["admin"].headers)
        return {name.split('"')[1]: value for name, value in samples.items() if name.startswith("quipu_access_refused_total")}


@pytest.fixture(scope="module")
def module_guarded(binary, tmp_path_factory, module_serve):
    return Guarded(binary, tmp_path_factory.mktemp("guarded"), module_serve)


@pytest.fixture
def guarded(module_guarded):
    yield module_guarded
    module_guarded.server.check_alive()


@pytest.fixture
def key_file(binary, tmp_path):
    return KeyFile(binary, tmp_path / "keys")


@pytest.fixture
def serve_counts(serve, sqlite_store, key_file):
    """A server of counts with the keys of `key_file`."""
    return lambda *arguments, **more: serve(sqlite_store, "--api-keys", key_file.path, *arguments, **more)


# ---- every route


def head_of(server, method, path, headers):
    """The answer without its body, which a stream never ends."""
    with Connection(server.port) as connection:
        connection.send(render(method, path, headers=headers))
        return connection.read_answer("HEAD")


def other_role(role):
    return next(other for other in ROLES if other != role)


def expected(route, shown):
    """401, 403, or None: let in. `shown` is the name of a key, or None."""
    if route.access == "public":
        return None
    if shown is None:
        return 401
    scope, role = shown if isinstance(shown, tuple) else (shown, None)
    fits = SCOPES.index(scope) >= SCOPES.index(NEEDED[route.access]) and role in (None, route.role)
    return None if fits else 403


def shown_to(route):
    """No key; a key of each scope; the largest of another role; of its own role the one it needs, and the next below."""
    own = []
    if route.role != "-" and route.access != "public":
        enough = SCOPES.index(NEEDED[route.access])
        own = [(scope, route.role) for scope in SCOPES[max(enough - 1, 0) : enough + 1]]
    return [None, *SCOPES, ("admin", other_role(route.role)), *own]


def test_every_route_is_open_to_those_it_is_meant_for_and_to_nobody_else(guarded, binary, openapi, tmp_path):
    seen = collections.Counter()
    for route in list_routes(binary, cwd=tmp_path):
        path = re.sub(r"\{\w+\}", "nobody", route.path)
        for shown in shown_to(route):
            headers = guarded.keys[shown].headers if shown else {}
            if path.endswith("/stream"):
                answer = head_of(guarded.server, route.method, path, headers)
            else:
                answer = guarded.server.ask(route.method, path, headers=headers)
                openapi.check_answer(route.method, path, answer)
            refused = answer.status if answer.status in (401, 403) else None
            assert refused == expected(route, shown), (route, shown, answer)
            assert (answer.header("www-authenticate") == "Bearer") == (refused == 401), (route, answer)
            seen[refused] += 1
    assert all(seen[status] > 30 for status in (None, 401, 403)), seen


def test_a_route_that_nobody_serves_is_404_to_everybody(guarded):
    assert guarded.ask("GET", "/nowhere").status == 404
    assert guarded.ask("GET", "/nowhere", "admin").status == 404
    assert guarded.ask("PATCH", COLLECTION).status == 405


@pytest.mark.parametrize("shown", [
    "", "Bearer", "Bearer ", "Bearer qk_", "Bearer qk_external", "Bearer qk_external_", "Bearer qk_nobody_secret",
    "Bearer qk_external_secret", "Basic cWs6cWs=", "Bearer \u00fc",
])
def test_what_is_no_key_is_401_with_a_challenge(guarded, openapi, shown):
    answer = guarded.ask("POST", action("x", "increase"), headers={"Authorization": shown.encode().decode("latin-1")})
    assert (answer.status, answer.code, answer.header("www-authenticate")) == (401, "UNAUTHENTICATED", "Bearer")
    openapi.check_problem(answer)


def test_prefixes_and_variants_of_a_good_key_are_401(guarded):
    shown = guarded.keys["external"].shown
    for wrong in (shown[:-1], shown + "0", shown.upper(), shown[:-1] + ("0" if shown[-1] != "0" else "1"),
                  shown.replace("qk_external_", "qk_internal_"), f"{shown} {shown}", f"{shown},{shown}"):
        assert guarded.ask("POST", action("x", "increase"), headers=bearer(wrong)).status == 401, wrong


def test_the_scheme_is_bearer_in_any_case(guarded):
    shown = guarded.keys["external"].shown
    for text in (f"Bearer {shown}", f"bearer {shown}", f"BEARER   {shown}"):
        assert guarded.ask("POST", action("nobody", "increase"), headers={"Authorization": text}).status == 404


def test_two_authorization_headers_are_400(guarded):
    one = ("Authorization", f"Bearer {guarded.keys['admin'].shown}")
    answer = guarded.server.ask("GET", record("x"), headers=[one, one])
    assert (answer.status, answer.code) == (400, "BAD_REQUEST")


def test_head_is_guarded_as_get_is(guarded):
    refused = guarded.ask("HEAD", "/metrics")
    assert (refused.status, refused.body, refused.header("www-authenticate")) == (401, b"", "Bearer")
    assert guarded.ask("HEAD", "/metrics", "external").status == 403
    assert guarded.ask("HEAD", "/metrics", "internal").status == 200
    assert guarded.ask("HEAD", "/healthz").status == 200


def test_below_twirp_refusals_are_those_of_twirp(guarded, openapi):
    path = "/twirp/pyggpot.pot.Pot/CreatePot"
    for key, status, code, reason in ((None, 401, "unauthenticated", "UNAUTHENTICATED"),
                                      (("admin", "counts"), 403, "permission_denied", "FORBIDDEN")):
        answer = guarded.ask("POST", path, key, {"pot_name": "refused", "max_coins": 50})
        assert (answer.status, answer.json()["code"], answer.json()["meta"]["reason"]) == (status, code, reason)
        assert answer.header("content-type") == "application/json"
        openapi.check_answer("POST", path, answer)
    assert guarded.ask("POST", path, "external", {"pot_name": "refused", "max_coins": 50}).status == 200


# ---- one connection


def test_requests_on_one_connection_are_each_judged_by_their_own_key(guarded):
    item, key = new_id(), guarded.keys["admin"]
    assert guarded.ask("POST", COLLECTION, "admin", {"itemId": item}).status == 201
    with guarded.server.connect() as connection:
        for headers in ({}, key.headers, bearer("qk_admin_wrong"), key.headers, {}):
            connection.send(render("POST", action(item, "increase"), {"amount": 1}, headers))
        assert [connection.read_answer().status for _ in range(5)] == [401, 200, 401, 200, 401]
    assert guarded.ask("GET", record(item), "admin").json()["currentValue"] == 2


def test_a_refused_change_is_not_made_and_does_not_use_up_its_idempotency_key(guarded):
    item, once = new_id(), {"Idempotency-Key": new_key()}
    assert guarded.ask("POST", COLLECTION, "external", {"itemId": item}).status == 403
    assert guarded.ask("GET", record(item), "internal").status == 404
    assert guarded.ask("POST", COLLECTION, "internal", {"itemId": item}).status == 201
    assert guarded.ask("POST", action(item, "increase"), None, {"amount": 5}, once).status == 401
    assert guarded.ask("POST", action(item, "increase"), "external", {"amount": 5}, once).json()["value"] == 5


def test_who_waits_for_100_continue_is_refused_before_the_body(guarded):
    with guarded.server.connect() as connection:
        connection.send(f"POST {action('x', 'increase')} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                        "Content-Type: application/json\r\nContent-Length: 12\r\n\r\n".encode())
        assert connection.read_answer().status == 401


# ---- replacing keys


def test_a_secret_is_replaced_while_both_work_and_then_the_old_one_does_not(key_file, serve_counts):
    old = key_file.new("shop", "internal")
    server = serve_counts()

    def statuses(*keys):
        return [server.ask("POST", action("nobody", "increase"), headers=key.headers).status for key in keys]

    new = key_file.new("shop", "internal")
    assert statuses(old, new) == [404, 401]
    key_file.reload(server)
    assert statuses(old, new) == [404, 404]
    assert server.metrics(new.headers)["quipu_access_keys"] == 2
    key_file.drop(old)
    key_file.reload(server)
    assert statuses(old, new) == [401, 404]


def test_a_key_that_is_removed_loses_its_open_streams_and_the_same_file_ends_none(key_file, serve, sqlite_store):
    gone, kept = key_file.new("gone", "internal"), key_file.new("kept", "internal")
    server = serve(sqlite_store, "--roles", "dialogs,counters", "--api-keys", str(key_file.path))
    target = "/counters/user/bob/stream"
    with Follower(server.port, target, gone.headers) as stream:
        assert stream.next()[1]["count"] == 0
        key_file.reload(server)
        sent = server.ask("POST", "/dialogs/send", {"receiverId": "bob", "text": "Hello!"},
                          headers={**kept.headers, "X-User-Id": "alice"})
        assert sent.status == 200
        stream.until(1)
        key_file.drop(gone)
        key_file.reload(server)
        assert stream.next() is None
    assert server.ask("GET", "/counters/user/bob", headers=gone.headers).status == 401
    with Follower(server.port, target, kept.headers) as stream:
        assert stream.next()[1]["count"] == 1


def test_scopes_change_on_sighup(key_file, serve_counts):
    key = key_file.new("shop", "external")
    server = serve_counts()
    assert server.ask("GET", record("nobody"), headers=key.headers).status == 403
    key.line = key.line.replace("external", "internal")
    key_file.new("other")
    key_file.reload(server)
    assert server.ask("GET", record("nobody"), headers=key.headers).status == 404


@pytest.mark.parametrize("broken, words", [
    ("shop no-hash external\n", "line 1: the id must be followed by the SHA-256"), ("# nothing\n", "the file has no keys"), (None, "cannot be read"),
])
def test_a_broken_file_on_sighup_is_told_and_the_old_keys_stay(key_file, serve_counts, broken, words):
    key = key_file.new("shop", "internal")
    server = serve_counts()
    assert server.metrics(key.headers)["quipu_last_reload_successful"] == 1
    if broken is None:
        key_file.path.unlink()
    else:
        key_file.path.write_text(broken)
    key_file.reload(server, told=KEPT)
    (line,) = [line for line in server.log_text().splitlines() if KEPT in line]
    assert words in line and str(key_file.path) in line
    server.wait_reloaded(False, key.headers)
    assert server.ask("POST", action("nobody", "increase"), headers=key.headers).status == 404
    key_file.new("other")
    key_file.reload(server)
    server.wait_reloaded(True, key.headers)


@pytest.mark.parametrize("broken, words", [("shop no-hash external\n", "line 1"), ("", "no key"), (None, "cannot be read")])
def test_a_broken_file_ends_the_start_with_a_sentence(binary, tmp_path, broken, words):
    if broken is not None:
        (tmp_path / "keys").write_text(broken)
    done = run(binary, "serve", "--listen", "127.0.0.1:0", "--api-keys", tmp_path / "keys", cwd=tmp_path)
    assert done.returncode != 0 and done.stdout == ""
    assert done.stderr.startswith("quipu: ") and words in done.stderr


class Clients(Workers):
    """Threads that increase a count without pause, each under a key that stays."""

    def __init__(self, server, path, key, threads=3):
        super().__init__(threads)
        self.statuses = collections.Counter()
        self._port = server.port
        self._request = render("POST", path, {"amount": 1}, key.headers)

    def _work(self, number):
        with Connection(self._port) as connection:
            while not self._stop.is_set():
                connection.send(self._request)
                self.statuses[connection.read_answer().status] += 1

    def wait_for(self, more):
        goal = self.statuses.total() + more
        wait_until(lambda: self.statuses.total() >= goal, f"{more} more answers")


def test_requests_go_on_while_keys_are_read_again(key_file, serve_counts):
    stays = key_file.new("stays", "internal")
    server, item = serve_counts(), new_id()
    assert server.ask("POST", COLLECTION, {"itemId": item}, stays.headers).status == 201
    with Clients(server, action(item, "increase"), stays) as clients:
        for _ in range(15):
            comes = key_file.new("comes")
            key_file.reload(server)
            clients.wait_for(20)
            key_file.drop(comes)
    assert clients.statuses.keys() == {200} and clients.statuses[200] > 300
    assert server.ask("GET", record(item), headers=stays.headers).json()["currentValue"] == clients.statuses[200]


def test_sighup_without_keys_ends_nothing(serve, sqlite_store, key_file):
    server = serve(sqlite_store)
    key_file.reload(server, told="there is nothing to read again")
    assert server.ask("GET", "/healthz").status == 200
    assert server.metrics()["quipu_last_reload_successful"] == 1


# ---- Idempotency-Key


def test_the_same_idempotency_key_of_two_callers_is_two_effects(guarded):
    item, once = new_id(), {"Idempotency-Key": new_key()}
    guarded.ask("POST", COLLECTION, "admin", {"itemId": item})
    for key, value, replayed in (("external", 1, None), ("internal", 2, None), ("external", 1, "true"), ("internal", 2, "true")):
        answer = guarded.ask("POST", action(item, "increase"), key, {"amount": 1}, once)
        assert (answer.json()["value"], answer.header("idempotent-replayed")) == (value, replayed)
    assert guarded.ask("GET", record(item), "admin").json()["currentValue"] == 2


def test_a_caller_with_a_new_secret_is_the_same_caller(key_file, serve_counts):
    old = key_file.new("shop", "internal")
    server, item = serve_counts(), new_id()
    once = {"Idempotency-Key": new_key()}
    server.ask("POST", COLLECTION, {"itemId": item}, old.headers)
    first = server.ask("POST", action(item, "increase"), {"amount": 1}, {**old.headers, **once})
    new = key_file.new("shop", "internal")
    key_file.drop(old)
    key_file.reload(server)
    again = server.ask("POST", action(item, "increase"), {"amount": 1}, {**new.headers, **once})
    assert (again.status, again.body, again.header("idempotent-replayed")) == (200, first.body, "true")


# ---- addresses and browsers


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "[::]:8080"])
def test_a_public_address_may_be_served_with_keys_and_not_without(binary, tmp_path, key_file, address):
    key_file.new("shop")
    refused = run(binary, "serve", "--check-config", "--listen", address, cwd=tmp_path)
    assert refused.returncode == 2 and "--api-keys" in refused.stderr
    done = run(binary, "serve", "--check-config", "--listen", address, "--api-keys", key_file.path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_with_keys_any_host_and_origin_may_ask(guarded):
    """A page cannot make a browser send a key that the page does not have."""
    headers = {**guarded.keys["external"].headers, "Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"}
    with guarded.server.connect() as connection:
        connection.send(render("POST", action("nobody", "increase"), {}, headers, host="counts.example"))
        assert connection.read_answer().code == "COUNT_NOT_FOUND"
        connection.send(render("POST", action("nobody", "increase"), {}, {"Origin": "https://shop.example"}, host="counts.example"))
        assert connection.read_answer().code == "UNAUTHENTICATED"


# ---- being seen


def test_refusals_are_counted_by_reason(guarded):
    before = guarded.refusals()
    assert before.keys() == {"nothing_shown", "key", "token", "scope"}
    guarded.ask("GET", record("x"))
    guarded.ask("GET", record("x"), headers=bearer("qk_admin_wrong"))
    guarded.ask("GET", record("x"), headers=bearer("qk_nobody_wrong"))
    guarded.ask("GET", record("x"), "external")
    guarded.ask("GET", record("x"), "internal")
    after = guarded.refusals()
    assert {reason: after[reason] - before[reason] for reason in after} == {
        "nothing_shown": 1, "key": 2, "token": 0, "scope": 1}


def test_a_key_is_seen_nowhere(binary, tmp_path, key_file, serve_counts):
    key = key_file.new("shop", "admin")
    wrong = Key(binary, "shop")
    server = serve_counts("--log-level", "debug")
    for headers in (key.headers, wrong.headers, bearer(key.shown[:-1]), {"Authorization": f"Basic {key.secret}"}):
        server.ask("POST", action("nobody", "increase"), b"{", {**headers, "Content-Type": "application/json"})
        server.ask("GET", f"{record('x')}?access_token={key.shown}", headers=headers)
        server.ask("GET", "/%zz", headers=headers)
    key_file.reload(server)
    key_file.path.write_text(f"shop {key.secret}0 external\n")
    key_file.reload(server, told=KEPT)
    pages = [server.ask("GET", path, headers=key.headers).body.decode() for path in ("/metrics", "/openapi.json", "/readyz")]
    server.stop()
    printed = run(binary, "serve", "--print-config", "--api-keys", key_file.path, cwd=tmp_path, env={"QUIPU_API_KEY": key.shown})
    assert str(key_file.path) in printed.stdout
    pages += [server.log_text(), server.output.read_text(), printed.stdout]
    for page in pages:
        assert page, "there is something to look at"
        for secret in (key.secret, wrong.secret, key.line.split()[1]):
            assert secret not in page


# ---- quipu keys new


def test_a_new_key_is_a_line_for_the_file_and_a_secret_shown_once(binary):
    done = run(binary, "keys", "new", "shop")
    name, digest, scopes = done.stdout.removesuffix("\n").split(" ")
    assert (name, scopes) == ("shop", "external") and re.fullmatch("[0-9a-f]{64}", digest)
    sentence, key = done.stderr.splitlines()
    assert "shown only now" in sentence and re.fullmatch("qk_shop_[0-9a-f]{64}", key)
    assert key.removeprefix("qk_shop_") not in done.stdout


@pytest.mark.parametrize("arguments, words", [
    ([], "usage: quipu keys new ID [--scopes LIST]"), (["new"], "usage"), (["new", "a", "b"], "usage"),
    (["old", "a"], "usage"), (["new", "A"], "an id has"), (["new", "a_b"], "an id has"), (["new", "a", "--scopes", "root"], "scopes are"),
    (["new", "a", "--scopes", "external:all"], "scopes are"), (["new", "a", "--scopes"], "needs a value"),
])
def test_what_no_file_would_take_is_refused(binary, arguments, words):
    done = run(binary, "keys", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("quipu: ") and words in done.stderr and "qk_" not in done.stderr


# ---- the program's own client


@pytest.fixture
def command(binary, tmp_path, guarded):
    """Runs a command against the guarded server."""

    def ask(*arguments, **more):
        return run(binary, *arguments, "--server", f"http://127.0.0.1:{guarded.server.port}", cwd=tmp_path, **more)

    return ask


@pytest.mark.parametrize("words", [["dlq", "list"], ["outbox", "resend", "--since", "1h"], ["verify", "unread"]], ids=" ".join)
def test_the_operators_commands_show_the_key_of_a_file_or_of_the_environment(command, guarded, tmp_path, words):
    admin = guarded.keys["admin"].shown
    for content in (admin, f"{admin}\n", f"{admin}\r\n"):
        (tmp_path / "key").write_bytes(content.encode())
        assert command(*words, "--api-key-file", tmp_path / "key").returncode == 0
    assert command(*words, env={"QUIPU_API_KEY": admin}).returncode == 0
    assert command(*words, env={"QUIPU_API_KEY_FILE": str(tmp_path / "key"), "QUIPU_API_KEY": "qk_a_b"}).returncode == 0


@pytest.mark.parametrize("words", [["dlq", "list"], ["outbox", "resend", "--since", "1h"], ["verify", "unread"]], ids=" ".join)
def test_the_operators_commands_say_which_key_they_need(command, guarded, words):
    for key, sentence in ((None, "requires an API key (HTTP 401); name a file that contains it with --api-key-file"),
                          ("qk_admin_wrong", "does not know this API key (HTTP 401)"),
                          (guarded.keys["internal"].shown, "needs the scope admin (HTTP 403)")):
        done = command(*words, env={"QUIPU_API_KEY": key} if key else None)
        assert (done.returncode, done.stdout) == (1, "")
        assert sentence in done.stderr and (not key or key not in done.stderr)


def test_health_asks_a_public_route(command, guarded):
    assert command("health").stdout == "ok\n"
    assert command("health", env={"QUIPU_API_KEY": guarded.keys["external"].shown}).returncode == 0


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"a\nb", b"\xff", b"qk_a_b\x00", b"x" * 512])
def test_a_file_without_a_key_is_refused_before_anything_is_sent(command, tmp_path, content):
    (tmp_path / "key").write_bytes(content)
    done = command("dlq", "list", "--api-key-file", tmp_path / "key")
    assert done.returncode == 2 and "there is no API key in" in done.stderr


def test_a_file_that_is_not_there_is_named(command):
    done = command("health", "--api-key-file", "/nonexistent/key")
    assert done.returncode == 2 and "--api-key-file /nonexistent/key cannot be read" in done.stderr
