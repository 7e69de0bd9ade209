"""The console: what it serves to whom, and in a real browser what an operator sees and does with it."""

import contextlib
import datetime
import json
import pathlib
import re

import pytest

from harness.browser import Browser, player
from harness.console import dead_letter, grant, new_count, new_pot, send, set_limit
from harness.counts import action
from harness.http import EventStream
from harness.keys import KeyFile
from harness.problems import assert_problem
from harness.stores import open_to_read
from harness.unread import new_user
from harness.waiting import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
STREAM = "/operator/console/stream"
POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


# ---- what is served


def test_the_root_leads_to_the_console_and_the_console_to_nothing_outside(all_roles_server):
    answer = all_roles_server.ask("GET", "/")
    assert (answer.status, answer.header("location")) == (302, "/console")
    page = all_roles_server.ask("GET", "/console")
    assert page.status == 200
    assert page.header("content-type") == "text/html; charset=utf-8"
    assert page.header("content-security-policy") == POLICY
    files = re.findall(r'(?:src|href)="(/console/[^"]+)"', page.body.decode())
    assert len(files) >= 5
    assert not re.search(r"<script>|<style>|\son\w+=|style=", page.body.decode())


def test_every_file_is_there_with_its_type_and_all_of_them_are_small(all_roles_server):
    types = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml",
             "txt": "text/plain; charset=utf-8"}
    wanted, seen, size = {"app.js", "dygraph.min.js", "dygraph.min.css", "style.css", "quipu.svg", "licenses.txt"}, {}, 0
    while wanted:
        name = wanted.pop()
        answer = all_roles_server.ask("GET", f"/console/{name}")
        assert (answer.status, answer.header("content-type")) == (200, types[name.rsplit(".", 1)[1]]), name
        assert answer.header("content-security-policy") == POLICY
        seen[name] = True
        size += len(answer.body)
        if name.endswith(".js") and name != "dygraph.min.js":
            text = answer.body.decode()
            assert "innerHTML" not in text.replace("assigns innerHTML", "")
            wanted |= set(re.findall(r'from "\./([^"]+)"', text)) - seen.keys()
    assert size < 400_000
    assert_problem(all_roles_server.ask("GET", "/console/none.js"), 404, "ROUTE_NOT_FOUND")
    assert_problem(all_roles_server.ask("GET", "/console/..%2fmain.c"), 400, "BAD_REQUEST")


def test_the_red_line_says_what_the_alerts_say(all_roles_server):
    def words(text):
        return " ".join(text.replace('" +', " ").replace('"', " ").split())

    page = words(all_roles_server.ask("GET", "/console/app.js").body.decode())
    alerts = words((ROOT / "deploy/prometheus/alerts.yml").read_text())
    for sentence in ("Requests that need this store get 503 STORE_UNAVAILABLE and change nothing.",
                     "Without its bus, the gateway refuses sends", "Without its cache, Quipu serves everything from the store",
                     "Users see outdated numbers of unread messages; the messages themselves are sent and read.",
                     "Check its log, and systemctl status quipu or docker compose ps."):
        assert sentence in page and sentence in alerts


def test_off_means_that_nothing_of_it_is_there(serve, sqlite_store):
    server = serve(sqlite_store, "--console", "off")
    for path in ("/", "/console", "/console/app.js", "/operator/console/access", "/operator/console/stream"):
        assert_problem(server.ask("GET", path), 404, "ROUTE_NOT_FOUND")


# ---- what the caller may do


@pytest.fixture
def keys(binary, tmp_path):
    return KeyFile(binary, tmp_path / "api-keys")


def access(server, headers=None):
    return server.ask("GET", "/operator/console/access", headers=headers).json()


def test_a_key_is_told_exactly_the_routes_it_opens(serve, sqlite_store, keys):
    everything, some = keys.new("ops", "admin"), keys.new("clerk", "internal:counts")
    server = serve(sqlite_store, "--api-keys", keys.path)
    assert access(server, everything.headers)["caller"] == "ops"
    clerk = access(server, some.headers)
    assert clerk["caller"] == "clerk"
    assert "DELETE /api/v1/internal/counts/{itemId}" in clerk["routes"]
    assert "GET /operator/console/stream" not in clerk["routes"]
    for headers in (None, {"Authorization": "Bearer qk_nobody_00"}, {"Authorization": "Bearer not.a.token"}):
        told = access(server, headers)
        assert (told["checked"], told["caller"]) == (True, None)
        assert "GET /healthz" in told["routes"]
        assert not [route for route in told["routes"] if "/api/" in route]
    assert "quipu_access_refused_total{reason=\"scope\"} 0" in server.ask("GET", "/metrics", headers=everything.headers).body.decode()
    assert_problem(server.ask("GET", "/operator/console/stream"), 401, "UNAUTHENTICATED")
    assert_problem(server.ask("GET", "/operator/console/stream", headers=some.headers), 403, "FORBIDDEN")


# ---- snapshots


def test_a_snapshot_tells_what_was_done(serve, client, sqlite_store):
    server = serve(sqlite_store)
    counts = client(server)
    item = counts.new_item()
    for _ in range(5):
        assert counts.increase(item).status == 200
    assert server.ask("POST", action("nothing", "increase")).status == 404
    with EventStream(server.port, STREAM) as stream:
        _, snapshot = stream.next()
    assert snapshot["requests"]["counts"] == {"2xx": 6, "4xx": 1}
    assert snapshot["histograms"]["batch"]["sum"] >= 6
    assert snapshot["histograms"]["commit"]["count"] == snapshot["histograms"]["batch"]["count"]
    up = [sample for sample in snapshot["samples"] if sample[0] == "quipu_dependency_up"]
    assert ["quipu_dependency_up", 'dependency="counts-store",engine="sqlite"', 1] in up
    durations = {sample[0]: sample[2] for sample in snapshot["samples"] if sample[1] == 'dependency="counts-store"'}
    assert durations["quipu_dependency_duration_seconds_count"] >= snapshot["histograms"]["commit"]["count"]
    assert durations["quipu_dependency_duration_seconds_sum"] > 0


def test_ten_viewers_get_the_same_snapshot_every_second(serve, sqlite_store):
    server = serve(sqlite_store)
    with contextlib.ExitStack() as streams:
        viewers = [streams.enter_context(EventStream(server.port, STREAM)) for _ in range(10)]
        seen = [dict(viewer.next() for _ in range(3)) for viewer in viewers]
    together = set.intersection(*(set(snapshots) for snapshots in seen))
    assert together, "viewers that watch at the same time see the same snapshots"
    for version in together:
        assert all(snapshots[version] == seen[0][version] for snapshots in seen)


# ---- in a real browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    return Browser(tmp_path_factory.mktemp("console"))


@pytest.fixture
def tell(browser, all_roles_server):
    """Plays a story with the console of a server that has every role."""
    play = player(browser, "console.js")
    return lambda story, server=all_roles_server, **arguments: play(server, story, **arguments)


in_a_browser = pytest.mark.full  # Chromium takes a second for each story


@in_a_browser
def test_every_page_opens_and_can_be_read_by_everybody(tell):
    assert tell("pages") == []


@in_a_browser
def test_every_page_fits_a_phone(tell, serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "all")
    new_count(server, "views:" + "long-name-" * 6)
    for user in (1001, "customer-of-the-north-4711"):
        set_limit(server, user)
    grant(server, "u_123", reason="compensation for the outage of last week")
    new_pot(server, "holiday")
    dead_letter(sqlite_store, "0b9f5cb8-3b27-4a0e-9d5b-2f3c0c1a7a10", b"{}", "https://hooks.example.com answered with 410 Gone")
    assert tell("phone", server=server, user="u_123") == []


@in_a_browser
@pytest.mark.parametrize(("title", "table", "column"), [("Overview", "Engines", "Engine"), ("Events", "Outboxes", "Outbox")])
def test_a_table_keeps_its_order_and_the_focus_while_snapshots_arrive(tell, all_roles_server, title, table, column):
    grant(all_roles_server, new_user())
    send(all_roles_server, new_user(), new_user())
    wait_until(lambda: all_roles_server.metrics()['quipu_outbox_published_total{outbox="dialogs"}'] > 0, "it is published")
    seen = tell("sorting", title=title, table=table, column=column)
    assert (seen["order"], seen["focus"]) == ("descending", column)
    assert len(seen["before"]) > 1 and seen["after"] == seen["before"]


@in_a_browser
def test_what_was_sent_is_counted_although_nothing_waits(tell, serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "all")
    grant(server, "u_123")
    set_limit(server, 1001)
    assert server.ask("POST", "/api/send", {"userId": 1001, "message": "hello"}).status == 200
    wait_until(lambda: server.metric("quipu_notifications_sent_total") == server.metric("quipu_sender_sent_total") == 1, "sent")
    assert tell("deliveries", server=server, wanted=["notifications", "messages"]) == [
        ["notifications", "nothing waits", "0", "0", "1", "0", "0"],
        ["messages", "nothing waits", "0", "0", "1", "0", "0"],
    ]


@in_a_browser
def test_dead_letters_are_opened_replayed_and_discarded(tell, serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "all")
    grant(server, "u_123", "season-2")
    with contextlib.closing(open_to_read(sqlite_store.data / "entitlements.db")) as connection:
        ((protobuf,),) = connection.execute("SELECT payload FROM outbox_events")
    envelope = {"messageId": "m", "messageType": ["urn:message:Entitlements:Granted"], "message": {"unit": "film"}}
    for name, payload in (("json", b'{"unit": "film"}'), ("masstransit", json.dumps(envelope).encode()),
                          ("protobuf", protobuf), ("text", b"no event")):
        dead_letter(sqlite_store, name, payload, kind="poison")
    seen = tell("letter", server=server, kind="poison", opened=["json", "masstransit", "protobuf", "text"],
                replayed="protobuf", discarded="text", why="it's no event")
    assert seen["first"] == "poison (4)", "Cancel and Escape change nothing"
    assert "payload (JSON)" in seen["opened"]["json"] and '"unit": "film"' in seen["opened"]["json"]
    assert "payload (MassTransit)" in seen["opened"]["masstransit"]
    assert "season-2" in seen["opened"]["protobuf"] and "payload (base64)" in seen["opened"]["protobuf"]
    assert "payload (text)" in seen["opened"]["text"] and "no event" in seen["opened"]["text"]
    assert """-d '{"why":"it'\\''s no event"}'""" in seen["line"]
    assert [cells[0] for cells in seen["done"]] == ["discard", "replay"]
    assert "it's no event" in seen["done"][0][2]
    assert (seen["heading"], seen["all"]) == ("poison (2)", 1)
    assert seen["empty"] == "None: sms, outbox, notification, dialog-outbox"


@in_a_browser
def test_the_overview_is_alive(tell, all_roles_server):
    new_count(all_roles_server, f"seen-{new_user()}")
    seen = tell("overview")
    (store,) = (cells for cells in seen["engines"] if cells[0] == "counts-store")
    assert store[1:3] == ["sqlite", "up"]
    assert re.fullmatch(r"[\d.]+ (µs|ms|s)", store[3]), "how long a commit takes"
    assert re.fullmatch(r"\d+\.\d+\.\d+", seen["version"])


@in_a_browser
def test_a_count_is_created_changed_and_deleted(tell, all_roles_server):
    item, big = f"it's-{new_user()}", str(2**63 - 1)
    lines = tell("counts", item=item, big=big)
    assert "'Idempotency-Key: " in lines["increase"]
    assert f"-d '{{\"itemId\":\"{item}\",\"initialValue\":0}}'".replace("it's", "it'\\''s") in lines["create"]
    assert all_roles_server.ask("GET", f"/api/v1/internal/counts/{item}").json()["currentValue"] == 0
    assert tell("deleteCount", item=item)
    assert all_roles_server.ask("GET", f"/api/v1/internal/counts/{item}").status == 404


@in_a_browser
def test_a_limit_is_set_and_deleted(tell, all_roles_server):
    user = new_user()
    seen = tell("limits", user=user)
    assert "0 of 7" in seen["shown"]
    left = datetime.datetime.fromisoformat(seen["resets"]) - datetime.datetime.now(datetime.timezone.utc)
    assert datetime.timedelta(0) < left <= datetime.timedelta(minutes=1), "the window of a minute has not ended"
    assert all_roles_server.ask("GET", f"/api/config/{user}").status == 404


@in_a_browser
def test_an_entitlement_is_granted_and_revoked(tell, all_roles_server):
    user = new_user()
    assert tell("entitlements", user=user)
    listed = all_roles_server.ask("GET", f"/v1/users/{user}/entitlements").json()["entitlements"]
    assert [(row["stock_keeping_unit"], row["status"], row["version"]) for row in listed] == [("item1", "REVOKED", 2)]


@in_a_browser
def test_coins_are_added_and_drawn(tell):
    assert tell("pots", name=f"pot{new_user()[-8:]}")


@in_a_browser
def test_a_message_moves_the_badge_of_the_other(tell):
    assert tell("dialogs", one=new_user(), other=new_user())


@in_a_browser
def test_every_service_is_verified(tell):
    seen = tell("verify")
    assert set(seen) == {f"Check {service}" for service in (
        "counts", "dialogs", "entitlements", "limits", "notifications", "pots", "unread")}
    assert all("0 differences" in said for said in seen.values()), seen
