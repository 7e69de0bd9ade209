"""A Twirp client that shares nothing with Quipu: protobuf-ts from npm, generated from proto/ and run by Node.

It is not among Debian's packages, so where Node, npm or its registry is not there, this is skipped and says so. As it
comes from the network, it runs in make test-full; google.protobuf is the other side in test_pots_wire.py.
"""

import pathlib
import shutil
import subprocess

import pytest

from harness.waiting import HANG_S

SOURCE = pathlib.Path(__file__).resolve().parent / "node"
PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"


@pytest.fixture(scope="module")
def node_client(tmp_path_factory):
    """A folder with the client, its packages and the generated code."""
    for program in ("node", "npm", "protoc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    folder = tmp_path_factory.mktemp("node")
    for file in SOURCE.iterdir():
        shutil.copy(file, folder)
    try:
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline"],
            cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm's registry does not answer")
    if done.returncode != 0:
        pytest.skip(f"npm cannot install the client: {done.stderr.strip().splitlines()[-1]}")
    (folder / "generated").mkdir()
    subprocess.run(
        ["protoc", "--plugin=protoc-gen-ts=node_modules/.bin/protoc-gen-ts", "--ts_out=generated",
         "--ts_opt=output_javascript,output_legacy_commonjs,use_proto_field_name", f"--proto_path={PROTO}",
         "--proto_path=/usr/include", "pot.proto", "coin.proto", "google/protobuf/timestamp.proto"],
        cwd=folder, check=True, capture_output=True, text=True, timeout=HANG_S)
    return folder / "client.js"


@pytest.mark.full
def test_an_independent_client_makes_every_call_in_both_encodings(node_client, serve, store):
    server = serve(store, "--roles", "pots")
    done = subprocess.run(
        ["node", str(node_client), str(server.port)], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["protobuf ok", "json ok"]
