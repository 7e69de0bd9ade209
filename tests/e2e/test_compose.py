"""docker-compose.yml: valid, closed to the outside, complete; and the same processes started without containers, with
what the file gives them, so that it cannot rot."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from engines import process
from harness import compose, readme
from harness.quipu import environment, run
from harness.waiting import HANG_S, wait_until

ROOT = compose.ROOT
ENGINES_WITH_DATA = {"postgres", "kafka", "nats", "rabbitmq"}


@pytest.fixture(scope="module")
def document():
    return compose.load()


@pytest.fixture(scope="module")
def known_roles(binary):
    refused = run(binary, "serve", "--roles", "none-such").stderr
    return refused.split("roles are: ")[1].strip().split(", ")


# ---- the file


def test_docker_compose_understands_the_file():
    command = next(([*words] for words in (["docker-compose"], ["docker", "compose"]) if shutil.which(words[0])), None)
    if command is None:
        pytest.skip("docker-compose is not installed")
    done = subprocess.run([*command, "-f", str(compose.FILE), "config", "--quiet"], cwd=ROOT, capture_output=True,
                          text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_role_of_the_program_is_a_service_and_an_image(document, known_roles):
    message = "a new role needs a service in docker-compose.yml and a word in scripts/image.sh"
    services = compose.roles(document)
    assert list(services) == ["all", *known_roles], message
    script = (ROOT / "scripts/image.sh").read_text(encoding="utf-8")
    assert re.search(r'^roles="(.*)"$', script, re.MULTILINE).group(1).split() == ["all", *known_roles], message
    for role, service in services.items():
        assert document["services"][compose.name_of(role)] is service
        assert service["image"] == compose.image_of(role)
        assert service["build"]["dockerfile"] == "deploy/Containerfile" and service["build"]["context"] == "."


def test_the_engines_are_there_and_keep_their_data_in_named_volumes(document):
    assert compose.engines(document).keys() == compose.PORTS.keys()
    for name, service in compose.engines(document).items():
        volumes = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert volumes == ([f"{name}-data"] if name in ENGINES_WITH_DATA else []), name
        assert not service["image"].endswith(":latest") and ":" in service["image"], name
    assert document["volumes"].keys() == {f"{name}-data" for name in ENGINES_WITH_DATA}


def test_everything_has_a_health_check_and_waits_for_what_it_speaks_to(document):
    for name, service in document["services"].items():
        check = service["healthcheck"]
        assert check["test"][0] == "CMD" and check["retries"] >= 3 and check["interval"] and check["timeout"], name
    for role, service in compose.roles(document).items():
        assert service["healthcheck"]["test"] == ["CMD", "quipu", "health"]
        waits = {name: how["condition"] for name, how in service["depends_on"].items()}
        assert waits == {name: "service_healthy" for name in compose.hosts(service["environment"])}, role


def test_ports_are_published_on_loopback_only_and_none_twice(document):
    published = [port for service in document["services"].values() for port in service.get("ports", [])]
    assert len(published) == len(set(published)) == len(compose.roles(document))
    for port in published:
        assert re.fullmatch(r"127\.0\.0\.1:\d+:8080", port), port
    for service in document["services"].values():
        assert not {"network_mode", "privileged", "cap_add", "pid"} & service.keys()


def test_every_role_asks_for_a_key_of_the_file_that_is_mounted(document):
    for role, service in compose.roles(document).items():
        settings = compose.environment(role, service)
        assert "QUIPU_INSECURE" not in settings
        assert pathlib.Path(compose.secrets(document, service)[settings["QUIPU_API_KEYS"]]).exists()


def test_the_demo_key_is_the_one_that_is_told_and_is_called_so():
    key = compose.demo_key()
    assert key.startswith("qk_demo_not-a-secret")
    for told in ("docker-compose.yml", "README.md"):
        assert key in (ROOT / told).read_text(encoding="utf-8"), told


def test_roles_can_write_nowhere_and_have_no_privileges(document):
    for service in compose.roles(document).values():
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_memory_of_every_role_is_limited(document):
    for role, service in compose.roles(document).items():
        assert service["mem_limit"] == "1g", role


def test_the_settings_are_accepted_as_they_stand_there(document, binary, tmp_path):
    for role, service in compose.roles(document).items():
        settings = compose.environment(role, service)
        assert settings["QUIPU_LISTEN"] == "0.0.0.0:8080" and settings["QUIPU_ROLES"] == role
        settings["QUIPU_API_KEYS"] = compose.secrets(document, service)[settings["QUIPU_API_KEYS"]]
        done = run(binary, "serve", "--check-config", cwd=tmp_path, env=settings)
        assert done.returncode == 0, done.stderr


# ---- the same processes


@pytest.fixture(scope="module")
def composition(binary, tmp_path_factory, request):
    """All engines and all roles, as `docker compose up` would have them."""

    def lend(name):
        """An engine of the run, in which nobody else uses what the image makes: its user, database, virtual host."""
        try:
            return request.getfixturevalue(f"{name}_server")
        except pytest.skip.Exception as reason:
            raise compose.Unavailable(str(reason)) from None

    composition = compose.Composition(binary, tmp_path_factory.mktemp("composition"), lend)
    try:
        yield composition.start()
    finally:
        composition.close()


def ask(composition, role, path, body=None, headers=None):
    """One request to a role; its JSON."""
    headers = {"Authorization": f"Bearer {compose.demo_key()}", **(headers or {})}
    answer = composition.services[role].ask("GET" if body is None else "POST", path, body, headers)
    assert answer.status in (200, 201), answer
    return answer.json()


def needs(composition, *roles):
    for role in roles:
        if role in composition.missing:
            pytest.skip(f"{role} does not run: {composition.missing[role]}")


def use_all(composition):
    """Every command of the README, with nothing but a key."""
    needs(composition, "all")
    readme.follow(composition.services["all"], {"Authorization": f"Bearer {compose.demo_key()}"})


def use_counts(composition):
    assert ask(composition, "counts", "/api/v1/internal/counts", {"itemId": "a", "initialValue": 4})["currentValue"] == 4
    assert ask(composition, "counts", "/api/v1/counts/a/increase", {"amount": 3}) == {"itemId": "a", "value": 7}


def use_gateway(composition):
    assert ask(composition, "gateway", "/api/config", {"userId": 7, "rateLimit": 5, "timeWindow": 60})["rateLimit"] == 5
    assert ask(composition, "gateway", "/api/send", {"userId": 7, "message": "from afar"})["remaining"] == 4


def use_sender(composition):
    needs(composition, "gateway")
    ask(composition, "gateway", "/api/config", {"userId": 8, "rateLimit": 5, "timeWindow": 60})
    ask(composition, "gateway", "/api/send", {"userId": 8, "message": "for the sender"})
    senders = [composition.services[name].output for name in ("sender", "all") if name in composition.services]
    wait_until(lambda: any("SMS SENT userId=8 message=for the sender" in output.read_text() for output in senders),
               "one of the processes that send has it")


def grant(composition, user):
    body = {"user_id": user, "stock_keeping_unit": "item1", "reason": "purchase", "purchase_id": f"p-{user}"}
    return ask(composition, "entitlements", "/v1/entitlements/grants", body, {"Idempotency-Key": f"p-{user}"})


def use_entitlements(composition):
    grant(composition, "u1")
    (held,) = ask(composition, "entitlements", "/v1/users/u1/entitlements")["entitlements"]
    assert (held["stock_keeping_unit"], held["status"]) == ("item1", "ACTIVE")


def use_notifications(composition):
    needs(composition, "entitlements")
    grant(composition, "u2")

    def sent():
        inbox = ask(composition, "notifications", "/debug/notification/inbox/u2")["notifications"]
        return [entry["event_type"] for entry in inbox if entry["status"] == "SENT"]

    assert wait_until(sent, "the notification is sent") == ["EntitlementGranted"]


def use_pots(composition):
    pot = ask(composition, "pots", "/twirp/pyggpot.pot.Pot/CreatePot", {"pot_name": "PP-P", "max_coins": 100})
    coins = {"pot_id": pot["pot_id"], "coins": [{"kind": "GOLD", "count": 5}]}
    ask(composition, "pots", "/twirp/pyggpot.coin.Coin/AddCoins", coins)
    held = ask(composition, "pots", "/twirp/pyggpot.coin.Coin/ListCoins", {"pot_id": pot["pot_id"]})
    assert held == {"coins": coins["coins"]}


def send(composition, receiver):
    """A message, and its id."""
    body = {"receiverId": receiver, "text": "from afar"}
    return ask(composition, "dialogs", "/dialogs/send", body, {"X-User-Id": "alice"})["messageId"]


def use_dialogs(composition):
    message_id = send(composition, "bob")
    (message,) = ask(composition, "dialogs", "/dialogs/list?receiverId=alice", headers={"X-User-Id": "bob"})
    assert (message["id"], message["text"], message["isRead"]) == (message_id, "from afar", False)


def use_counters(composition):
    """By way of RabbitMQ, both events; what is looked at in between is in Redis afterwards."""
    needs(composition, "dialogs")

    def unread():
        return ask(composition, "counters", "/counters/user/carol/UnreadMessages")["count"]

    ids = [send(composition, "carol") for _ in range(3)]
    wait_until(lambda: unread() == 3, "the counter has heard of three messages")
    ask(composition, "dialogs", "/dialogs/read-batch", {"messageIds": ids[:2]}, {"X-User-Id": "carol"})
    wait_until(lambda: unread() == 1, "the counter has heard of the reading")


@pytest.mark.parametrize("role", list(compose.roles(compose.load())))
def test_a_request_through_every_role(composition, role):
    use = globals().get(f"use_{role}")
    assert use, f"write use_{role}(): a request that goes through the role {role}"
    needs(composition, role)
    use(composition)
    assert composition.services[role].ask("GET", "/healthz").status == 200
    assert composition.services[role].ask("GET", "/metrics").status == 401, "who shows no key is nobody"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a namespace needs root and unshare")
def test_as_the_first_process_of_a_container_it_ends_when_it_is_told_to(binary, tmp_path):
    """The kernel keeps signals from a first process that does not expect them."""
    output = tmp_path / "stdout"
    with output.open("wb") as stdout, (tmp_path / "stderr").open("wb") as stderr, process.running(
        ["unshare", "--pid", "--fork", "--kill-child", binary, "serve", "--listen", "127.0.0.1:0", "--data", "d"],
        cwd=tmp_path, env=environment({"ASAN_OPTIONS": "detect_leaks=0"}), stdout=stdout, stderr=stderr,
    ) as outside:
        wait_until(lambda: "listening on" in output.read_text(), "it listens")
        (inside,) = process.children(outside.pid)
        os.kill(inside, signal.SIGTERM)
        assert outside.wait(HANG_S) == 0
