#!/usr/bin/python3
"""Runs a command with QUIPU_CONTRACT_BUS naming a private Kafka.

with_kafka.py [--mock] COMMAND [ARGUMENT...]

The broker is a real one: its jars come from Maven Central once (tests/contract/kafka/pom.xml) and are kept in
QUIPU_KAFKA_JARS, or build-kafka/ at the top of the repository. Where Java, Maven or the network is missing, or with
--mock, librdkafka's mock cluster stands in (mock_kafka.c) and a line on standard error says so: it keeps messages in
memory, so nothing that outlives the server is proven by it.

    from with_kafka import Kafka
    kafka = Kafka().start()
    kafka.address, kafka.url, kafka.is_real
    kafka.stop()
"""

import atexit
import base64
import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
POM = HERE / "kafka" / "pom.xml"
START_SECONDS = 90
FETCH_SECONDS = 600
HEAP = ["-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

# One node that is broker and controller, with what a single node and short tests need.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions=1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
controlled.shutdown.enable=false
num.network.threads=2
num.io.threads=2
background.threads=2
log.cleaner.enable=false
"""

LOG4J = """\
log4j.rootLogger=WARN, file
log4j.logger.kafka.server.KafkaRaftServer=INFO
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={log}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d %p %c: %m%n
"""


class Unavailable(Exception):
    """A real Kafka cannot be had; the text says why."""


def jars_folder():
    return pathlib.Path(os.environ.get("QUIPU_KAFKA_JARS") or ROOT / "build-kafka")


def fetch_jars():
    """The folder with the jars of pom.xml, fetched if they are not there. One process at a time fetches."""
    folder = jars_folder()
    done = folder / "pom.xml"  # a copy, written last: these are the jars of that pom
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists() and done.read_bytes() == POM.read_bytes():
            return folder
        if not shutil.which("mvn"):
            raise Unavailable("Maven is not installed")
        for old in folder.glob("*.jar"):
            old.unlink()
        print("fetching Kafka's jars with Maven", file=sys.stderr, flush=True)
        command = ["mvn", "-B", "-q", "-f", str(POM), "dependency:copy-dependencies",
                   f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        try:
            ran = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, timeout=FETCH_SECONDS, check=False)
        except subprocess.TimeoutExpired as slow:
            raise Unavailable(f"Maven took more than {FETCH_SECONDS} s") from slow
        if ran.returncode != 0:
            raise Unavailable(f"Maven could not fetch Kafka's jars: {_first_error(ran.stdout)}")
        shutil.copyfile(POM, done)
    return folder


def _first_error(output):
    lines = [line.strip() for line in output.splitlines() if "ERROR" in line]
    return (lines or output.strip().splitlines() or ["it said nothing"])[0][:300]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until(condition, process, log, seconds=START_SECONDS):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return
        if process.poll() is not None:
            raise RuntimeError(f"Kafka ended with {process.returncode}:\n{_tail(log)}")
        time.sleep(0.1)
    raise RuntimeError(f"Kafka did not answer within {seconds} s:\n{_tail(log)}")


def _tail(path, size=4000):
    return path.read_text(errors="replace")[-size:] if path.exists() else ""


class _Real:
    is_real = True

    def __init__(self, folder):
        if not shutil.which("java"):
            raise Unavailable("Java is not installed")
        self._classpath = f"{fetch_jars()}/*"
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="quipu-kafka-", dir=folder))
        self.log = self.directory / "log"
        self._process = None
        self._write_files()
        self._java("kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", self._properties)

    def _write_files(self):
        self._properties = self.directory / "server.properties"
        self._properties.write_text(
            PROPERTIES.format(broker=self.port, controller=free_port(), data=self.directory / "data"))
        self._log4j = self.directory / "log4j.properties"
        self._log4j.write_text(LOG4J.format(log=self.log))

    def _command(self, *arguments):
        return ["java", *HEAP, f"-Dlog4j.configuration=file:{self._log4j}", "-cp", self._classpath,
                *map(str, arguments)]

    def _java(self, *arguments):
        ran = subprocess.run(self._command(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=START_SECONDS, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"{arguments[0]} failed:\n{ran.stdout[-4000:]}")

    def start(self):
        """Also after a stop or a kill, with the same address and data."""
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", self._properties), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, cwd=self.directory, start_new_session=True)
        try:
            _wait_until(self._answers, self._process, self.log)
        except RuntimeError:
            self.kill()
            raise
        return self

    def _answers(self):
        """An ApiVersions request (key 18, version 0) is answered: the broker serves, not only listens."""
        request = b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.settimeout(2)
            connection.sendall(len(request).to_bytes(4, "big") + request)
            return connection.recv(8)[4:8] == b"\x00\x00\x00\x01"
        return False

    @property
    def pid(self):
        return self._process.pid if self._process else None

    def stop(self, seconds=20):
        """In order, or by force when that takes too long. The data stays."""
        self._end(signal.SIGTERM, seconds)

    def kill(self):
        self._end(signal.SIGKILL, 10)

    def _end(self, with_signal, seconds):
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(with_signal)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    @contextlib.contextmanager
    def frozen(self):
        """While the block runs, the broker is connected, and silent."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def close(self):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def _cluster_id():
    """A random UUID the way Kafka writes it."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a", 1)


class _Mock:
    is_real = False

    def __init__(self):
        self._program = _mock_program()
        self._process = None
        self.address = None

    def start(self):
        """After a stop(): the same brokers. After a close(): new ones, at another address, empty."""
        if self._process is None:
            self._process = subprocess.Popen([self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.address = self._process.stdout.readline().strip()
            if not self.address:
                raise RuntimeError("mock_kafka did not start")
        else:
            self.tell("up")
        return self

    def tell(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().strip() != "ok":
            raise RuntimeError(f"mock_kafka refused: {line}")

    @property
    def pid(self):
        return self._process.pid if self._process else None

    def stop(self, seconds=20):
        del seconds
        self.tell("down")

    kill = stop

    @contextlib.contextmanager
    def frozen(self):
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def close(self):
        if self._process is None:
            return
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._process = None


def _mock_program():
    """Where meson has built mock_kafka, or a build of our own."""
    named = os.environ.get("QUIPU_MOCK_KAFKA")
    if named:
        return named
    for built in sorted(ROOT.glob("build*/tests/contract/mock_kafka")):
        if os.access(built, os.X_OK) and "build-tsan" not in built.parts:  # it would crash there, see bus_tsan_threads.c
            return str(built)
    folder = tempfile.mkdtemp(prefix="quipu-mock-kafka-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = pathlib.Path(folder) / "mock_kafka"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", str(HERE / "mock_kafka.c"), "-lrdkafka", "-o", str(program)],
                   check=True)
    return str(program)


class Kafka:
    """A private Kafka: start(), stop(), kill(), frozen(), close(); address, url, pid, is_real.

    With real=True there is no mock instead: Unavailable is raised. With real=False it is always the mock, which
    also has tell("slow 500"). close() is for the end: it removes the data; stop() and start() keep it. The data is
    below `folder`, or where temporary files are kept.
    """

    def __init__(self, real=None, folder=None):
        self._server = None
        if real is not False:
            try:
                self._server = _Real(folder)
            except Unavailable as reason:
                if real:
                    raise
                print(f"Kafka is librdkafka's mock cluster: {reason}", file=sys.stderr, flush=True)
        if self._server is None:
            self._server = _Mock()

    def start(self):
        self._server.start()
        return self

    @property
    def url(self):
        """Short sessions, because the mock lets a group that was left wait for one before it goes on."""
        return f"kafka://{self.address}" + ("" if self.is_real else "?session.timeout.ms=6000&heartbeat.interval.ms=500")

    def __getattr__(self, name):
        return getattr(self._server, name)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()


def main(arguments):
    mock = bool(arguments) and arguments[0] == "--mock"
    command = arguments[1:] if mock else arguments
    if not command:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is stopped then too
    kafka = Kafka(real=False if mock else None)
    try:
        kafka.start()
        return subprocess.run(command, env={**os.environ, "QUIPU_CONTRACT_BUS": kafka.url}, check=False).returncode
    finally:
        kafka.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
