"""The messages of proto/ as python3-protobuf sees them: compiled by protoc, independent of the program."""

import importlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
_compiled = {}


def load(path):
    """Returns the module of a .proto file, which is given by its path from the root of the repository."""
    if path not in _compiled:
        _compiled[path] = _compile(ROOT / path)
    return _compiled[path]


def _compile(source):
    folder = tempfile.mkdtemp(prefix="quipu-e2e-protos-")
    try:
        subprocess.run(
            ["protoc", f"--proto_path={source.parent}", "--proto_path=/usr/include", f"--python_out={folder}", str(source)],
            check=True, capture_output=True, text=True,
        )
        sys.path.insert(0, folder)
        try:
            return importlib.import_module(f"{source.stem}_pb2")
        finally:
            sys.path.remove(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
