"""What a proof runs on: private engines, paths to them that can be disturbed, and Quipu.

Two topologies. `PostgresCluster` is three processes of Quipu that share PostgreSQL, Redis, Kafka, NATS and RabbitMQ;
`SqliteCluster` is one process with its files. Both start only what the chosen services need, and close() ends whatever
they started, by pid, in any state. Engines are those of tests/engines; a run that is killed takes them along.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from disk import Disk, compile_preload
from engines.kafka import Kafka
from engines.ports import Port
from engines.process import end
from engines.server import Unavailable, exchange
from engines.shared import own_postgres
from engines.waiting import wait_until
from harness.keys import KeyFile
from harness.nats import Nats
from harness.quipu import Quipu
from harness.rabbitmq import Host
from harness.redis import Redis
from engines.rabbitmq import RabbitMQ
from previous import known_options
from proxy import Direct, Toxiproxy

FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
# What a service runs as, and the engines it cannot do without.
ROLES = {
    "counts": ["counts"],
    "gateway": ["gateway", "sender"],
    "entitlements": ["entitlements", "notifications"],
    "pots": ["pots"],
    "dialogs": ["dialogs", "counters"],
}
ENGINES = {
    "counts": [],
    "gateway": ["redis", "kafka"],
    "entitlements": ["nats"],
    "pots": [],
    "dialogs": ["redis", "rabbitmq"],
}
NODES = 3
LEASE_S = 5
STOPS_S = 45  # after SIGTERM; far more than --drain-timeout
# Leases are short, so that a process can be stopped for longer than they last; windows are short, so that a run sees
# many of them. Everything else is as users have it.
SETTINGS = {"--outbox-lease": f"{LEASE_S}s", "--notify-lease": f"{LEASE_S}s", "--notify-timeout": "3s",
            "--gateway-window-unit": "1s", "--drain-timeout": "10s", "--console": "off"}


def settings_for(binary):
    """The settings that a binary knows: the previous release lacks some."""
    known = known_options(binary)
    return [word for option, value in SETTINGS.items() if option in known for word in (option, value)]


class Node(Quipu):
    """One process of Quipu, on the same port whenever it is started again."""

    base_arguments = []

    def __init__(self, number, binary, arguments, directory, environment):
        self._port_holder = Port()
        self._arguments = [*arguments, "--listen", f"127.0.0.1:{self._port_holder.number}"]
        super().__init__(binary, [*self._arguments, *settings_for(binary)], directory, environment)
        self.number = number
        self.host, self.port = "127.0.0.1", self._port_holder.number
        self.clock = None  # a Clock, if that of this process can be shifted
        self.may_be_down = False  # while a fault says so
        self.threads = ""  # what its threads did when SIGTERM had not ended it

    def use(self, binary):
        """Runs another binary from the next start on."""
        self._words = [str(binary), "serve", *map(str, self._arguments), *settings_for(binary)]

    def _answers(self):
        return b" 200 " in exchange(self.port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def died(self):
        """Whether it ended although no fault ended it."""
        return not self.running and not self.may_be_down

    def exit_status(self):
        return self._process.poll() if self._process else None

    def crash_now(self):
        self.may_be_down = True
        self._end(signal.SIGKILL)

    def stop_in_order(self):
        """SIGTERM; returns the exit status."""
        self.may_be_down = True
        process = self._process
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOPS_S)
        if process.poll() is None:
            self.threads = "\n" + stacks(process.pid)
        end(process, signal.SIGTERM)
        self._process = None
        return process.returncode

    def begin(self):
        """Starts it, or returns if it runs."""
        if not self.running:
            self.start()
        self.may_be_down = False

    def close(self):
        if self.running:
            self.thaw()
        self._end(signal.SIGKILL)
        self._port_holder.close()


def stacks(pid):
    """What every thread of a process does; without gdb, only what it waits for."""
    if shutil.which("gdb"):
        return subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all backtrace 12"], capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, errors="replace", check=False).stdout
    return "\n".join(f"{(task / 'comm').read_text().strip()}: {(task / 'wchan').read_text()}"
                     for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


class Clock:
    """The wall clock of one process, shifted by libfaketime, which reads a file. Its steady clock goes on as it was.

    libfaketime disturbs more than the clock, even without a shift: publishing to RabbitMQ breaks off again and again. So
    a process has it only as long as its clock is wrong.
    """

    def __init__(self, path):
        self._path = pathlib.Path(path)
        self.set(0)

    @property
    def environment(self):
        """Only the time of day is shifted. By default, libfaketime ends timed waits for conditions at once (its fix for
        an older glibc), and every thread that waits would spin."""
        return {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self._path), "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1", "FAKETIME_FORCE_MONOTONIC_FIX": "0"}

    def set(self, seconds):
        """Writes beside and renames: the process never reads half a line."""
        beside = self._path.with_suffix(".new")
        beside.write_text(f"{seconds:+d}\n")
        beside.rename(self._path)


class Cluster:
    """What both topologies have: a folder, keys, a proxy, a disk and nodes."""

    store = None

    def __init__(self, binary, services, previous=None):
        self.binary = pathlib.Path(binary).resolve()
        self.previous = previous  # the binary that the first start uses, of a rolling upgrade
        self.services = services
        self.keeps_directory = False
        self.notes = []  # what this run cannot do, and why
        self.engines = {}  # by name
        self.nodes = []
        self._closing = contextlib.ExitStack()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="quipu-prove-"))
        self.directory.chmod(0o755)  # PostgreSQL runs as another user and loads disk.so
        self.keys = KeyFile(self.binary, self.directory / "keys")
        self.key = self.keys.new("prove", "admin")
        self.key_file = self.directory / "key"
        self.key_file.write_text(self.key.shown + "\n")
        self.disk = Disk(compile_preload(self.directory), self.directory / "disk")
        self._closing.callback(self.disk.close)
        self.proxy = self._own(self._new_proxy())

    def _new_proxy(self):
        try:
            return Toxiproxy().start()
        except Unavailable as reason:
            self.notes.append(f"no faults of the network: {reason}")
            return Direct()

    def _own(self, server):
        self._closing.callback(server.close)
        return server

    @property
    def roles(self):
        return [role for service in self.services for role in ROLES[service]]

    @property
    def targets(self):
        """Where clients connect to. One of four connections goes by a path, three directly, because the proxy takes nearly as
        much time of the processors as Quipu."""
        direct = [node.port for node in self.nodes]
        paths = [self.proxy.paths[f"clients-{node.number}"].port for node in self.nodes] if self.proxy.can_disturb else []
        return [f"127.0.0.1:{port}" for port in [*paths, *direct * 3]]

    def _add_node(self, number, arguments, environment):
        arguments = [*arguments, "--roles", ",".join(self.roles), "--api-keys", self.keys.path]
        node = self._own(Node(number, self.previous or self.binary, arguments, self.directory / f"quipu-{number}",
                              environment))
        self.nodes.append(node)
        self.proxy.path(f"clients-{number}", node.port)
        return node

    def start(self):
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def running_node(self):
        """A process that can be asked something now."""
        return next((node for node in self.nodes if node.running and not node.stopped() and not node.may_be_down), None)

    def ask(self, node, method, path, body=None, timeout=2.0, headers=None):
        """A request straight to a process, not by the clients' path."""
        with node.connect(timeout=timeout) as wire:
            return wire.ask(method, path, body, {**self.key.headers, **(headers or {})})

    def close(self):
        self._closing.close()
        if not self.keeps_directory:
            shutil.rmtree(self.directory, ignore_errors=True)


class PostgresCluster(Cluster):
    store = "postgres"

    def __init__(self, binary, services, previous=None):
        super().__init__(binary, services, previous)
        self.database = None
        self.snapshots = self.directory / "snapshots"
        self.snapshots.mkdir()

    def _start(self):
        needed = ["postgres", *dict.fromkeys(name for service in self.services for name in ENGINES[service])]
        makers = {"postgres": self._new_postgres, "redis": Redis, "kafka": self._new_kafka, "nats": Nats,
                  "rabbitmq": RabbitMQ}
        for name in needed:
            self.engines[name] = self._own(makers[name]())
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda engine: engine.start(), self.engines.values()))
        self.database = self.engines["postgres"].create_database()
        for number in range(1, NODES + 1):
            self._start_node(number)
        for node in self.nodes:
            wait_until(lambda node=node: self.ask(node, "GET", "/readyz").status == 200, f"node {node.number} is ready")

    def _new_postgres(self):
        """Durable, unlike that of other tests: the disk is part of this one."""
        server = own_postgres(fsync="on", full_page_writes="on", max_wal_size="512MB", log_lock_waits="off",
                              deadlock_timeout="1s")
        server.environment = {**os.environ, **self.disk.environment()}
        return server

    def _new_kafka(self):
        self._kafka_ways = [self.proxy.new_port() for _ in range(NODES)] if self.proxy.can_disturb else []
        return Kafka(real=True, session_ms=4000, ways=self._kafka_ways)

    def _start_node(self, number):
        urls = {name: self._path_to(name, number) for name in self.engines}
        arguments = ["--store", f"postgres://postgres@{urls['postgres']}/{self.database.name}",
                     "--data", self.directory / f"data-{number}"]
        for engine, option, scheme in (("redis", "--cache", "redis"), ("kafka", "--gateway-bus", "kafka"),
                                       ("nats", "--entitlements-bus", "nats"), ("rabbitmq", "--unread-bus", "amqp")):
            if engine in urls:
                arguments += [option, f"{scheme}://{urls[engine]}"]
        node = self._add_node(number, arguments, {})
        node.clock = self._new_clock() if number == NODES else None
        node.begin()

    def _new_clock(self):
        if not FAKETIME.exists():
            self.notes.append("no faults of the clock: libfaketime is not installed")
            return None
        return Clock(self.directory / "clock")

    def _path_to(self, name, number):
        """Where a process finds an engine."""
        engine, listen = self.engines[name], None
        port = engine.port
        if name == "kafka" and self._kafka_ways:
            port, listen = engine.way_ports[number - 1], self._kafka_ways[number - 1]
        return f"127.0.0.1:{self.proxy.path(f'{name}-{number}', port, listen).port}"

    @property
    def host(self):
        """The virtual host of the run, for those who look into it."""
        return Host(self.engines["rabbitmq"], "/")


class SqliteCluster(Cluster):
    """libfaketime disturbs SQLite's own timeouts, so there are no faults of the clock."""

    store = "sqlite"

    def __init__(self, binary, services, previous=None, prepare=None):
        """`prepare(folder)` is called between the first start, which creates the files, and the second."""
        super().__init__(binary, services, previous)
        self._prepare = prepare
        self.data = self.directory / "data"

    def _start(self):
        node = self._add_node(1, ["--data", self.data], self.disk.environment())
        node.begin()
        if self._prepare:
            assert node.stop_in_order() == 0, node.log_tail()
            self._prepare(self.data)
            node.begin()
        wait_until(lambda: self.ask(node, "GET", "/readyz").status == 200, "the node is ready")


def now_us():
    """The clock of the log."""
    return time.time_ns() // 1000
