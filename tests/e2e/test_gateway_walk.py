"""The walk of docs/GATEWAY.md, from a limit to a signed webhook: its commands are run as they stand there."""

import json
import pathlib
import re
import shlex
import subprocess

import pytest

from harness.shown_receiver import shown_receiver
from harness.waiting import HANG_S, wait_until

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/GATEWAY.md"
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def shown():
    """The commands of the walk: the secret, the receiver, the server, and three requests."""
    section = PAGE.read_text(encoding="utf-8").split("## From a limit to a signed webhook")[1].split("\n## ")[0]
    return "".join(re.findall(r"```bash\n(.*?)```", section, re.DOTALL)).splitlines()


def bash(command, folder):
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.mark.parametrize("language", ["python", "js"])
def test_the_walk_leads_to_an_accepted_webhook(serve, sqlite_store, free_port, tmp_path, language):
    make_secret, receive, start, limit, send, look = shown()
    assert re.fullmatch(r"WEBHOOK_SECRET=\$\(cat webhook-secrets\) python3 receiver\.py +# or: node receiver\.js", receive)
    bash(make_secret, tmp_path)
    program, command, *options = shlex.split(start)
    assert (program, command) == ("build/quipu", "serve")
    options = [option.replace("127.0.0.1:9000", f"127.0.0.1:{free_port}").replace("webhook-secrets", str(tmp_path / "webhook-secrets"))
               for option in options]
    secret = (tmp_path / "webhook-secrets").read_text(encoding="utf-8").strip()
    server = serve(sqlite_store, "--roles", "all", *options)

    def ask(command):
        return bash(command.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}").replace("curl", "curl -sS -f", 1), tmp_path)

    def message(sent):
        return json.loads(ask(UUID.sub(UUID.search(sent).group(), look)))

    with shown_receiver(language, secret, free_port, tmp_path) as printed:
        assert json.loads(ask(limit))["rateLimit"] == 5
        sent = ask(send)
        name = json.loads(sent.split("\n")[-1])["messageId"]
        assert re.search(f"^location: /api/messages/{name}\r?$", sent, re.MULTILINE | re.IGNORECASE)
        wait_until(lambda: message(sent)["state"] == "SENT", "it is sent")
        assert re.search(f"^accepted .*{name}.*Hello!", printed.read_text(encoding="utf-8"), re.MULTILINE)
    waits = ask(send)
    failed = wait_until(lambda: [m for m in [message(waits)] if m["lastError"]], "the receiver is away")[0]
    assert failed["state"] == "QUEUED" and failed["attempts"] > 0
    with shown_receiver(language, secret, free_port, tmp_path):
        wait_until(lambda: message(waits)["state"] == "SENT", "the receiver is back")
