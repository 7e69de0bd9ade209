"""The console while things are broken: engines that go and come back, a thousand dead letters."""

import contextlib
import http

import pytest

from engines import shared
from harness.available import available
from harness.browser import Browser, player
from harness.receivers import Handler, Receiver, running
from harness.stores import PostgresStore, SqliteStore

pytestmark = pytest.mark.full  # Chromium takes seconds for each story
MANY = 1000


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    return Browser(tmp_path_factory.mktemp("console"))


@pytest.fixture
def tell(browser):
    return player(browser, "console.js")


@pytest.fixture
def own_postgres():
    with available(shared.own_postgres) as server:
        yield server


@pytest.fixture
def store(own_postgres, tmp_path):
    return PostgresStore(own_postgres.create_database(), tmp_path)


@contextlib.contextmanager
def pulled_by(levers):
    """Returns a URL where a story pulls the levers while its page is open: POST /stop, POST /start."""
    class Lever(Handler):
        def do_POST(self):
            levers[self.path]()
            self.send_response(http.HTTPStatus.NO_CONTENT)
            self.end_headers()

    with running(Receiver(Lever)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}"


def test_whoever_watches_sees_an_engine_go_and_come_back(serve, tell, store, own_postgres):
    levers = {"/stop": lambda: own_postgres.stop("immediate"), "/start": own_postgres.start}
    with pulled_by(levers) as url:
        seen = tell(serve(store), "outage", levers=url, mayFail=["503"])
    assert "counts-store (postgres) cannot be used." in seen["alarm"]
    assert "503 STORE_UNAVAILABLE" in seen["alarm"], "it says what users notice"
    assert "Bring the database back" in seen["alarm"], "it says what to do"
    assert seen["down"] == ["counts-store", "postgres", "down", "–"]
    assert seen["up"][:3] == ["counts-store", "postgres", "up"]
    assert seen["violations"] == []
    assert seen["redrawn"] == 0, "a screen reader reads the alarm once"


def test_whoever_watches_sees_the_server_go_and_come_back(serve, tell, tmp_path):
    store = SqliteStore(tmp_path / "data")
    first = serve(store)
    address = f"127.0.0.1:{first.port}"
    levers = {"/stop": first.stop, "/start": lambda: serve(store, "--listen", address)}
    with pulled_by(levers) as url:
        seen = tell(first, "absence", levers=url, mayFail=["ERR_"])
    assert seen["alarm"].startswith("The server does not answer. The process serves nothing")
    assert "Check its log" in seen["alarm"], "it says what to do"


def test_a_thousand_dead_letters_are_paged_through_and_replayed(serve, tell, store):
    server = serve(store, "--roles", "entitlements,notifications")
    store.database.query(
        "INSERT INTO outbox_events (event_id, event_type, aggregate_key, trace_id, payload, status, created_at)"
        " SELECT gen_random_uuid(), 'EntitlementGranted', 'u:' || n, '', 'no event', 'FAILED', quipu_now()"
        f" FROM generate_series(1, {MANY}) n RETURNING 1")
    seen = tell(server, "letters", kind="outbox")
    assert seen["heading"] == "outbox (1,000)"
    assert seen["rows"] == [100, 200]
    assert seen["progress"] == "Done: 1,000 letters replayed."
    ((replayed,),) = store.database.query("SELECT count(*) FROM operator_actions WHERE action = 'replay'")
    assert replayed == MANY
    assert seen["done"][2] == "replay" and seen["done"][3].startswith("outbox_events/")
