"""The curl commands of the README, run as they stand there."""

import json
import pathlib
import re
import subprocess

from .waiting import HANG_S, wait_until

README = pathlib.Path(__file__).resolve().parents[3] / "README.md"
ADDRESS = "http://127.0.0.1:8080"


def blocks():
    """Each block of curl commands, as a list of commands with continued lines joined."""
    texts = re.findall(r"```sh\n(curl .*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return [text.replace("\\\n", " ").strip().splitlines() for text in texts]


def run(server, block, headers=None):
    """What the server answers to each command; `headers` are added to all of them."""
    answers = []
    added = "".join(f" -H '{name}: {value}'" for name, value in (headers or {}).items())
    for command in block:
        assert command.startswith("curl ") and ADDRESS in command
        shown = command.replace(ADDRESS, f"http://127.0.0.1:{server.port}").replace("curl", f"curl -sS -f{added}", 1)
        done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        answers.append(json.loads(done.stdout))
    return answers


def follow(server, headers=None):
    """Every command once, with the answers that the page promises."""
    counts, limits, entitlements, pots, dialogs = blocks()
    created, first, again, read = run(server, counts, headers)
    assert created["itemId"] == "visits" and first == again == {"itemId": "visits", "value": 1} and read["currentValue"] == 1
    limit, sent = run(server, limits, headers)
    assert limit["rateLimit"] == 5 and (sent["status"], sent["remaining"]) == ("QUEUED", 4)
    granted, held = run(server, entitlements, headers)
    assert (granted["stock_keeping_unit"], granted["status"]) == ("item1", "ACTIVE") and len(held["entitlements"]) == 1
    pot, added, drawn = run(server, pots, headers)
    assert (pot["pot_id"], pot["pot_name"]) == (1, "savings")
    assert added["coins"] == [{"kind": "BRONZE", "count": 20}, {"kind": "GOLD", "count": 5}]
    assert sum(entry["count"] for entry in drawn["coins"]) == 3
    wait_until(lambda: run(server, dialogs, headers)[1]["count"] == 1, "the message is counted")
