"""Web pages of other origins: which answers a browser may show them, and which requests it may send for them."""

import pytest

from harness import quipu
from harness.browser import Browser, page_server
from harness.http import render
from harness.keys import KeyFile
from harness.problems import assert_problem
from harness.tokens import Issuer, bearer
from harness.unread import SqliteUnread, new_user

APP = "https://app.example.org"
OTHER = "https://app.example.org.evil.org"
EXPOSED = "RateLimit, Retry-After, Link, Idempotent-Replayed, X-Request-Id"


@pytest.fixture
def keys(binary, tmp_path):
    return KeyFile(binary, tmp_path / "api-keys")


def headers_of(answer):
    return {name: value for name, value in answer.headers if name.startswith("access-control-") or name == "vary"}


def preflight(server, path, method="GET", origin=APP, **headers):
    return server.ask("OPTIONS", path, headers={"Origin": origin, "Access-Control-Request-Method": method, **headers})


@pytest.fixture
def listed(serve, sqlite_store, keys):
    """A server with keys that lists two origins, and a caller's header."""
    key = keys.new("caller", "external")
    server = serve(sqlite_store, "--api-keys", keys.path, "--cors-origins", f"http://localhost:3000, {APP}")
    return server, key.headers


def test_an_answer_names_the_origin_that_asked_and_only_if_it_is_listed(listed):
    server, key = listed
    for origin in (APP, "http://localhost:3000"):
        answer = server.ask("GET", "/healthz", headers={"Origin": origin})
        assert headers_of(answer) == {
            "access-control-allow-origin": origin, "access-control-allow-credentials": "true",
            "access-control-expose-headers": EXPOSED, "vary": "Origin"}
    for headers in ({"Origin": OTHER}, {"Origin": "null"}, {"Origin": "http://app.example.org"}, {"Origin": ""}, {}):
        answer = server.ask("GET", "/healthz", headers=headers)
        assert answer.status == 200
        assert headers_of(answer) == {"vary": "Origin"}


def test_refusals_are_shown_to_listed_origins_too(listed):
    server, key = listed
    for method, path, headers, status in (
        ("POST", "/api/v1/counts/none/increase", key, 404), ("GET", "/nothing", {}, 404),
        ("POST", "/api/v1/counts/none/increase", {}, 401), ("PUT", "/healthz", {}, 405),
    ):
        answer = server.ask(method, path, headers={"Origin": APP, **headers})
        assert (answer.status, answer.header("access-control-allow-origin")) == (status, APP)


def test_a_preflight_needs_no_key_and_lists_the_methods_of_the_path(listed):
    server, _ = listed
    answer = preflight(server, "/api/v1/internal/counts/a", "DELETE", **{"Access-Control-Request-Headers": "authorization"})
    assert (answer.status, answer.body) == (204, b"")
    assert answer.header("access-control-allow-origin") == APP
    assert "DELETE" in answer.header("access-control-allow-methods").split(", ")
    allowed = answer.header("access-control-allow-headers").lower().split(", ")
    assert {"authorization", "content-type", "idempotency-key", "last-event-id"} <= set(allowed)
    assert answer.header("access-control-max-age") == "600"


def test_a_preflight_of_another_origin_or_for_an_unknown_path_is_refused(listed):
    server, _ = listed
    answer = preflight(server, "/api/v1/internal/counts/a", origin=OTHER)
    assert_problem(answer, 403, "FORBIDDEN_ORIGIN")
    assert headers_of(answer) == {"vary": "Origin"}
    assert_problem(preflight(server, "/nothing"), 404, "ROUTE_NOT_FOUND")
    answer = server.ask("OPTIONS", "/healthz", headers={"Origin": APP})
    assert_problem(answer, 405, "METHOD_NOT_ALLOWED")


def test_without_the_option_nothing_is_added(serve, sqlite_store):
    server = serve(sqlite_store)
    assert headers_of(server.ask("GET", "/healthz", headers={"Origin": "http://localhost:1"})) == {}
    answer = preflight(server, "/healthz", origin="http://localhost:1")
    assert_problem(answer, 405, "METHOD_NOT_ALLOWED")
    assert headers_of(answer) == {}


def test_a_star_allows_every_origin_without_credentials(serve, sqlite_store, keys):
    keys.new("caller")
    server = serve(sqlite_store, "--api-keys", keys.path, "--cors-origins", "*")
    answer = server.ask("GET", "/healthz", headers={"Origin": OTHER})
    assert headers_of(answer) == {"access-control-allow-origin": "*", "access-control-expose-headers": EXPOSED}
    answer = preflight(server, "/api/v1/counts/a/increase", "POST", OTHER)
    assert answer.status == 204
    assert answer.header("access-control-allow-credentials") is None


def test_without_keys_a_listed_page_may_read_and_change_nothing(serve, sqlite_store):
    """On loopback, every page in the user's browser reaches the server; the option does not relax that rule."""
    server = serve(sqlite_store, "--cors-origins", APP)
    answer = server.ask("GET", "/healthz", headers={"Origin": APP, "Sec-Fetch-Site": "cross-site"})
    assert (answer.status, answer.header("access-control-allow-origin")) == (200, APP)
    assert preflight(server, "/api/v1/internal/counts/a", "GET").status == 204
    for answer in (
        preflight(server, "/api/v1/counts/a/increase", "POST"),
        server.ask("POST", "/api/v1/internal/counts", {"itemId": "a"}, {"Origin": APP}),
        server.ask("POST", "/api/v1/internal/counts", {"itemId": "a"}, {"Sec-Fetch-Site": "cross-site"}),
    ):
        assert_problem(answer, 403, "FORBIDDEN_ORIGIN")
    with server.connect() as connection:
        connection.send(render("GET", "/healthz", headers={"Origin": APP}, host="evil.org"))
        assert_problem(connection.read_answer(), 403, "FORBIDDEN_HOST")
    assert server.ask("GET", "/api/v1/internal/counts/a").status == 404


@pytest.mark.parametrize("origins, reason", [
    ("*", "needs --api-keys"),
    ("app.example.org", '"app.example.org" is not an origin'),
    ("https://app.example.org/", "without a path"),
    ("https://App.example.org", "lower case"),
    (f"{APP}, null", '"null" is not an origin'),
    (f"{APP}, *", '"*" is not an origin'),
    ("https://", "is not an origin"),
])
def test_a_list_that_cannot_be_meant_is_refused_at_start(binary, tmp_path, origins, reason):
    done = quipu.run(binary, "serve", "--check-config", "--data", tmp_path, "--cors-origins", origins)
    assert done.returncode == 2
    assert reason in done.stderr


@pytest.mark.full
def test_a_page_of_another_origin_shows_a_live_badge(serve, keys, tmp_path):
    """In a real browser: the page follows a counter with fetch and a token, and a message it sends moves the badge."""
    browser = Browser(tmp_path)
    issuer = Issuer(tmp_path, "ES256")
    keys.new("operator", "admin")
    alice, bob = ({"name": name, "token": issuer.token(name)} for name in (new_user(), new_user()))
    with page_server() as listed_page, page_server() as other_page:
        server = serve(SqliteUnread(tmp_path), "--api-keys", keys.path, *issuer.arguments(), "--cors-origins", listed_page)
        users = {"server": f"http://127.0.0.1:{server.port}", "alice": alice, "bob": bob}
        sent = browser.run("badge.js", page=f"{listed_page}/badge.html", **users)
        assert (sent["status"], sent["requestId"]) == (200, "seen-by-the-page")
        refused = browser.run("refused.js", page=f"{other_page}/badge.html", **users)
        assert refused == ["TypeError", "TypeError"]
        answer = server.ask("GET", f"/counters/user/{bob['name']}/UnreadMessages", headers=bearer(bob["token"]))
        assert answer.json()["count"] == 1
