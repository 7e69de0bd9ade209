"""Every command that the README and the gateway's page show is run, or at least checked, as it stands there."""

import json
import pathlib
import re
import subprocess

from harness.quipu import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.1:8080"


def commands(page="README.md"):
    """The commands of all sh blocks, with continued lines joined and comments cut."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip()]


def run_curls(server, shown):
    """What the server answers to each command, in their order."""
    answers = []
    for command in shown:
        done = subprocess.run(
            ["bash", "-c", command.replace(ADDRESS, f"127.0.0.1:{server.port}").replace("curl", "curl -sS -f", 1)],
            capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        answers.append(json.loads(done.stdout))
    return answers


def test_the_curl_lines_of_the_readme_work_in_their_order(serve, sqlite_store):
    shown = [c for c in commands() if c.startswith("curl ")]
    answers = run_curls(serve(sqlite_store, "--roles", "all"), shown)
    assert len(shown) == 9
    assert answers[1] == {"itemId": "visits", "value": 1}
    assert answers[2] == {"itemId": "visits", "value": -2}
    assert answers[3]["currentValue"] == -2
    assert answers[4]["rateLimit"] == 5
    assert answers[5]["status"] == "QUEUED" and answers[5]["remaining"] == 4
    assert answers[6]["pot_id"] == 1 and answers[6]["pot_name"] == "savings"
    assert answers[7]["coins"] == [{"kind": "BRONZE", "count": 20}, {"kind": "GOLD", "count": 5}]
    assert sum(entry["count"] for entry in answers[8]["coins"]) == 3


def test_the_examples_of_pots_work_in_their_order(serve, sqlite_store):
    server = serve(sqlite_store, "--roles", "pots")
    text = (ROOT / "docs" / "POTS.md").read_text(encoding="utf-8")
    shown = re.findall(r"```sh\n(curl .*?)```\n+```json\n(.*?)```", text.replace("\\\n", " "), re.DOTALL)
    assert len(shown) >= 6
    for command, answer in shown:
        done = subprocess.run(
            ["bash", "-c", command.replace(ADDRESS, f"127.0.0.1:{server.port}").replace("curl", "curl -sS", 1)],
            capture_output=True, text=True, timeout=20, check=True)
        told, expected = json.loads(done.stdout), json.loads(answer)
        for changing in ("create_time", "coins") if "\"count\":3}" in command else ("create_time",):
            assert (changing in told) == (changing in expected)
            told.pop(changing, None), expected.pop(changing, None)
        assert told == expected, command


def test_the_curl_lines_of_the_gateways_page_work_in_their_order(serve, sqlite_store):
    shown = commands("docs/GATEWAY.md")
    limit, first, looked, keyed = run_curls(serve(sqlite_store, "--roles", "all"), shown)
    assert (limit["rateLimit"], limit["currentCount"]) == (5, 0)
    assert (first["status"], first["remaining"]) == ("QUEUED", 4)
    assert (looked["userId"], looked["currentCount"]) == ("1001", 1)
    assert (keyed["status"], keyed["remaining"]) == ("QUEUED", 3)


def test_the_gateways_page_tells_the_codes_of_its_api_and_no_others():
    table = set(re.findall(r"ROW\((\w+),", (ROOT / "src/base/status.h").read_text(encoding="utf-8")))
    documents = "".join((ROOT / "api" / name).read_text(encoding="utf-8") for name in ("common.json", "gateway.json"))
    errors = (ROOT / "docs/GATEWAY.md").read_text(encoding="utf-8").split("## Errors")[1]
    told = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", errors))
    wanted = {code for code in table if f'"{code}"' in documents or f"`{code}`" in documents}
    assert len(wanted) > 10 and wanted <= told <= table


def test_the_make_targets_of_the_readme_exist():
    targets = [c.split()[1] for c in commands() if c.startswith("make ")]
    assert targets == ["run", "test"]
    for target in targets:
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_quipu_commands_of_the_readme_are_accepted(binary):
    shown = [c.split()[1:] for c in commands() if c.startswith("build/quipu ")]
    assert shown
    for arguments in shown:
        done = run(binary, *arguments, "--check-config")
        assert done.returncode == 0, done.stderr


def test_make_run_shows_three_curl_lines_that_work(serve, sqlite_store):
    server = serve(sqlite_store)
    recipe = subprocess.run(["make", "-n", "run"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    shown = subprocess.run(
        ["bash", "-c", "\n".join(line for line in recipe.splitlines() if line.startswith("echo"))],
        capture_output=True, text=True, check=True).stdout
    curls = [line.strip() for line in shown.splitlines() if line.strip().startswith("curl")]
    assert len(curls) == 3
    run_curls(server, curls)
