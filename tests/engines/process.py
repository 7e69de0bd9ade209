"""One way to run a program beside the tests: start it, wait until it answers, read its log, end it.

Whatever ends the test run ends its processes too, `kill -9` included. `setpriv` asks the kernel to kill the process as
soon as the thread that started it is gone (PR_SET_PDEATHSIG) and then becomes the program. One thread starts all
processes and lives as long as this process does, because a caller may be a thread that ends earlier.
"""

import concurrent.futures
import contextlib
import ctypes
import pathlib
import signal
import subprocess

from .waiting import HANG_S, wait_until

PR_SET_PDEATHSIG = 1
_starter = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")


def die_with_parent():
    """The kernel kills this process as soon as the thread that started it is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def with_us(command, user=None):
    """A command that runs `command`, as `user` if one is named, and ends when its parent does."""
    identity = ["--reuid", user, "--regid", user, "--init-groups"] if user else []
    return ["setpriv", *identity, "--pdeathsig", "KILL", "--", *map(str, command)]


def start(command, user=None, **options):
    """A subprocess.Popen that ends with this process. `options` are Popen's.

    By default there is no standard input, and Ctrl-C at the terminal does not reach the program: fixtures end it.
    """
    options = {"stdin": subprocess.DEVNULL, "start_new_session": True, **options}
    return _starter.submit(subprocess.Popen, with_us(command, user), **options).result()


@contextlib.contextmanager
def running(command, **options):
    """The same for the time of a block; a process that still runs then is killed."""
    process = start(command, **options)
    try:
        yield process
    finally:
        end(process)


def end(process, how=signal.SIGKILL):
    """Sends a signal to a process that may have ended already, waits for its end, and kills it if that does not come."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(HANG_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def children(pid):
    """The processes that a process has started and that still run."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # of a thread that has just ended
            found += map(int, task.read_text().split())
    return found


def is_stopped(pid):
    """Whether SIGSTOP holds the process."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def tail(path, size=4000):
    return path.read_text(errors="replace")[-size:] if path.exists() else ""


class Process:
    """A program that runs in `directory` until it is told to end, and may be started again.

    A subclass has `name`, `_command()` and `_answers()`, which is true once the program can be used. What the program
    prints is in the file `output`, its errors in `errors`. `log` is where it explains itself.
    """

    name = "process"
    environment = None
    user = None

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.output = self.errors = self.directory / "output"
        self.log = self.directory / "log"
        self._process = None

    def start(self):
        """Returns when the program answers, or has answered and was killed since, as a failpoint does it."""
        assert not self.running, f"{self.name} runs already"
        self._process = self._spawn()
        try:
            wait_until(lambda: self._process.poll() is not None or self._answers(), f"{self.name} answers")
            ended = self._process.poll()
            if ended == -signal.SIGKILL and self._answers():
                return self
        except AssertionError:
            ended = "no answer"
        if ended is not None:
            words = tail(self.output) + tail(self.log)
            self._end(signal.SIGKILL)
            raise RuntimeError(f"{self.name} does not start ({ended}):\n{words}")
        return self

    def _spawn(self):
        with contextlib.ExitStack() as files:
            output = files.enter_context(self.output.open("ab"))
            errors = output if self.errors == self.output else files.enter_context(self.errors.open("ab"))
            return start(self._command(), self.user, env=self.environment, cwd=self.directory, stdout=output,
                         stderr=errors)

    @property
    def pid(self):
        return self._process.pid if self._process else None

    @property
    def running(self):
        return self._process is not None and self._process.poll() is None

    def signal(self, number):
        self._process.send_signal(number)

    def stopped(self):
        """Whether SIGSTOP holds it, by a failpoint or from outside."""
        return is_stopped(self.pid)

    def freeze(self):
        """It is silent when this returns; its connections stay, and the kernel accepts new ones."""
        self.signal(signal.SIGSTOP)
        wait_until(self.stopped, f"{self.name} is held")

    def thaw(self):
        if self.running:
            self.signal(signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self):
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def kill(self):
        """A crash."""
        self._end(signal.SIGKILL)

    def _end(self, how):
        if self._process is not None:
            end(self._process, how)
            self._process = None

    def log_text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self, size=4000):
        return self.log_text()[-size:]
