"""What the log tells: what started, which engine comes and goes, what was given up, and every answer if one asks for it."""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess

import pytest

from harness import quipu
from harness.entitlements import new_user
from harness.http import render
from harness.kafka import Kafka
from harness.unread import SqliteUnread
from harness.verify import damage
from harness.waiting import wait_until
from harness.webhook import Webhook

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Folder:
    """A data folder, for servers of any role."""

    name = "sqlite"

    def __init__(self, path):
        self.data = pathlib.Path(path) / "data"

    def arguments(self):
        return ["--data", str(self.data)]


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def lines_of(server, part):
    """The lines that one part of the program has logged, as objects."""
    lines = [json.loads(line) for line in server.log_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["part"] == part]


def test_the_log_begins_with_what_runs(serve, folder, binary):
    server = serve(folder, "--roles", "gateway,sender")
    version = quipu.run(binary, "version").stdout.split()[1]
    (line,) = [line for line in lines_of(server, "main") if line["message"] == "started"]
    assert (line["version"], line["address"], line["roles"]) == (
        version, f"http://127.0.0.1:{server.port}", "gateway, sender")
    assert "gateway-bus local" in line["engines"] and "gateway-store sqlite" in line["engines"]


AWAY = {
    "kafka": ["--roles", "gateway", "--gateway-bus", "kafka://127.0.0.1:{port}"],
    "nats": ["--roles", "entitlements", "--entitlements-bus", "nats://127.0.0.1:{port}"],
    "rabbitmq": ["--roles", "dialogs", "--unread-bus", "amqp://127.0.0.1:{port}"],
    "redis": ["--roles", "gateway,sender", "--cache", "redis://127.0.0.1:{port}"],
    "postgres": ["--roles", "counts", "--store", "postgres://127.0.0.1:{port}/none"],
}


@pytest.mark.parametrize("engine", AWAY)
def test_an_engine_that_is_not_there_is_warned_about_once(serve, folder, free_port, engine):
    server = serve(folder, *(word.format(port=free_port) for word in AWAY[engine]), ready=False)
    spelling = re.compile(engine, re.IGNORECASE)

    def warnings():
        lines = lines_of(server, "bus") + lines_of(server, "cache") + lines_of(server, "store")
        return [line for line in lines if line["level"] == "warn" and spelling.search(line["message"])]

    wait_until(warnings, f"the log warns about {engine}")
    wait_until(lambda: server.ask("GET", "/readyz").json()["dependencies"], "it answers")
    assert len(warnings()) == 1


OUTAGES = {
    "kafka": ("bus", ["--roles", "gateway", "--gateway-bus"]),
    "nats": ("bus", ["--roles", "entitlements", "--entitlements-bus"]),
    "rabbitmq": ("bus", ["--roles", "dialogs", "--unread-bus"]),
    "redis": ("cache", ["--roles", "gateway,sender", "--cache"]),
    "postgres": ("store", ["--roles", "counts", "--store"]),
}


@pytest.fixture
def own_kafka():
    with Kafka(real=False) as broker:
        yield broker


@pytest.fixture
def engine_to_stop(request):
    """A private engine and its URL."""
    engine = request.param
    fixture = "nats" if engine == "nats" else f"own_{engine}"
    server = request.getfixturevalue(fixture)
    url = server.create_database().url if engine == "postgres" else server.url
    return engine, server, url


@pytest.mark.parametrize("engine_to_stop", [  # RabbitMQ takes so long to start
    pytest.param(engine, marks=[pytest.mark.full] if engine == "rabbitmq" else []) for engine in OUTAGES], indirect=True)
def test_an_engine_that_goes_and_comes_back_is_one_line_each(serve, folder, engine_to_stop):
    engine, engine_server, url = engine_to_stop
    part, arguments = OUTAGES[engine]
    server = serve(folder, *arguments, url)
    server.wait_all_up()

    def status():
        (entry,) = [entry for entry in server.ask("GET", "/readyz").json()["dependencies"] if entry["engine"] == engine]
        return entry["status"]

    def levels():
        return [line["level"] for line in lines_of(server, part)[before:]]

    before = len(lines_of(server, part))
    engine_server.stop()
    wait_until(lambda: status() == "down", f"it notices that {engine} is gone")
    wait_until(levels, "the log says so")
    engine_server.start()
    server.wait_all_up()
    wait_until(lambda: "info" in levels(), "the log says that it is back")
    server.stop()
    assert levels() in (["warn", "info"], ["error", "info"]), lines_of(server, part)[before:]


def test_a_dead_letter_is_a_warning_with_its_reason(serve, folder, entitlements_client):
    with Webhook() as receiver:
        server = serve(folder, "--roles", "entitlements,notifications", "--notify-channel", receiver.channel)
        user = new_user()
        receiver.behaviour = 410
        entitlements_client(server).grant(user, headers={"traceparent": TRACE})
        (line,) = wait_until(lambda: lines_of(server, "dlq"), "the log has the dead letter")
    assert (line["level"], line["dead_letter_kind"], line["traceparent"]) == ("warn", "notification", TRACE)
    assert "410" in line["reason"] and line["message"].startswith("given up after 1 attempt and")
    letters = json.loads(server.ask("GET", "/operator/dlq/notification").body)["letters"]
    assert line["dead_letter_id"] in json.dumps(letters)
    assert user not in server.log_text()


def grant(server, clients):
    clients("entitlements_client")(server).grant(new_user())


def send(server, clients):
    gateway = clients("gateway_client")(server)
    assert gateway.send(gateway.new_user()).status == 200


def broken_row(table):
    return (f"INSERT INTO {table} (event_id, event_type, aggregate_key, trace_id, payload, created_at)"
            " VALUES ('0b0e7c5e-0000-4000-8000-000000000001', 'Nonsense', 'u:i', '', x'00', 0)")


BROKEN_MESSAGE = ("INSERT INTO messages (channel, published_at, subject, key, id, headers, value)"
                  " SELECT id, 0, x'', x'', x'', x'', x'00' FROM channels WHERE name = 'entitlements.events'")
ENTITLEMENTS, UNREAD = ["--roles", "entitlements,notifications"], ["--roles", "dialogs,counters"]

# kind: what runs, where its webhook goes, what is done to the server or to a file, and the reason
GIVEN_UP = {
    "outbox": (ENTITLEMENTS, None, ("entitlements.db", broken_row("outbox_events")), "cannot be read as an event"),
    "dialog-outbox": (UNREAD, None, ("dialogs.db", broken_row("dialog_outbox_events")), "cannot be read as an event"),
    "notification": (ENTITLEMENTS, "--notify-channel", grant, "410"),
    "sms": (["--roles", "gateway,sender"], "--sms-channel", send, "410"),
    "poison": (ENTITLEMENTS, None, ("entitlements-bus.db", BROKEN_MESSAGE), "it is not an EntitlementEvent; it has 1 byte and"),
}


@pytest.mark.parametrize("kind", GIVEN_UP)
def test_every_kind_of_dead_letter_is_logged_with_its_reason(serve, folder, request, kind):
    """Also poison, whose line is about the message: where it is, and how it begins."""
    arguments, channel, act, reason = GIVEN_UP[kind]
    with Webhook(user="userId" if kind == "sms" else "user_id") as receiver:
        receiver.behaviour = 410
        arguments = [*arguments, *([channel, receiver.channel] if channel else [])]
        server = serve(folder, *arguments)
        if callable(act):
            act(server, request.getfixturevalue)
        else:
            server.stop()
            damage(folder, act[0], [act[1]])
            server = serve(folder, *arguments)
        part = "intake" if kind == "poison" else "dlq"
        (line,) = wait_until(lambda: lines_of(server, part), "the log has the dead letter")
        (letter,) = wait_until(lambda: server.ask("GET", f"/operator/dlq/{kind}").json()["letters"], "it is listed")
    if kind == "poison":
        assert line["level"] == "error" and f"is put aside: {reason}" in line["message"]
    else:
        assert (line["level"], line["dead_letter_kind"], line["dead_letter_id"]) == ("warn", kind, letter["id"])
        assert reason in line["reason"]


def test_users_and_purchases_are_not_in_the_log_unless_it_is_for_debugging(serve, folder, entitlements_client):
    for level, shown in (("info", False), ("debug", True)):
        server = serve(folder, "--roles", "entitlements,notifications", "--log-level", level)
        client, user = entitlements_client(server), new_user()
        client.grant(user)
        client.wait_sent(user)
        wait_until(lambda: [line for line in lines_of(server, "notify")], "the notification is logged")  # noqa: B023
        assert (user in server.log_text()) == shown
        server.stop()


REFUSALS = {
    "sqlite": ["CREATE TRIGGER refuse BEFORE UPDATE ON count_values WHEN OLD.item_id = 'private-name' "
               "BEGIN SELECT RAISE(ABORT, 'refused'); END"],
    "postgres": ["CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE check_violation; END $$",
                 "CREATE TRIGGER refuse BEFORE UPDATE ON count_values FOR EACH ROW WHEN (OLD.item_id = 'private-name') "
                 "EXECUTE FUNCTION refuse()"],
}


def test_an_answer_500_is_logged_with_its_method_route_and_request_id(serve, store):
    server = serve(store)
    server.ask("POST", "/api/v1/internal/counts", {"itemId": "private-name"})
    damage(store, "counts.db", REFUSALS[store.name])
    answer = server.ask("POST", "/api/v1/counts/private-name/increase",
                        headers={"X-Request-Id": "r-1", "traceparent": TRACE})
    assert answer.status == 500 and answer.json()["code"] == "INTERNAL"
    (line,) = wait_until(lambda: lines_of(server, "http"), "the answer is logged")
    assert line["level"] == "error" and "500" in line["message"] and "private-name" not in json.dumps(line)
    assert (line["method"], line["route"], line["request_id"]) == ("POST", "/api/v1/counts/{itemId}/increase", "r-1")
    assert line["traceparent"].startswith(TRACE[:35])


def access_lines(server, count):
    return wait_until(lambda: len(lines := lines_of(server, "access")) >= count and lines, f"{count} answers are logged")


def test_the_access_log_has_a_line_for_every_answer(serve, folder):
    server = serve(folder, "--access-log", ready=False)
    with server.connect() as connection:
        created = connection.ask("POST", "/api/v1/internal/counts", {"itemId": "private-name"},
                                 {"X-Request-Id": "mine", "traceparent": TRACE})
        connection.ask("GET", "/api/v1/internal/counts/private-name")
        connection.send(render("HEAD", "/healthz"))
        connection.read_answer("HEAD")
        connection.ask("GET", "/private-name?access_token=secret")
    create, get, head, nothing = access_lines(server, 4)
    assert {name: value for name, value in create.items() if name not in ("time", "duration_us")} == {
        "level": "info", "part": "access", "message": "answered", "method": "POST", "route": "/api/v1/internal/counts",
        "status": 201, "bytes": len(created.body), "protocol": "HTTP/1.1", "client": "127.0.0.1",
        "request_id": "mine", "trace_id": TRACE[3:35]}
    assert isinstance(create["duration_us"], int) and create["duration_us"] >= 0
    assert (get["route"], get["status"]) == ("/api/v1/internal/counts/{itemId}", 200)
    assert "trace_id" not in get and get["request_id"]
    assert (head["method"], head["bytes"]) == ("HEAD", 0)
    assert "route" not in nothing and nothing["status"] == 404
    assert "private-name" not in server.log_text() and "secret" not in server.log_text()


def test_the_access_log_has_streams_when_they_begin(serve, tmp_path):
    server = serve(SqliteUnread(tmp_path), "--access-log", ready=False)
    with server.connect() as connection:
        connection.send(render("GET", "/counters/user/bob/stream"))
        (line,) = access_lines(server, 1)
    assert (line["route"], line["status"]) == ("/counters/user/{userId}/stream", 200)


def start_lines(binary, *arguments, **environment):
    """What a server prints on a terminal when it starts."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [binary, "serve", "--listen", "127.0.0.1:0", *arguments], stdin=subprocess.DEVNULL, stdout=theirs,
        stderr=subprocess.DEVNULL, env=quipu.environment(environment),
    ) as process:
        os.close(theirs)
        shown = b""
        while shown.count(b"\n") < 5:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    os.close(ours)
    return shown.decode().splitlines()


def test_on_a_terminal_some_lines_say_where_the_data_is_and_what_runs(binary, tmp_path):
    """The process sees a terminal; its options come from a flag and the environment, one of them with a password."""
    address, data, roles, console, options = start_lines(
        binary, "--data", tmp_path / "data", "--roles", "counts", QUIPU_CACHE="redis://:secret@127.0.0.1:1")
    assert re.fullmatch(r"quipu listening on http://127.0.0.1:\d+", address)
    assert data == f"  data     {(tmp_path / 'data').resolve()} (counts-store sqlite)"
    assert roles == "  roles    counts"
    assert console == f"  console  {address.removeprefix('quipu listening on ')}/console"
    assert "--roles counts (flag)" in options and "--cache redis://" in options and "(environment)" in options
    assert "--store" not in options and "secret" not in options


def test_a_data_folder_that_is_not_used_is_not_named(binary, tmp_path, database):
    """It may be there from an earlier start on SQLite."""
    (tmp_path / "data").mkdir()
    _, data, *_ = start_lines(binary, "--data", tmp_path / "data", "--roles", "counts", "--store", database.url)
    assert data == "  data     on servers only (counts-store postgres)"
