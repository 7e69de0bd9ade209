"""The programs in examples/, each against a real server with a fault in the middle: the number is exact afterwards.

Python and the shell run in make test, Node, Go and Java in make test-full, which installs them. A language whose tools are
not installed is skipped and says so; .NET is in no set of packages, because Debian has none.
"""

import os
import pathlib
import re
import shutil
import subprocess
import uuid

import pytest

from engines import process
from harness import lossy_proxy
from harness.keys import Key
from harness.lossy_proxy import LossyProxy
from harness.quipu import environment
from harness.waiting import HANG_S, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def build_nothing(*words):
    return lambda _folder: list(words)


def build_go(folder):
    """Go compiles its standard library, too, the first time; the cache keeps that."""
    subprocess.run(["go", "build", "-o", str(folder / "client"), "."], cwd=EXAMPLES / "go", check=True,
                   env={**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOCACHE": str(ROOT / "build-go")})
    return [str(folder / "client")]


def build_java(folder):
    subprocess.run(["javac", "-Xlint:all,-serial", "-Werror", "-d", str(folder), "QuipuClient.java"],
                   cwd=EXAMPLES / "java", check=True, timeout=HANG_S)
    return ["java", "-cp", str(folder), "QuipuClient"]


def build_csharp(folder):
    shutil.copytree(EXAMPLES / "csharp", folder / "source")
    subprocess.run(["dotnet", "build", "--nologo", "-o", str(folder / "built")], cwd=folder / "source", check=True,
                   timeout=HANG_S)
    return ["dotnet", str(folder / "built" / "quipu-client.dll")]


LANGUAGES = {
    "python": (["python3"], build_nothing("python3", EXAMPLES / "python/quipu_client.py")),
    "curl": (["curl"], build_nothing("sh", EXAMPLES / "curl/quipu-client.sh")),
    "node": (["node"], build_nothing("node", EXAMPLES / "node/quipu-client.mjs")),
    "go": (["go"], build_go),
    "java": (["javac", "java"], build_java),
    "csharp": (["dotnet"], build_csharp),
}
IN_MAKE_TEST = {"python", "curl"}


@pytest.fixture(scope="module", params=[name if name in IN_MAKE_TEST else pytest.param(name, marks=pytest.mark.full)
                                        for name in LANGUAGES])
def program(request, tmp_path_factory):
    """The command that runs the example of one language."""
    tools, build = LANGUAGES[request.param]
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    return build(tmp_path_factory.mktemp(request.param))


@pytest.fixture
def proxy_to():
    opened = []

    def open_proxy(server):
        opened.append(LossyProxy(server.port).__enter__())
        return opened[-1]

    yield open_proxy
    for proxy in opened:
        proxy.__exit__()


def start(program, *words, proxy, **options):
    return process.start([*program, *words], env=environment({"QUIPU_SERVER": proxy.url}), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, **options)


def finish(running, status=0):
    """What a program has printed."""
    try:
        output, errors = running.communicate(timeout=HANG_S)
    finally:
        process.end(running)
    assert running.returncode == status, errors
    return (output if status == 0 else errors).strip()


def test_an_increase_counts_once_whatever_happens_to_its_answers(program, serve, client, sqlite_store, proxy_to):
    server = serve(sqlite_store)
    client(server).create("visits", 41)
    proxy = proxy_to(server)
    proxy.faults.extend([lossy_proxy.lose_answer, lossy_proxy.lose_request, lossy_proxy.say_unknown,
                         lossy_proxy.say_bad_gateway, lossy_proxy.say_overloaded])
    assert finish(start(program, "increase", "visits", proxy=proxy)) == "42"
    assert client(server).get("visits").json()["currentValue"] == 42
    assert len(proxy.seen) == 6 and len({request.key for request in proxy.seen}) == 1


def test_a_key_that_is_replaced_meanwhile_leaves_the_outcome_unknown(program, serve, client, sqlite_store, proxy_to):
    server = serve(sqlite_store)
    client(server).create("visits", 41)
    proxy = proxy_to(server)
    proxy.faults.extend([lossy_proxy.lose_answer, lossy_proxy.say_unauthenticated])
    assert "my-own-key" in finish(start(program, "increase", "visits", "my-own-key", proxy=proxy), status=2)
    assert client(server).get("visits").json()["currentValue"] == 42


def test_an_increase_survives_the_death_of_the_server(program, serve, client, sqlite_store, proxy_to):
    server = serve(sqlite_store)
    client(server).create("visits", 41)
    proxy = proxy_to(server)

    def die(exchange):
        exchange.forward()
        server.kill()
        exchange.cut()

    proxy.faults.append(die)
    running = start(program, "increase", "visits", proxy=proxy)
    wait_until(lambda: proxy.unreachable > 0, "the client tries again while there is no server")
    restarted = serve(sqlite_store)
    proxy.target = restarted.port
    assert finish(running) == "42"
    assert client(restarted).get("visits").json()["currentValue"] == 42


def test_an_increase_that_is_refused_is_not_sent_again(program, serve, sqlite_store, proxy_to):
    proxy = proxy_to(serve(sqlite_store))
    assert "COUNT_NOT_FOUND" in finish(start(program, "increase", "nowhere", proxy=proxy), status=1)
    assert [request.status for request in proxy.seen] == [404]


def test_a_program_that_runs_again_with_its_key_changes_nothing(program, serve, client, sqlite_store, proxy_to):
    server = serve(sqlite_store)
    client(server).create("visits")
    proxy = proxy_to(server)
    for _ in range(2):
        assert finish(start(program, "increase", "visits", "order-17", proxy=proxy)) == "1"
    assert client(server).get("visits").json()["currentValue"] == 1


def test_a_send_waits_as_long_as_the_limit_says(program, serve, sqlite_store, proxy_to):
    server = serve(sqlite_store, "--roles", "gateway,sender", "--gateway-window-unit", "5s")
    limit = {"userId": "1001", "rateLimit": 1, "timeWindow": 1}
    assert server.ask("POST", "/api/config", limit).status == 200
    proxy = proxy_to(server)

    def use_up_the_window(exchange):
        server.ask("POST", "/api/config", limit)
        assert server.ask("POST", "/api/limits/1001/take").status == 200
        exchange.pass_on()

    proxy.faults.append(use_up_the_window)
    message = finish(start(program, "send", "1001", 'Hello "you"\\!', proxy=proxy))
    refused, *_, sent = proxy.seen
    assert (refused.status, sent.status) == (429, 200) and refused.key == sent.key
    assert sent.asked_at - refused.answered_at >= refused.retry_after_s > 0
    assert uuid.UUID(message)
    wait_until(lambda: "SMS SENT" in server.output.read_text(), "the sender prints it")
    assert [line for line in server.output.read_text().splitlines() if "SMS SENT" in line] == [
        'SMS SENT userId=1001 message=Hello "you"\\!']


def test_a_badge_follows_the_counter_through_a_crash(program, serve, sqlite_store, proxy_to, tmp_path):
    roles = ["--roles", "dialogs,counters"]
    server = serve(sqlite_store, *roles)
    proxy = proxy_to(server)
    shown = tmp_path / "shown"

    def message(to):
        body = {"receiverId": "dave", "text": "Hello!"}
        assert to.ask("POST", "/dialogs/send", body, {"X-User-Id": "carol"}).status == 200

    def wait_shown(count):
        wait_until(lambda: shown.read_text().splitlines()[-1:] == [f"{count} unread"], f"the badge shows {count}",
                   explain=shown.read_text)

    with shown.open("w") as output, process.running(
            [*program, "badge", "dave"], env=environment({"QUIPU_SERVER": proxy.url}), stdout=output):
        wait_shown(0)
        message(server)
        wait_shown(1)
        server.kill()
        restarted = serve(sqlite_store, *roles)
        proxy.target = restarted.port
        message(restarted)
        wait_shown(2)
    assert proxy.seen[-1].headers["Last-Event-ID"].isdigit()
    assert re.fullmatch(r"(\d+ unread\n)+", shown.read_text())


def test_the_programs_send_the_api_key(program, binary, serve, sqlite_store, tmp_path, proxy_to):
    key = Key(binary, "example", "external")
    (tmp_path / "keys").write_text(f"{key.line}\n")
    server = serve(sqlite_store, "--api-keys", tmp_path / "keys", ready=False)
    proxy = proxy_to(server)
    done = subprocess.run([*map(str, program), "increase", "nowhere"], capture_output=True, text=True, timeout=HANG_S,
                          env=environment({"QUIPU_SERVER": proxy.url, "QUIPU_API_KEY": key.shown}), check=False)
    assert done.returncode == 1 and "COUNT_NOT_FOUND" in done.stderr
