"""The command line helps: help for every command, guesses for what was mistyped, and a check of the configuration."""

import json
import re

import pytest

from harness import quipu


@pytest.fixture
def run(binary, tmp_path):
    def with_data(*words, env=None):
        return quipu.run(binary, *words, env={"QUIPU_DATA": str(tmp_path / "data"), **(env or {})})

    return with_data


def test_every_command_has_a_help_in_three_spellings(run):
    commands = set(re.findall(r"^  quipu (\S+)", run("help").stdout, re.MULTILINE))
    assert commands >= {"serve", "erase-user", "demo"}
    for command in commands:
        texts = [run("help", command), run(command, "--help"), run(command, "-h")]
        assert [done.returncode for done in texts] == [0, 0, 0]
        assert len({done.stdout for done in texts}) == 1
        assert all(line.startswith(f"  quipu {command}") for line in texts[0].stdout.split("\n\n")[0].splitlines())


def test_the_help_of_a_command_has_the_options_it_uses(run):
    assert "--server URL" in run("help", "dlq").stdout and "--batch-max" not in run("help", "dlq").stdout
    assert "--batch-max" in run("help", "serve").stdout and "--server URL" not in run("help", "serve").stdout
    assert "--batch-max" not in run("help", "version").stdout
    for command in ("serve", "migrate", "copy"):
        assert "  --store URL" in run("help", command).stdout and "  --data DIR" in run("help", command).stdout
    assert "--batch-max" not in run("help", "copy").stdout


def flags_of(text):
    """{flag: what the help of a command says about it}"""
    return dict(re.findall(r"^  (--[a-z-]+)(?: \S+)? +(.*)$", text, re.MULTILINE))


def test_the_help_of_copy_explains_every_flag(run):
    told = flags_of(run("copy", "--help").stdout)
    assert told.keys() == {"--from", "--to", "--json", "--data", "--store", "--log-level", "--log-format"}
    assert "no server may be using it" in told["--from"] and told["--from"].endswith("[the folder of --data]")
    assert "password is refused" in told["--to"] and "QUIPU_STORE" in told["--to"]
    refused = run("copy", "--to", "postgres://quipu:secret@127.0.0.1:1/quipu")
    assert refused.returncode == 2 and "secret" not in refused.stderr


def test_the_help_of_demo_explains_every_flag(run):
    told = flags_of(run("demo", "--help").stdout)
    assert told.keys() == {"--listen", "--seconds"}
    assert told["--listen"].endswith("[127.0.0.1:8080]") and told["--seconds"].endswith("[60]")


def test_the_options_of_commands_that_call_a_server_name_them_all(run):
    """They are those whose help begins with these options."""
    text = run("help").stdout
    called = text.split("With a running server")[1].split("\n\n")[1]
    commands = set(re.findall(r"^  quipu (\S+)", called, re.MULTILINE))
    options = re.search(r"^Commands that call a running server:\n\n((?:  .*\n)+)", text, re.MULTILINE).group(1).splitlines()
    assert len(commands) == 5 and len(options) == 3
    for line in options:
        assert all(re.search(rf"\b{command}\b", line) for command in commands), line


def test_the_options_of_the_sender_are_among_those_of_services(run):
    (services,) = re.findall(r"^Services:\n\n((?:  .*\n)+)", run("help").stdout, re.MULTILINE)
    assert "--sms-channel" in services and "--sms-parallel" in services


def test_help_wins_over_everything_else_on_the_line(run):
    done = run("dlq", "discard", "--nonsense", "--help")
    assert (done.returncode, done.stdout) == (0, run("help", "dlq").stdout)


def test_every_option_is_in_one_group(run):
    text = run("help").stdout
    options = re.findall(r"^  --([a-z0-9-]+)", text, re.MULTILINE)
    settings = re.findall(r"^([a-z0-9-]+) = ", run("serve", "--print-config").stdout, re.MULTILINE)
    assert len(settings) > 50
    assert sorted(set(options) - {"config", "print-config", "check-config"}) == sorted(settings)
    assert len(options) == len(set(options))
    assert "[127.0.0.1:8080]" in text and "[1024]" in text  # the defaults
    groups = re.findall(r"^([A-Z][A-Za-z, ]+):$", text, re.MULTILINE)
    assert {"Stores, buses and cache", "Who may call", "Limits and times"} <= set(groups)


@pytest.mark.parametrize("words, guess", [
    (["servee"], "did you mean serve?"), (["veryfy", "unread"], "did you mean verify?"),
    (["help", "dql"], "did you mean dlq?"), (["sing"], "see quipu help"),
    (["serve", "--drian-delay", "5s"], "did you mean --drain-delay?"),
    (["serve", "--max_connections=5"], "did you mean --max-connections?"),
    (["serve", "--sing"], "see quipu help"),
    (["serve", "--chekc-config"], "did you mean --check-config?"), (["serve", "--confg", "x"], "did you mean --config?"),
    (["serve", "--print-conf"], "did you mean --print-config?"), (["health", "--jsno"], "did you mean --json?"),
    (["erase-user", "alice", "--dryrun"], "did you mean --dry-run?"), (["dlq", "replay", "sms", "--al"], "did you mean --all?"),
    (["dlq", "lst"], "did you mean list?"), (["keys", "nwe", "shop"], "did you mean new?"),
    (["outbox", "resent", "--since", "1h"], "did you mean resend?"), (["verify", "limts"], "did you mean limits?"),
    (["verify", "song"], "usage: quipu verify"),
])
def test_what_was_mistyped_is_refused_with_a_guess(run, words, guess):
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert guess in done.stderr


def test_an_unknown_variable_is_a_warning_with_a_guess(run):
    done = run("serve", "--check-config", env={"QUIPU_BACH_MAX": "5", "QUIPU_SONG": "la"})
    assert (done.returncode, done.stdout) == (0, "ok\n")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["level"] for line in lines} == {"warn"}
    assert sorted(line["message"] for line in lines) == [
        "the variable QUIPU_BACH_MAX is not known and has no effect; did you mean QUIPU_BATCH_MAX?",
        "the variable QUIPU_SONG is not known and has no effect"]


@pytest.mark.parametrize("words", [
    ["health"], ["dlq", "list"], ["outbox", "resend", "--since", "1h"], ["verify"], ["erase-user", "alice"], ["copy"]],
    ids=lambda words: words[0])
def test_commands_that_are_no_server_warn_of_an_unknown_variable_too(run, free_port, words):
    done = run(*words, env={"QUIPU_SERVR": "http://x", "QUIPU_SERVER": f"http://127.0.0.1:{free_port}"})
    assert done.returncode in (1, 2) and done.stdout == ""
    warning, reason = done.stderr.splitlines()
    assert json.loads(warning)["message"].endswith("did you mean QUIPU_SERVER?") and reason.startswith("quipu: ")


def test_variables_that_kubernetes_sets_for_a_service_are_no_warning(run):
    env = {"QUIPU_SERVICE_HOST": "10.0.0.1", "QUIPU_SERVICE_PORT_HTTP": "80", "QUIPU_PORT": "tcp://10.0.0.1:80",
           "QUIPU_PORT_80_TCP_ADDR": "10.0.0.1", "QUIPU_COUNTS_SERVICE_HOST": "10.0.0.2"}
    assert run("serve", "--check-config", env=env).stderr == ""


def test_check_config_says_ok_when_all_is_well(run):
    done = run("serve", "--check-config")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("option, url", [
    ("gateway-bus", "kafka://"), ("gateway-bus", "kafka://:9092"), ("gateway-bus", "kafka:///topic"),
    ("entitlements-bus", "nats://"), ("unread-bus", "amqp://"), ("unread-bus", "amqp://user:word@/"),
    ("cache", "redis://"), ("cache", "redis://:word@:6379"),
])
def test_a_url_without_a_host_is_refused(run, option, url):
    variable = "QUIPU_" + option.upper().replace("-", "_")
    done = run("serve", "--check-config", env={variable: url})
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--{option} has no host" in done.stderr


def test_a_lease_outlasts_the_slowest_delivery(run):
    """A process must not lose a claim while it still waits for the webhook."""
    assert run("serve", "--check-config", "--notify-timeout", "3s", "--notify-lease", "4s").returncode == 0
    done = run("serve", "--check-config", "--notify-timeout", "3001ms", "--notify-lease", "4s")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--notify-lease must be at least 1 s longer than --notify-timeout" in done.stderr


def test_json_of_commands_that_need_no_server(run):
    assert set(json.loads(run("version", "--json").stdout)) == {"version"}
    routes = [json.loads(line) for line in run("routes", "--json").stdout.splitlines()]
    plain = run("routes").stdout.splitlines()
    assert [" ".join(route[name] for name in ("method", "path", "access", "role")) for route in routes] == plain
    made = json.loads(run("keys", "new", "shop", "--json").stdout)
    assert made["key"].startswith("qk_shop_") and made["line"].startswith("shop ")
    assert run("version", "word").returncode == 2


def test_json_of_migrate(run):
    done = run("migrate", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"schema": "up to date", "distributed": False}), done.stderr


@pytest.mark.parametrize("command", ["serve", "routes"])
def test_json_of_the_settings(run, command):
    env = {"QUIPU_CACHE": "redis://:secret@127.0.0.1:1", "QUIPU_ALLOWED_HOSTS": "a\udcffb", "QUIPU_API_KEY_FILE": 'say "so"'}
    lines = [json.loads(line) for line in run(command, "--print-config", "--json", "--lanes", "2", env=env).stdout.splitlines()]
    assert {tuple(line) for line in lines} == {("option", "value", "source")}
    shown = {line["option"]: (line["value"], line["source"]) for line in lines}
    assert list(shown) == re.findall(r"^([a-z0-9-]+) = ", run(command, "--print-config").stdout, re.MULTILINE)
    assert shown["lanes"] == ("2", "flag") and shown["loops"] == ("0", "default")
    assert shown["api-key-file"] == ('say "so"', "environment") and shown["allowed-hosts"][0] == "a\\xffb"
    assert shown["cache"][0].startswith("redis://") and "secret" not in shown["cache"][0]


def test_json_of_a_check(run):
    assert json.loads(run("serve", "--check-config", "--json").stdout) == {"status": "ok"}
    done = run("serve", "--json")
    assert (done.returncode, done.stdout) == (2, "") and "--json only with --print-config" in done.stderr


@pytest.mark.parametrize("usage", ["migrate [--json]", "migrate --distribute [--dry-run] [--json]", "dlq show KIND/ID [--json]"])
def test_the_help_says_which_commands_take_json(run, usage):
    assert f"  quipu {usage} " in run("help", usage.split()[0]).stdout


def test_json_of_health_and_erase_user(binary, serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "dialogs,counters")
    url = f"http://127.0.0.1:{server.port}"
    assert json.loads(quipu.run(binary, "health", "--json", "--server", url).stdout) == {"status": "ok"}
    lines = [json.loads(line) for line in
             quipu.run(binary, "erase-user", "alice", "--dry-run", "--json", "--server", url).stdout.splitlines()]
    assert {line["service"]: "places" in line for line in lines} == {
        "dialogs": True, "counters": True, "entitlements": False, "notifications": False, "gateway": False}


@pytest.mark.parametrize("words", [["migrate"], ["erase-user", "alice"], ["copy", "--from", "data", "--to", "x"], ["routes"]],
                         ids=" ".join)
@pytest.mark.parametrize("flag", ["--check-config", "--print-config"])
def test_a_command_that_only_shows_its_settings_does_nothing_else(binary, tmp_path, words, flag):
    done = quipu.run(binary, *words, flag, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n" if flag == "--check-config" else "batch-max = " in done.stdout
    assert list(tmp_path.iterdir()) == []
