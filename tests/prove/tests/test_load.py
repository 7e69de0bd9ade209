"""prove-load against servers that agree to everything, or to nothing: what it asks for."""

import concurrent.futures
import contextlib
import http.server
import pathlib
import shutil
import subprocess
import threading

import pytest

from engines.waiting import HANG_S, wait_until

PROVE = pathlib.Path(__file__).resolve().parents[1]
NEW = {"batch", "atomic", "take", "readupto"}  # what version 0.1.0 did not have


class Agreeing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b'{"pot_id":1,"messageId":"m1"}'
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    do_GET = do_POST = _answer  # noqa: N815 (names of the library)


class LockedOnce(Agreeing):
    """Whoever wants to take coins out finds the pot locked at the first attempt."""

    keys = set()

    def _answer(self):
        key = self.headers.get("Idempotency-Key")
        if not self.path.endswith("RemoveCoins") or key in self.keys:
            super()._answer()
            return
        self.keys.add(key)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b'{"code":"aborted","msg":"try again","meta":{"reason":"POT_LOCKED"}}'
        self.wfile.write(b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    do_GET = do_POST = _answer  # noqa: N815 (names of the library)


@contextlib.contextmanager
def serving(handler):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(name="port", scope="module")
def port_fixture():
    with serving(Agreeing) as port:
        yield port


@pytest.fixture(name="program", scope="module")
def program_fixture(tmp_path_factory):
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("load")

    def compile_one(source):
        result = folder / (source.stem + ".o")
        subprocess.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", f"-I{PROVE.parents[1] / 'bench'}", "-c", source, "-o", result],
                       check=True)
        return result

    with concurrent.futures.ThreadPoolExecutor() as pool:
        objects = list(pool.map(compile_one, PROVE.glob("load*.c")))
    subprocess.run(["cc", "-o", folder / "prove-load", *objects], check=True)
    return folder / "prove-load"


def attempts_in(folder):
    """The words of every first attempt: time, mark, number, target, key, kind, arguments."""
    lines = [line for path in folder.glob("*.log") for line in path.read_text(encoding="ascii").splitlines(keepends=True)]
    return [line.split() for line in lines if line.endswith("\n") and line.split()[1] == ">"]


def load_until(is_enough, program, port, folder, *options, roles="counts,gateway,entitlements,pots,dialogs"):
    """Plays until `is_enough` says so of the attempts in the log, and returns them all."""
    folder.mkdir()
    with subprocess.Popen(
            [program, "--targets", f"127.0.0.1:{port}", "--roles", roles,
             "--seed", "7", "--seconds", "3600", "--rate", "800", "--connections", "8", "--log", folder, *options],
            stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: is_enough(attempts_in(folder)) or process.poll() is not None, "enough was asked for")
        process.terminate()
        assert process.wait(HANG_S) == 0
    return attempts_in(folder)


def kinds_of(attempts):
    return {line[5] for line in attempts}


def test_the_load_of_an_upgrade_asks_for_nothing_that_is_new(program, port, tmp_path):
    everything = load_until(lambda attempts: kinds_of(attempts) > NEW, program, port, tmp_path / "all")
    known = kinds_of(everything) - NEW
    old = load_until(lambda attempts: len(attempts) > 2 * len(everything) and known <= kinds_of(attempts),
                     program, port, tmp_path / "old", "--previous")
    assert not kinds_of(old) & NEW
    assert all(line[8:10] == ["-", "-"] for line in old if line[5] == "create" and len(line) == 10), "no bounds"


def test_what_was_aborted_is_not_repeated_as_if_its_answer_were_stored(program, tmp_path):
    """A server stores no answer that asks to try again, so the repeat may get another one."""
    log = tmp_path / "pots" / "pots.log"
    with serving(LockedOnce) as port:
        load_until(lambda _: log.exists() and log.read_text(encoding="ascii").count(" * ") >= 20, program, port, log.parent,
                   roles="pots")
    lines = [line.split(" ", 4) for line in log.read_text(encoding="ascii").splitlines()]
    aborted = {line[2] for line in lines if line[1] == "<" and line[3] == "409"}
    assert len(aborted) > 100
    assert not aborted & {line[2] for line in lines if line[1] == "*"}
