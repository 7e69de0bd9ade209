"""The OpenAPI document, judged by schemathesis: what it calls valid is accepted, what it calls wrong is refused, and every
answer is as it says. schemathesis/ has the exceptions, each with its reason."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from harness.keys import KeyFile

HERE = pathlib.Path(__file__).resolve().parent / "schemathesis"
PACKAGE = "schemathesis==4.32.5"  # a newer one may check more: raise it on purpose
INSTALL_MAX_S, RUN_MAX_S = 300, 900  # they only end a hang
SEED = "16"
STREAMS = 3  # routes that are left out
EVERYTHING = ("--max-examples", "4")
# Of other alphabets a schema cannot tell how long a text may be, so only refusals and answers can be judged.
OTHER_ALPHABETS = ("--max-examples", "3", "--phases", "fuzzing", "--generation-codec", "utf-8",
                   "--exclude-checks", "positive_data_acceptance")

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder with the public package."""
    folder = tmp_path_factory.mktemp("schemathesis")
    try:
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), PACKAGE],
                              capture_output=True, text=True, timeout=INSTALL_MAX_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("PyPI does not answer")
    if done.returncode != 0:
        pytest.skip(f"pip cannot install {PACKAGE}: {done.stderr.strip().splitlines()[-1]}")
    return folder


@pytest.mark.parametrize("choice", [EVERYTHING, OTHER_ALPHABETS], ids=["everything", "other-alphabets"])
def test_schemathesis_finds_no_difference_between_the_document_and_the_server(
        serve, sqlite_store, binary, package, tmp_path, choice):
    keys = KeyFile(binary, tmp_path / "keys")
    key = keys.new("robot", "admin")
    server = serve(sqlite_store, "--roles", "all", "--api-keys", keys.path)
    done = subprocess.run(
        [sys.executable, str(package / "bin/st"), "--config-file", str(HERE / "schemathesis.toml"),
         "run", f"http://127.0.0.1:{server.port}/openapi.json", "--header", f"Authorization: Bearer {key.shown}",
         "--seed", SEED, "--no-color", "--generation-database", "none", *choice],
        cwd=tmp_path, capture_output=True, text=True, timeout=RUN_MAX_S, check=False,
        env={**os.environ, "PYTHONPATH": f"{package}:{HERE}", "SCHEMATHESIS_HOOKS": "hooks"})
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]
    selected, total = map(int, re.search(r"Selected: (\d+)/(\d+)", done.stdout).groups())
    assert selected == total - STREAMS
