"""The program under test: started on a free port, watched, and always ended by its pid."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile

from engines.process import Process, end, start

from .http import Connection
from .waiting import HANG_S, wait_until

LISTENING = re.compile(r"^quipu listening on https?://(\S+):(\d+)\s*$", re.MULTILINE)
SANITIZER_REPORT = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:|Assertion .* failed")
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def environment(extra=None):
    """Returns the tests' environment without any settings of Quipu."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("QUIPU_")}
    return {**own, **SANITIZER_OPTIONS, **(extra or {})}


def run(binary, *arguments, cwd=None, env=None, timeout=HANG_S):
    """Runs a command of the program that ends by itself: migrate, routes, help, a refused start."""
    done = subprocess.run(
        [str(binary), *map(str, arguments)], cwd=cwd, env=environment(env), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=timeout, check=False,
    )
    assert not SANITIZER_REPORT.search(done.stderr), done.stderr
    return done


def refused_migrate(binary, reason, *arguments):
    """Runs a migrate that retries until it has logged the reason, and ends it. Returns its log."""
    with tempfile.NamedTemporaryFile() as file:
        log = pathlib.Path(file.name)
        process = start([str(binary), "migrate", "--deadline", "1h", *map(str, arguments)], env=environment(),
                        stdout=subprocess.DEVNULL, stderr=file)
        try:
            wait_until(lambda: reason in log.read_text(errors="replace"), reason, explain=lambda: log.read_text(errors="replace"))
        finally:
            end(process, signal.SIGTERM)
        return log.read_text(errors="replace")


def read_metrics(answer):
    """Returns every sample of an answer of /metrics: {'name{labels}': value}."""
    lines = [line for line in answer.body.decode().splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


class Quipu(Process):
    """One `quipu serve`. Its standard output and its log are files in `directory`."""

    name = "quipu"
    base_arguments = ["--listen", "127.0.0.1:0", "--roles", "counts"]

    def __init__(self, binary, arguments, directory, env=None, tls=None):
        """`tls` is an ssl.SSLContext with what clients trust, for a server with --tls-cert."""
        super().__init__(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.output = self.directory / "stdout"
        self.errors = self.log = self.directory / "stderr"
        self.environment = environment(env)
        self.tls = tls
        self._words = [str(binary), "serve", *self.base_arguments, *map(str, arguments)]
        self.host = None
        self.port = None
        self._expected_exit = 0

    def _command(self):
        return self._words

    def _answers(self):
        """Reads the address that it prints when it listens."""
        line = LISTENING.search(self.output.read_text(errors="replace"))
        if line is not None:
            self.host, self.port = line.group(1), int(line.group(2))
        return line

    def connect(self, timeout=HANG_S):
        return Connection(self.port, timeout=timeout, tls=self.tls)

    def ask(self, method, path, body=None, headers=None):
        """Sends one request on a connection of its own."""
        with self.connect() as connection:
            return connection.ask(method, path, body, headers)

    def ready(self):
        return self.ask("GET", "/readyz").status == 200

    def wait_ready(self):
        wait_until(self.ready, "/readyz answers 200")
        return self

    def dependencies(self):
        """{name: "up" or "down"}"""
        return {entry["name"]: entry["status"] for entry in self.ask("GET", "/readyz").json()["dependencies"]}

    def wait_all_up(self):
        """Waits until everything is up, even what it can do without, such as a cache."""
        def are_up():
            return all(status == "up" for status in self.dependencies().values())

        wait_until(are_up, "everything is up")

    def resident_kib(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1))

    def metrics(self, headers=None):
        """Returns every sample of /metrics: {'name{labels}': value}."""
        return read_metrics(self.ask("GET", "/metrics", headers=headers))

    def metric(self, name):
        """Returns the sum of a metric over all its labels."""
        return sum(value for key, value in self.metrics().items() if key.split("{")[0] == name)

    def wait_reloaded(self, successful, headers=None):
        """Waits until the metric of the last SIGHUP has this value."""
        wait_until(lambda: self.metrics(headers)["quipu_last_reload_successful"] == successful,
                   f"quipu_last_reload_successful is {int(successful)}")

    def wait_exit(self, timeout=HANG_S):
        """Waits for the end and returns the exit status, which is negative for a signal."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"quipu still runs after {timeout:g} s") from None

    def stop(self):
        """Ends it in order: SIGTERM, exit status 0, no complaints."""
        self.signal(signal.SIGTERM)
        assert self.wait_exit() == 0, "SIGTERM ends in exit 0"

    def kill(self):
        """Kills it, so that the teardown does not complain. The exit status can still be checked."""
        self._expected_exit = -signal.SIGKILL
        self.signal(signal.SIGKILL)
        self.wait_exit()

    def crash(self, number):
        """Ends it with a signal that would leave a core dump."""
        self._expected_exit = -number
        self.signal(number)
        assert self.wait_exit() == -number

    def expect_to_be_killed(self):
        """Tells the teardown that the program will end itself at a failpoint."""
        self._expected_exit = -signal.SIGKILL
        assert self.wait_exit() == -signal.SIGKILL

    def cpu_seconds(self):
        """Returns the processor time that it has used so far."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        """Ends the process in the teardown, whatever state it is in, and then checks how it ended."""
        if self._process is None:
            return
        if self.running and self.stopped():
            self.thaw()
        end(self._process, signal.SIGTERM)
        self.check_log()
        assert self._process.returncode == self._expected_exit, f"quipu ended with {self._process.returncode}"

    def check_alive(self):
        """Called between tests that share a server."""
        assert self.running, f"quipu ended with {self._process.returncode}"
        self.check_log()

    def check_log(self):
        report = SANITIZER_REPORT.search(self.log_text())
        assert report is None, f"a sanitizer or an assertion spoke: {self.log_text()[report.start():][:6000]}"
