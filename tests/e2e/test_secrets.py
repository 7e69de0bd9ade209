"""Secrets appear nowhere but where they were given: not in the log, the metrics, an answer, an error or an argument."""

import contextlib
import pathlib
import re
import signal
import sqlite3

import pytest

from harness import quipu
from harness.counts import action
from harness.waiting import wait_until
from harness.webhook import Webhook
from harness.webhook_channels import CHANNELS

SECRET = "s3cr3t"
HASTY = ["--roles", "all", "--log-level", "debug", "--deadline", "100ms"]  # no answer is waited for that cannot come
PAGES = ["/metrics", "/readyz", "/healthz", "/openapi.json", "/operator/dlq/outbox", "/operator/dlq/notification",
         "/operator/dlq/sms"]


def urls(host, store_host=None):
    """A URL with a password for each engine, by variable; `host` has no server behind it."""
    return {
        "QUIPU_STORE": f"postgres://someone:{SECRET}@{store_host or host},{store_host or host}/x?sslpassword={SECRET}",
        "QUIPU_GATEWAY_BUS": f"kafka://{host}?security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN"
                             f"&sasl.username=someone&sasl.password={SECRET}",
        "QUIPU_ENTITLEMENTS_BUS": f"nats://someone:{SECRET}@{host}",
        "QUIPU_UNREAD_BUS": f"amqp://someone:{SECRET}@{host}",
        "QUIPU_CACHE": f"redis://:{SECRET}@{host}",
        "QUIPU_NOTIFY_CHANNEL": f"webhook:http://someone:{SECRET}@{host}/hook?token={SECRET}",
        "QUIPU_SMS_CHANNEL": f"webhook:http://someone:{SECRET}@{host}/hook?token={SECRET}",
        "QUIPU_SERVER": f"http://someone:{SECRET}@{host}",
    }


def assert_clean(text, where):
    found = [line for line in text.splitlines() if SECRET in line.lower()]
    assert not found, f"{where} tells a secret: {found[0][:500]}"


def try_to_use(server):
    """Requests to every engine, whatever comes of them."""
    key = {"Idempotency-Key": "k"}
    server.ask("POST", action("item", "increase"), {"amount": 1})
    server.ask("POST", "/api/send", {"userId": "u", "message": "m"})
    server.ask("POST", "/v1/entitlements/grants", {
        "user_id": "u", "stock_keeping_unit": "s", "reason": "purchase", "purchase_id": "p"}, key)
    server.ask("POST", "/dialogs/send", {"receiverId": "u", "text": "t"}, {"X-User-Id": "v"})
    server.ask("GET", "/counters/user/u")
    server.ask("POST", "/twirp/pyggpot.pot.Pot/ListPots", {"page": 1})


def check_server(server):
    """Everything that a running server shows."""
    try_to_use(server)
    for page in PAGES:
        assert_clean(server.ask("GET", page).body.decode(), page)
    arguments = pathlib.Path(f"/proc/{server.pid}/cmdline").read_text()
    assert_clean(arguments, "the process table")
    server.stop()
    assert_clean(server.log_text(), "the log")
    assert_clean(server.output.read_text(), "standard output")


# ---- flags


@pytest.mark.parametrize("variable", urls("host"))
def test_a_flag_with_a_secret_is_refused_and_says_where_to_put_it(binary, variable):
    flag = "--" + variable.removeprefix("QUIPU_").lower().replace("_", "-")
    for arguments in ([flag, urls("host")[variable]], [f"{flag}={urls('host')[variable]}"]):
        done = quipu.run(binary, "serve", "--check-config", *arguments)
        assert done.returncode == 2
        assert variable in done.stderr and "--config" in done.stderr
        assert_clean(done.stderr + done.stdout, "the refusal")


def test_the_same_urls_are_taken_from_variables_and_files(binary, tmp_path):
    file = tmp_path / "quipu.ini"
    names = {name.removeprefix("QUIPU_").lower().replace("_", "-"): url for name, url in urls("host").items()}
    file.write_text("".join(f"{name} = {url}\n" for name, url in names.items()))
    for arguments, env in ([], urls("host")), (["--config", file], None):
        for what in ("--check-config", "--print-config"):
            done = quipu.run(binary, "serve", what, *arguments, env=env)
            assert done.returncode == 0, done.stderr
            assert_clean(done.stdout + done.stderr, what)
        assert_clean(quipu.run(binary, "help", env=env).stdout, "the help")


MALFORMED = {
    f"u:top%zz{SECRET}@h/x": "a broken %XX",
    f"u:{SECRET}%@h/x": "a broken %XX",
    f"u:{SECRET}%00@h/x": "a broken %XX",
    f"u:{SECRET}@[::1]x/x": "an address in []",
    f"u:{SECRET}@[::1/x": "an address in []",
    f"u:{SECRET}@[]/x": "an address is empty",
    f"u:{SECRET}@h:p/x": "the port must be a number",
    f"u:{SECRET}@h,h:65536/x": "the port must be a number",
    f"u:{SECRET}@h/x?port=0": "the port must be a number",
    f"u:a/{SECRET}@h/x": "one @ too many",
    f"u:1/{SECRET}@h/x": "one @ too many",
    f"u:a@{SECRET}@h/x": "one @ too many",
    f"u:{SECRET}@h/x?nonsense={SECRET}": "an option after the ?",
    f"u:{SECRET}@h/x?sslmode": "an option after the ?",
}


@pytest.mark.parametrize("rest, words", MALFORMED.items(), ids=range(len(MALFORMED)))
def test_a_malformed_url_of_postgresql_is_refused_without_repeating_it(binary, sqlite_store, rest, words):
    """libpq's own words about it would."""
    sqlite_store.data.mkdir(exist_ok=True)
    with contextlib.closing(sqlite3.connect(sqlite_store.data / "counts.db")) as file, file:
        file.execute("CREATE TABLE schema_migrations (component, version)")
    for command in ["serve", "--listen", "127.0.0.1:0"], ["migrate"], ["copy"]:
        done = quipu.run(binary, *command, "--data", sqlite_store.data, env={"QUIPU_STORE": f"postgres://{rest}"})
        assert done.returncode == 1 and "the URL of PostgreSQL" in done.stderr and words in done.stderr, done.stderr
        assert_clean(done.stdout + done.stderr, command[0])


@pytest.mark.parametrize("rest", ["127.0.0.1:/x", "%2Fnowhere/x", "/x?host=/nowhere", "[::1]:1,127.0.0.1:1/x",
                                  f"a%40b:%2F{SECRET}@127.0.0.1:1/x", "/x?host=127.0.0.1&port=1"])
def test_unusual_urls_of_postgresql_are_used(serve, sqlite_store, rest):
    server = serve(sqlite_store, env={"QUIPU_STORE": f"postgres://{rest}"}, ready=False)
    wait_until(lambda: "PostgreSQL cannot be used, retrying" in server.log_text(), "libpq has tried it")
    check_server(server)


# ---- engines


@pytest.mark.parametrize("host", ["127.0.0.1:1", "nowhere.invalid:1"], ids=["refused", "unknown"])
def test_engines_that_are_not_there(serve, sqlite_store, host):
    server = serve(sqlite_store, *HASTY, env=urls(host), ready=False)
    wait_until(lambda: "store" in server.log_text(), "the trouble is logged")
    assert server.ask("GET", "/readyz").status == 503
    check_server(server)


def test_engines_that_refuse_the_password(serve, sqlite_store, own_postgres, own_redis, rabbitmq_server):
    own_redis.do("CONFIG", "SET", "requirepass", "another")
    env = {
        **urls("127.0.0.1:1", store_host=f"127.0.0.1:{own_postgres.port}"),
        "QUIPU_CACHE": f"redis://:{SECRET}@127.0.0.1:{own_redis.port}",
        "QUIPU_UNREAD_BUS": f"amqp://guest:{SECRET}@127.0.0.1:{rabbitmq_server.port}",
    }
    server = serve(sqlite_store, *HASTY, env=env, ready=False)
    for part in ("cache", "unread"):
        wait_until(lambda part=part: part in server.log_text(), f"trouble with {part} is logged")
    check_server(server)


def letters_of(server, kind):
    return server.ask("GET", f"/operator/dlq/{kind}").json()["letters"]


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
def test_a_webhook_that_refuses(serve, sqlite_store, openapi, binary, channel):
    """What was tried last stays with a dead letter, for people to read."""
    with Webhook(user=channel.user_member) as receiver:
        receiver.behaviour = 403
        url = receiver.channel.replace("://", f"://someone:{SECRET}@") + f"?token={SECRET}"
        server = serve(sqlite_store, *channel.options(), "--log-level", "debug", env={channel.variable: url})
        with channel.client(server, openapi) as client:
            user = channel.cause(client)
            (letter,) = wait_until(lambda: letters_of(server, channel.kind), "it is given up")
            assert_clean(str(letter), "the dead letters")
            name = f"{channel.kind}/{letter['id']}"
            assert_clean(client.ask("GET", f"/operator/dlq/{name}").body.decode(), "the dead letter")
            ((body, _),) = receiver.of(user)
            assert_clean(channel.look(client, body).body.decode(), "what became of it")
        listed = quipu.run(binary, "dlq", "list", env={"QUIPU_SERVER": f"http://127.0.0.1:{server.port}"})
        assert name in listed.stdout
        assert_clean(listed.stdout + listed.stderr, "quipu dlq list")
        check_server(server)


@pytest.mark.parametrize("command", [["health"], ["dlq", "list"], ["verify", "unread"]], ids=" ".join)
def test_commands_that_cannot_reach_their_server(binary, command):
    done = quipu.run(binary, *command, env={"QUIPU_SERVER": f"http://someone:{SECRET}@127.0.0.1:1"})
    assert done.returncode != 0
    assert_clean(done.stdout + done.stderr, " ".join(command))


# ---- memory


def core_limit(server):
    limits = pathlib.Path(f"/proc/{server.pid}/limits").read_text()
    return re.search(r"Max core file size\s+(\S+)\s+(\S+)", limits).groups()


def test_a_crash_leaves_no_core_dump(serve, sqlite_store):
    server = serve(sqlite_store)
    assert core_limit(server) == ("0", "0")
    owner = pathlib.Path(f"/proc/{server.pid}/environ").stat().st_uid
    assert owner == 0, "the memory of a process that is not dumpable belongs to root"
    server.crash(signal.SIGABRT)
    assert not list(server.directory.glob("core*"))


def test_core_dumps_can_be_asked_for(serve, sqlite_store):
    ours = re.search(r"Max core file size\s+(\S+)\s+(\S+)", pathlib.Path("/proc/self/limits").read_text()).groups()
    assert core_limit(serve(sqlite_store, "--core-dumps")) == ours
