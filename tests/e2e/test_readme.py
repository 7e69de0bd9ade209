"""Every command that the README and the pages of the services show is run, or at least checked, as it stands there."""

import contextlib
import json
import os
import pathlib
import random
import re
import shlex
import sqlite3
import subprocess

import pytest

from harness import readme
from harness.demo import ENDED
from harness.quipu import environment, run
from harness.tls import Certificate
from harness.tokens import Issuer
from harness.verify import SERVICES
from harness.waiting import HANG_S, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.1:8080"
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


def commands(page="README.md"):
    """The commands of all sh blocks, with continued lines joined and comments cut."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip()]


def page_text(page):
    """With continued lines of commands joined."""
    return (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")


def run_curls(server, shown):
    """What the server answers to each command, in their order."""
    answers = []
    for command in shown:
        done = subprocess.run(
            ["bash", "-c", command.replace(ADDRESS, f"127.0.0.1:{server.port}").replace("curl", "curl -sS -f", 1)],
            capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        answers.append(json.loads(done.stdout))
    return answers


def follow_pots(server):
    """The page's pot has the id 1; ours has the one that creating it returns."""
    text = (ROOT / "docs" / "POTS.md").read_text(encoding="utf-8")
    shown = re.findall(r"```sh\n(curl .*?)```\n+```json\n(.*?)```", text.replace("\\\n", " "), re.DOTALL)
    assert len(shown) >= 6 and "\nPOT=1\n" in text
    pot = None
    for command, answer in shown:
        assert (pot is None) == ("$POT" not in command)
        command = command.replace("'$POT'", str(pot))
        done = subprocess.run(
            ["bash", "-c", command.replace(ADDRESS, f"127.0.0.1:{server.port}").replace("curl", "curl -sS", 1)],
            capture_output=True, text=True, timeout=HANG_S, check=True)
        told, expected = json.loads(done.stdout), json.loads(answer)
        pot = pot or told["pot_id"]
        expected = json.loads(re.sub(r"(\"pot_id\":|\"pot )1\b", rf"\g<1>{pot}", answer))
        for changing in ("create_time", "coins") if "\"count\":3}" in command else ("create_time",):
            assert (changing in told) == (changing in expected)
            told.pop(changing, None), expected.pop(changing, None)
        assert told == expected, command


def same_but_for_ids_and_times(told, expected, ids):
    """Whether an answer is the one that a page shows. `ids` learns which id of ours stands for one of the page's."""
    ours, shown = UUID.findall(told), UUID.findall(expected)
    if len(ours) != len(shown) or any(ids.get(b, a) != a for a, b in zip(ours, shown)):
        return False
    plain = [json.loads(TIME.sub("TIME", UUID.sub("ID", text))) for text in (told, expected)]
    if plain[0] == plain[1]:
        ids.update(zip(shown, ours))
    return plain[0] == plain[1]


def examples(page):
    """Each curl command of a page and the JSON that the page shows as its answer."""
    return re.findall(r"```sh\n(curl [^`]*)```\n+```json\n(.*?)```", page_text(page), re.DOTALL)


def follow_counts(server):
    shown = examples("docs/COUNTS.md")
    assert [command.strip() for command, _ in shown] == commands("docs/COUNTS.md") and len(shown) == 14
    for command, expected in shown:
        (told,) = run_curls(server, [command])
        assert same_but_for_ids_and_times(json.dumps(told), expected, {}), (command, told)


def follow_dialogs(server):
    """Counters follow soon, so a GET may be asked again."""
    shown = examples("docs/DIALOGS.md")
    assert len(shown) == 10
    ids = {}
    for command, expected in shown:
        for of_the_page, ours in ids.items():
            command = command.replace(of_the_page, ours)

        def answers_so(command=command, expected=expected):
            (told,) = run_curls(server, [command])
            return same_but_for_ids_and_times(json.dumps(told), expected, ids)

        if "-X POST" in command:
            assert answers_so(), command
        else:
            wait_until(answers_so, command)


def test_the_stream_of_the_dialogs_page_is_as_it_is_shown(serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "dialogs,counters")
    text = page_text("docs/DIALOGS.md")
    ((command, expected),) = re.findall(r"```sh\n(curl -N .*?)\n```\n+```text\n(.*?)```", text, re.DOTALL)
    send, read = [c for c in commands("docs/DIALOGS.md") if "/send" in c or "/read-batch" in c][::2]
    (sent,) = run_curls(server, [send])
    run_curls(server, [UUID.sub(sent["messageId"], read)])

    def shape(events):
        return re.sub(r"(id|retry): \d+", r"\1: N", TIME.sub("TIME", events)).strip()

    def streams_so():
        done = subprocess.run(
            ["bash", "-c", command.replace(ADDRESS, f"127.0.0.1:{server.port}").replace("curl", "curl -sS -m 1", 1)],
            capture_output=True, text=True, timeout=HANG_S, check=False)
        return shape(done.stdout) == shape(expected)

    wait_until(streams_so, command)


def test_the_operators_routes_of_the_dialogs_page_work(serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "dialogs,counters")
    shown = [c for c in commands("docs/DIALOGS.md") if "/operator/" in c]
    assert run_curls(server, shown) == [{"letters": []}, {"resent": 0}]


def test_the_commands_of_the_dialogs_page_work(serve, sqlite_store, binary):
    server = serve(sqlite_store, "--roles", "dialogs,counters")
    run_curls(server, [c for c in commands("docs/DIALOGS.md") if "/send" in c])
    shown = [shlex.split(c)[1:] for c in commands("docs/DIALOGS.md") if c.startswith("quipu ")]
    assert shown == [["outbox", "resend", "dialog-outbox", "--since", "24h"],
                     ["verify", "unread"], ["verify", "unread", "--repair"]]
    done = run(binary, *shown[0], "--server", f"http://127.0.0.1:{server.port}")
    assert done.returncode == 0 and "will be sent again" in done.stdout
    for arguments in shown[1:]:
        def is_right(arguments=arguments):
            done = run(binary, *arguments, "--server", f"http://127.0.0.1:{server.port}")
            return done.returncode == 0 and done.stdout == "1 user, all counters are right\n"
        wait_until(is_right, "all counters are right")


def test_the_envelope_of_the_dialogs_page_is_what_is_published(serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "dialogs,counters")
    (shown,) = re.findall(r"```json\n(\{\"messageId\".*?)```", page_text("docs/DIALOGS.md"), re.DOTALL)
    (sent,) = run_curls(server, [c for c in commands("docs/DIALOGS.md") if "/send" in c][:1])
    with contextlib.closing(sqlite3.connect(sqlite_store.data / "dialogs.db")) as database:
        ((payload,),) = database.execute("SELECT payload FROM dialog_outbox_events").fetchall()
    told, ids = (payload if isinstance(payload, str) else payload.decode()), {}
    assert same_but_for_ids_and_times(told, shown, ids)
    assert json.loads(told)["message"]["messageId"] == sent["messageId"]


def follow_entitlements(server, binary):
    shown = commands("docs/ENTITLEMENTS.md")
    curls = [c for c in shown if c.startswith("curl ")]
    granted, revoked, held, looked_at, _ = run_curls(server, curls)
    assert [(one["status"], one["version"]) for one in (granted, revoked)] == [("ACTIVE", 1), ("REVOKED", 2)]
    assert [one["status"] for one in held["entitlements"]] == ["REVOKED"]
    assert [(one["source_id"], one["status"]) for one in looked_at["sources"]] == [("p_456", "REVOKED")]

    def inbox():
        (told,) = run_curls(server, curls[4:])
        return sorted(one["event_type"] for one in told["notifications"] if one["status"] == "SENT")

    wait_until(lambda: inbox() == ["EntitlementGranted", "EntitlementRevoked"], "both notifications are sent")
    of_operators = [shlex.split(c)[1:] for c in shown if c.startswith("quipu ")]
    assert len(of_operators) == 5 and len(curls) + len(of_operators) == len(shown)
    for arguments in of_operators:
        done = run(binary, *arguments, "--server", f"http://127.0.0.1:{server.port}")
        wanted = {0} if arguments[1] in ("list", "resend") else {1}  # there is no letter ID
        assert done.returncode in wanted, (arguments, done.stderr)


def follow_gateway(server):
    shown = commands("docs/GATEWAY.md")
    limit, looked, first, keyed, taken, next_one = run_curls(server, shown)
    assert (limit["rateLimit"], limit["currentCount"]) == (5, 0)
    assert (looked["userId"], looked["currentCount"]) == ("1001", 0)
    assert (first["status"], first["remaining"]) == ("QUEUED", 4)
    assert (keyed["status"], keyed["remaining"]) == ("QUEUED", 3)
    assert (taken["allowed"], taken["remaining"]) == (True, 2)
    assert (next_one["allowed"], next_one["remaining"]) == (True, 2)


def follow_clients(server):
    _, first, again = run_curls(server, commands("docs/CLIENTS.md"))
    assert first == again == {"itemId": "orders", "value": 1}


def follow_operations(server, binary, folder):
    """The commands for systemd and backups are not for this server: test_install.py and test_backup.py run them."""
    shown = [c for c in commands("docs/OPERATIONS.md") if c.startswith("quipu ")]
    assert len(shown) == 17
    (folder / "quipu").symlink_to(binary)
    told = {}
    for command in shown:
        missing = re.search(r"\w+/ID\b", command)  # there is no letter ID

        def ends_so(command=command, missing=missing):
            done = subprocess.run(
                ["bash", "-c", command.replace("/var/log", str(folder)).replace("logger", "false")],
                capture_output=True, text=True, timeout=HANG_S, check=False, env=environment(
                    {"QUIPU_SERVER": f"http://127.0.0.1:{server.port}", "PATH": f"{folder}:{os.environ['PATH']}"}))
            told[command] = done.stdout
            return done.returncode == (1 if missing else 0)

        wait_until(ends_so, command)  # events that are still on their way look like differences
    assert told["quipu verify"].count("\n") == len(SERVICES)
    assert [json.loads(line)["service"] for line in (folder / "quipu-verify.json").read_text().splitlines()] == SERVICES
    assert "messages sent" in told["quipu erase-user alice"]


def follow_starts(page, binary, folder, at_least):
    """Commands that start a server. They are only checked, with the files of the page, since one server runs already; an
    ellipsis stands for further options."""
    shown = [c.removesuffix("…") for c in commands(page) if re.match(r"(QUIPU_\w+='[^']*' )?quipu serve ", c)]
    assert len(shown) >= at_least
    for command in shown:
        command = command.replace("/etc/quipu", str(folder)).replace("quipu serve", f"{binary} serve --check-config", 1)
        done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=HANG_S,
                              check=False, env=environment({}))
        assert (done.returncode, done.stdout) == (0, "ok\n"), f"{command}\n{done.stderr}"


def follow_security(binary, folder):
    Certificate(folder / "tls")
    Issuer(folder, "ES256").file.rename(folder / "issuer.pem")
    (keys,) = [c for c in commands("docs/SECURITY.md") if c.startswith("quipu keys ")]
    keys = keys.replace("quipu", str(binary), 1).replace("/etc/quipu", str(folder))
    subprocess.run(["bash", "-c", keys.split(" #")[0]], check=True, capture_output=True, timeout=HANG_S)
    follow_starts("docs/SECURITY.md", binary, folder, 4)


def test_the_pages_work_one_after_another_on_one_server(serve, sqlite_store, binary, tmp_path):
    """As somebody reads them: the README, then the pages of the services in the order of the folder."""
    server = serve(sqlite_store, "--roles", "all")
    readme.follow(server)
    follow_clients(server)
    follow_counts(server)
    follow_dialogs(server)
    follow_entitlements(server, binary)
    follow_gateway(server)
    follow_operations(server, binary, tmp_path)
    follow_pots(server)
    follow_starts("docs/SCALING.md", binary, tmp_path, 5)
    follow_security(binary, tmp_path)


@pytest.mark.parametrize("follow", [follow_clients, follow_counts, follow_dialogs, follow_gateway, follow_pots])
def test_a_page_works_on_its_own(serve, sqlite_store, follow):
    follow(serve(sqlite_store, "--roles", "all"))


def test_the_gateways_page_tells_the_codes_of_its_api_and_no_others():
    table = set(re.findall(r"ROW\((\w+),", (ROOT / "src/base/status.h").read_text(encoding="utf-8")))
    common, gateway = (json.loads((ROOT / "api" / name).read_text(encoding="utf-8")) for name in ("common.json", "gateway.json"))
    responses, documents = common["components"].pop("responses"), json.dumps([common, gateway], ensure_ascii=False)
    documents += json.dumps([response for name, response in responses.items() if f"/responses/{name}\"" in documents])
    errors = (ROOT / "docs/GATEWAY.md").read_text(encoding="utf-8").split("## Errors")[1]
    told = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", errors))
    wanted = {code for code in table if f'"{code}"' in documents or f"`{code}`" in documents}
    assert len(wanted) > 10 and wanted <= told <= table


def test_the_make_targets_of_the_readme_exist():
    targets = re.findall(r"\bmake ([a-z-]+)", "\n".join(commands()))
    assert targets == ["build", "run"]
    for target in targets:
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture(params=["fresh", "after the demo"])
def some_server(request, serve, sqlite_store, demo):
    """A server with every role: a fresh one, or the one on which the demo has played."""
    if request.param == "fresh":
        return serve(sqlite_store, "--roles", "all")
    played = demo("--seconds", 1)
    wait_until(lambda: ENDED in played.output(), "the traffic ends")
    return played


def test_the_commands_of_the_readme_work_twice(some_server):
    readme.follow(some_server)
    readme.follow(some_server)


@pytest.mark.parametrize("seed", range(3))
def test_the_blocks_of_the_readme_work_in_any_order(some_server, seed):
    order = readme.blocks() * 2
    random.Random(seed).shuffle(order)
    for block in order:
        readme.check(some_server, block)


@pytest.mark.parametrize("seed", range(3))
def test_the_blocks_of_the_readme_work_after_single_commands_of_them(some_server, seed):
    """Somebody pastes commands one by one, also those that need another one first: no refusal may stay for good."""
    commands_alone = readme.single_commands()
    assert len(commands_alone) == 14
    random.Random(seed).shuffle(commands_alone)
    for command in commands_alone:
        readme.run(some_server, command, may_fail=True)
    readme.follow(some_server)


def test_the_blocks_of_the_readme_work_when_their_keys_are_forgotten(serve, sqlite_store):
    """As on the next day: what exists is not created again, and the rest of each block works."""
    server = serve(sqlite_store, "--roles", "all", "--idempotency-ttl", "1ms")
    counts, limits, entitlements, pots, dialogs = readme.blocks()
    for _ in range(3):
        *_, increased, read = readme.run(server, counts, may_fail=True)
        assert read["currentValue"] == increased["value"]
        assert len(readme.run(server, entitlements, may_fail=True)[-1]["entitlements"]) == 1
        for block in (limits, pots, dialogs):
            assert readme.run(server, block)


def test_the_figures_of_the_readme_are_those_of_the_measurements():
    shown = re.findall(r"^\| [^|]+ \| ([\d,]+/s) \| ([\d,]+/s) \| \*\*(\S+)\*\* \|$", page_text("README.md"), re.MULTILINE)
    assert len(shown) == 7
    measured = [line for line in page_text("docs/PERFORMANCE.md").splitlines() if line.startswith("|")]
    for figures in shown:
        assert [line for line in measured if all(figure in line for figure in figures)], f"{figures} were measured nowhere"


def test_every_file_that_the_readme_names_is_there():
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page_text("README.md"))
    assert len(links) > 20
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_commands_of_the_page_on_installing_are_accepted(binary):
    shown = commands("docs/INSTALL.md")
    (serve,) = [shlex.split(command)[1:] for command in shown if command.startswith("quipu serve ")]
    done = run(binary, *serve, "--check-config")
    assert done.returncode == 0, done.stderr
    targets = [command.removeprefix("sudo ").split()[1] for command in shown if re.match(r"(sudo )?make ", command)]
    assert targets == ["deb", "build", "install", "image", "release"]
    for target in targets:
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    (keys,) = [command for command in shown if command.startswith("quipu keys ")]
    assert run(binary, *shlex.split(keys.split("|")[0])[1:]).returncode == 0


def test_the_commands_of_the_readme_that_start_the_program_are_known(binary):
    started = re.findall(r"\bbuild/quipu ([a-z-]+)", "\n".join(commands()))
    assert started == ["demo"]
    assert run(binary, "help", *started).returncode == 0


def test_make_run_shows_three_curl_lines_that_work(serve, sqlite_store):
    server = serve(sqlite_store)
    recipe = subprocess.run(["make", "-n", "run"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    shown = subprocess.run(
        ["bash", "-c", "\n".join(line for line in recipe.splitlines() if line.startswith("echo"))],
        capture_output=True, text=True, check=True).stdout
    curls = [line.strip() for line in shown.splitlines() if line.strip().startswith("curl")]
    assert len(curls) == 3
    run_curls(server, curls)
