"""A private Kafka.

The broker is a real one: its jars come from Maven Central once (kafka-pom.xml beside this file) and are kept in
QUIPU_KAFKA_JARS, or build-kafka/ at the top of the repository. If Java, Maven or the network is missing, librdkafka's
mock cluster stands in (tests/contract/mock_kafka.c) and a line on standard error says so: it keeps messages in memory,
so it proves nothing that must outlive the server.
"""

import atexit
import base64
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import uuid

from .process import start
from .server import Server, Unavailable, exchange
from .waiting import HANG_S

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MOCK_SOURCE = HERE.parent / "contract" / "mock_kafka.c"
POM = HERE / "kafka-pom.xml"
FETCH_SECONDS = 600
# A broker that was killed may come back only after its session. One that nobody kills should outlast a busy machine.
SHORT_SESSION_MS, LONG_SESSION_MS = 2000, 60000
HEAP = ["-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

# One node that is broker and controller, with what a single node and short tests need.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}{way_listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}{ways}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{way_protocols}
log.dirs={data}
num.partitions=1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms={session_ms}
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


class Broker(Server):
    name = "kafka"
    is_real = True

    def __init__(self, folder, session_ms, ways):
        if not shutil.which("java"):
            raise Unavailable("Java is not installed")
        self._classpath = f"{fetch_jars()}/*"
        super().__init__(folder)
        self.port = self.new_port()
        self.address = f"127.0.0.1:{self.port}"
        self.data = self.directory / "data"
        self.way_ports = [self.new_port() for _ in ways]
        self._write_files(session_ms, ways)
        self._format()

    def _write_files(self, session_ms, ways):
        def listed(form, values):
            return "".join(f",{form.format(number, value)}" for number, value in enumerate(values))

        self._properties = self.directory / "server.properties"
        self._properties.write_text(
            PROPERTIES.format(broker=self.port, controller=self.new_port(), data=self.data, session_ms=session_ms,
                              ways=listed("WAY{}://127.0.0.1:{}", ways), way_protocols=listed("WAY{}:PLAINTEXT", ways),
                              way_listeners=listed("WAY{}://127.0.0.1:{}", self.way_ports)))
        self._log4j = self.directory / "log4j.properties"
        self._log4j.write_text(LOG4J.format(log=self.log))

    def _cluster_id(self):
        return new_cluster_id()

    def _java(self, *arguments):
        return ["java", *HEAP, f"-Dlog4j.configuration=file:{self._log4j}", "-cp", self._classpath,
                *map(str, arguments)]

    def _format(self):
        command = self._java("kafka.tools.StorageTool", "format", "-t", self._cluster_id(), "-c", self._properties)
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, timeout=HANG_S, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"Kafka's storage cannot be formatted:\n{ran.stdout[-4000:]}")

    def _command(self):
        return self._java("kafka.Kafka", self._properties)

    def _answers(self):
        """An ApiVersions request (key 18, version 0) is answered: the broker serves, not only listens."""
        request = b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
        return exchange(self.port, len(request).to_bytes(4, "big") + request)[4:8] == b"\x00\x00\x00\x01"


def new_cluster_id():
    """A random UUID the way Kafka writes it."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a", 1)


class _Mock(Server):
    name = "mock-kafka"
    is_real = False

    def __init__(self, folder):
        self._program = _mock_program()
        super().__init__(folder)
        self.address = None

    def _command(self):
        return [self._program]

    def _spawn(self):
        return start(self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _answers(self):
        self.address = self._process.stdout.readline().strip()
        return self.address

    def start(self):
        """After a stop(): the same brokers. After a close(): new ones, at another address, empty."""
        if self.running:
            self.tell("up")
            return self
        return super().start()

    def tell(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().strip() != "ok":
            raise RuntimeError(f"mock_kafka refused: {line}")

    def stop(self):
        self.tell("down")

    kill = stop


def _mock_program():
    """Where meson has built mock_kafka, or a build of our own."""
    named = os.environ.get("QUIPU_MOCK_KAFKA")
    if named:
        return named
    for built in sorted(ROOT.glob("build*/tests/contract/mock_kafka")):
        if os.access(built, os.X_OK) and "build-tsan" not in built.parts:  # librdkafka crashes there
            return str(built)
    folder = tempfile.mkdtemp(prefix="quipu-mock-kafka-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = pathlib.Path(folder) / "mock_kafka"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", str(MOCK_SOURCE), "-lrdkafka", "-o", str(program)],
                   check=True)
    return str(program)


class Kafka:
    """A private Kafka: start(), stop(), kill(), frozen(), close(); address, url, pid, is_real.

    With real=True there is no mock instead: Unavailable is raised. With real=False it is always the mock, which
    also has tell("slow 500"). close() is for the end: it removes the data; stop() and start() keep it. The data is
    below `folder`, or where temporary files are kept.

    Kafka tells its clients where to connect. `ways` are ports of proxies: a client that comes in by one of them is sent
    there again. Each leads to the port of the same place in `way_ports`. Only a real Kafka has them.
    """

    def __init__(self, real=None, folder=None, session_ms=SHORT_SESSION_MS, ways=()):
        self._server = None
        if real is not False:
            try:
                self._server = Broker(folder, session_ms, ways)
            except Unavailable as reason:
                if real:
                    raise
                print(f"Kafka is librdkafka's mock cluster: {reason}", file=sys.stderr, flush=True)
        if self._server is None:
            self._server = _Mock(folder)

    def start(self):
        self._server.start()
        return self

    @property
    def url(self):
        """Short sessions, because the mock lets a group that was left wait for one before it goes on."""
        return f"kafka://{self.address}" + ("" if self.is_real else "?session.timeout.ms=6000&heartbeat.interval.ms=500")

    def __getattr__(self, name):
        return getattr(self._server, name)

    def describe(self):
        """What `attach` needs in another process."""
        return json.dumps({"address": self.address, "is_real": self.is_real})

    @classmethod
    def attach(cls, description):
        """A broker that another process has started."""
        kafka = cls.__new__(cls)
        kafka._server = _Attached(**json.loads(description))
        return kafka

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()


class _Attached:
    """A broker that another process has started: to be used, not to be ended."""

    def __init__(self, address, is_real):
        self.address = address
        self.is_real = is_real

    def start(self):
        return self

    def close(self):
        pass
