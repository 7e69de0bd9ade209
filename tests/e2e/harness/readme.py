"""The curl commands of the README, run as they stand there: each block is one script of bash."""

import json
import pathlib
import re
import subprocess
import tempfile

from .waiting import HANG_S, wait_until

README = pathlib.Path(__file__).resolve().parents[3] / "README.md"
ADDRESS = "http://127.0.0.1:8080"

# Fails where the server refuses, and keeps every answer and every failure.
CURL = """
set -o pipefail
curl() {
    local answer
    answer=$(command curl -sS -f "${ADDED[@]}" "$@") || { echo "curl $*" >> "$KEPT/failures"; return 1; }
    printf '%s\\n' "$answer" | tee -a "$KEPT/answers"
}
"""


def blocks():
    """The text of each block of curl commands."""
    texts = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return [text for text in texts if ADDRESS in text and "curl " in text]


def single_commands():
    """Every command that a block joins to others, as somebody may paste it alone."""
    joined = [re.sub(r"\|\n\s*", "| ", block.replace("\\\n", " ")) for block in blocks()]
    lines = [line.split("   #")[0].strip().removesuffix("&&") for text in joined for line in text.strip().splitlines()]
    return [line for line in lines if "curl " in line]


def run(server, block, headers=None, may_fail=False):
    """What the server answers to the commands of a block, of which none may fail unless the caller says so."""
    added = " ".join(f"-H '{name}: {value}'" for name, value in (headers or {}).items())
    with tempfile.TemporaryDirectory() as kept:
        script = f"ADDED=({added})\nKEPT={kept}\n{CURL}{block.replace(ADDRESS, f'http://127.0.0.1:{server.port}')}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=HANG_S, check=False)
        failures = pathlib.Path(kept, "failures")
        if not may_fail:
            assert done.returncode == 0 and not failures.exists(), f"{block}\n{done.stderr}"
        answers = pathlib.Path(kept, "answers")
        return [json.loads(line) for line in answers.read_text().splitlines()] if answers.exists() else []


def check(server, block, headers=None):
    """One block, with the answers that the page promises."""
    answers = run(server, block, headers)
    if "/counts" in block and "/increase" in block:
        created, first, again, read = answers
        assert created["itemId"] == "visits" and first == again and first["value"] == read["currentValue"] >= 1
    elif "/api/send" in block:
        limit, sent = answers
        assert limit["rateLimit"] == 5 and (sent["status"], sent["remaining"]) == ("QUEUED", 4)
    elif "/entitlements" in block:
        granted, held = answers
        assert (granted["stock_keeping_unit"], granted["status"]) == ("item1", "ACTIVE") and len(held["entitlements"]) == 1
    elif "/CreatePot" in block:
        pot, added, drawn, again = answers
        assert pot["pot_name"].startswith("savings-")
        assert added["coins"] == [{"kind": "BRONZE", "count": 20}, {"kind": "GOLD", "count": 5}]
        assert sum(entry["count"] for entry in drawn["coins"]) == 3 and drawn == again
    else:
        assert "/dialogs/send" in block
        wait_until(lambda: run(server, block, headers)[1]["count"] == 1, "the message is counted")


def follow(server, headers=None):
    """Every block once, as they stand there."""
    shown = blocks()
    assert len(shown) == 5
    for block in shown:
        check(server, block, headers)
