"""The server's own opinion: `quipu verify` must agree."""

import json
import subprocess

from .result import Finding, Invariant


def check(cluster):
    if not cluster.quipu or not cluster.servers:
        return []
    command = [cluster.quipu, "verify", "--json", "--server", f"http://{cluster.servers[0]}"]
    if cluster.key_file:
        command += ["--api-key-file", str(cluster.key_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    invariant = Invariant("quipu verify agrees", sum(_checked(line) for line in done.stdout.splitlines()))
    if done.returncode != 0:
        invariant.findings.append(Finding(f"quipu verify ended with {done.returncode}",
                                          (done.stdout + done.stderr).splitlines()[:20]))
    return [invariant]


def _checked(line):
    """How many rows a service looked at: the last line of each says so."""
    return json.loads(line).get("checked", 0) if line.startswith("{") else 0
