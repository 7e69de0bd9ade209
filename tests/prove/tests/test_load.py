"""prove-load against a server that agrees to everything: what it asks for."""

import concurrent.futures
import http.server
import pathlib
import shutil
import subprocess
import threading

import pytest

PROVE = pathlib.Path(__file__).resolve().parents[1]
NEW = {"batch", "atomic", "take", "readupto"}  # what version 0.1.0 did not have


class Agreeing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b'{"pot_id":1,"messageId":"m1"}'
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    do_GET = do_POST = _answer  # noqa: N815 (names of the library)


@pytest.fixture(name="port", scope="module")
def port_fixture():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agreeing) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(name="program", scope="module")
def program_fixture(tmp_path_factory):
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("load")

    def compile_one(source):
        result = folder / (source.stem + ".o")
        subprocess.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", f"-I{PROVE.parents[1] / 'bench'}", "-c", source, "-o", result], check=True)
        return result

    with concurrent.futures.ThreadPoolExecutor() as pool:
        objects = list(pool.map(compile_one, PROVE.glob("load*.c")))
    subprocess.run(["cc", "-o", folder / "prove-load", *objects], check=True)
    return folder / "prove-load"


def lines_of(program, port, folder, *options):
    """The words of every first attempt: time, mark, number, target, key, kind, arguments."""
    folder.mkdir()
    subprocess.run([program, "--targets", f"127.0.0.1:{port}", "--roles", "counts,gateway,entitlements,pots,dialogs",
                    "--seed", "7", "--seconds", "1", "--rate", "800", "--connections", "8", "--log", folder, *options],
                   check=True, timeout=60, stdout=subprocess.DEVNULL)
    words = [line.split() for path in folder.glob("*.log") for line in path.read_text(encoding="ascii").splitlines()]
    return [line for line in words if line[1] == ">"]


def test_the_load_of_an_upgrade_asks_for_nothing_that_is_new(program, port, tmp_path):
    everything = lines_of(program, port, tmp_path / "all")
    assert {line[5] for line in everything} > NEW
    old = lines_of(program, port, tmp_path / "old", "--previous")
    kinds = {line[5] for line in old}
    assert kinds == {line[5] for line in everything} - NEW
    assert all(line[8:10] == ["-", "-"] for line in old if line[5] == "create" and len(line) == 10), "no bounds"
