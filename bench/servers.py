"""Private servers for one run of the bench: PostgreSQL, Redis, webdis, Kafka, NATS, RabbitMQ, Quipu.

Each is a context manager that starts a process on a free loopback port with its data below one temporary folder,
waits until it answers, and ends it by its process id, whatever happens in between. Nothing is found or ended by name,
so that a bench never meets another one on the same machine.
"""

import contextlib
import glob
import http.client
import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Missing(Exception):
    """A program that the bench needs is not installed: the rows that need it are skipped, with this as the reason."""


class Failed(Exception):
    """A program is installed and did not do what it should."""


def find_program(name):
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if not path:
        raise Missing(f"{name} is not installed")
    return path


def find_postgres_program(name):
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda f: int(f.split("/")[4]), reverse=True)
    for folder in ["/usr/lib/postgresql/15/bin"] + folders:
        if os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    return find_program(name)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(what, is_ready, process, log_path, limit_s=30.0):
    """Polls `is_ready`. If the process ends, or takes longer than `limit_s`, fails and shows its log."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise Failed(f"{what} ended with {process.returncode}: {tail(log_path)}")
        try:
            if is_ready():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise Failed(f"{what} was not ready in {limit_s:.0f} s: {tail(log_path)}")


def tail(path, lines=5):
    try:
        with open(path, errors="replace") as f:
            return " | ".join(line.strip() for line in f.readlines()[-lines:])
    except OSError:
        return "(no log)"


def http_get(port, path, timeout_s=5.0):
    """Returns status and body of one GET."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except http.client.HTTPException as e:
        raise OSError(str(e)) from e
    finally:
        connection.close()


class Server:
    """A process with a folder, a port and a log. Subclasses start it and define how it is stopped."""

    name = "server"
    stop_signal = signal.SIGTERM

    def __init__(self, root):
        Server.number = getattr(Server, "number", 0) + 1
        self.folder = os.path.join(root, f"{self.name}-{Server.number}")
        self.log_path = os.path.join(self.folder, "log")
        self.port = free_port()
        self.process = None
        os.mkdir(self.folder, 0o755)

    def spawn(self, arguments, **more):
        with open(self.log_path, "ab") as log:
            more.setdefault("stdout", log)
            # a session of its own: Ctrl-C reaches the bench alone, which then ends its servers in order
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stderr=log, cwd=self.folder, start_new_session=True, **more
            )

    def start(self):
        raise NotImplementedError

    def stop(self, limit_s=20.0):
        """Ends the process. Returns its exit status, or None if it had to be killed or never ran."""
        if not self.process:
            return None
        process, self.process = self.process, None
        if process.poll() is None:
            process.send_signal(self.stop_signal)
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception):
        self.stop()


class SlowDisk:
    """Makes every sync of a server take 1 ms (see slow_disk.c)."""

    sync_us = 1000
    library = None  # set by bench.py

    @classmethod
    def environment(cls, folder):
        if not os.path.exists(cls.library):
            raise Missing(f"{cls.library} is not built")
        copy = os.path.join(folder, "slow_disk.so")  # where the user postgres may read it
        shutil.copy(cls.library, copy)
        return {**os.environ, "LD_PRELOAD": copy, "QUIPU_BENCH_SYNC_US": str(cls.sync_us)}


class Postgres(Server):
    """PostgreSQL with its defaults, except for memory and room for WAL that any real server would have."""

    name = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown
    settings = {
        "synchronous_commit": "on",
        "shared_buffers": "256MB",
        "max_wal_size": "4GB",
        "max_connections": "200",
        "listen_addresses": "127.0.0.1",
    }

    def environment(self):
        return dict(os.environ)

    def as_postgres(self):
        """PostgreSQL refuses to run as root; its package has created a user for it."""
        if os.geteuid() != 0:
            return {}
        shutil.chown(self.folder, "postgres", "postgres")
        return {"user": "postgres", "group": "postgres", "extra_groups": []}

    def start(self):
        data = os.path.join(self.folder, "data")
        who = self.as_postgres()
        initdb = [find_postgres_program("initdb"), "-D", data, "-A", "trust", "-U", "postgres"]
        initdb += ["-E", "UTF8", "--locale=C.UTF-8", "-N"]
        made = subprocess.run(initdb, cwd=self.folder, capture_output=True, text=True, **who)
        if made.returncode != 0:
            raise Failed(f"initdb: {made.stderr.strip()}")
        arguments = [find_postgres_program("postgres"), "-D", data, "-p", str(self.port), "-k", self.folder]
        for key, value in self.settings.items():
            arguments += ["-c", f"{key}={value}"]
        self.spawn(arguments, env=self.environment(), **who)
        wait_until("PostgreSQL", self.accepts, self.process, self.log_path)

    def accepts(self):
        try:
            self.run("postgres", "SELECT 1")
            return True
        except Failed:
            return False

    def run(self, database, *statements):
        """Runs each statement in its own transaction; returns the rows of the last one that has any."""
        try:
            import psycopg2
        except ImportError as e:
            raise Missing("python3-psycopg2 is not installed") from e
        try:
            connection = psycopg2.connect(host="127.0.0.1", port=self.port, user="postgres", dbname=database)
        except psycopg2.OperationalError as e:
            raise Failed(str(e)) from e
        try:
            connection.autocommit = True
            rows = []
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                    rows = cursor.fetchall() if cursor.description else rows
            return rows
        finally:
            connection.close()

    def create_database(self, name):
        self.run("postgres", f"CREATE DATABASE {name}")
        return f"postgres://postgres@127.0.0.1:{self.port}/{name}"


class SlowDiskPostgres(Postgres):
    """The same on a disk whose sync takes 1 ms, as on a network volume (see slow_disk.c)."""

    name = "postgres-slow-disk"

    def environment(self):
        return SlowDisk.environment(self.folder)


class Redis(Server):
    """Redis as durable as Quipu: every acknowledged write is on the disk."""

    name = "redis"
    # no rewrite of the file during a measurement: in the peer's favour
    settings = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]

    def start(self):
        arguments = [find_program("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1"]
        self.spawn(arguments + ["--dir", self.folder, "--save", "", "--daemonize", "no", *self.settings])
        wait_until("Redis", self.accepts, self.process, self.log_path)

    def accepts(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as s:
            s.sendall(b"PING\r\n")
            return s.recv(16).startswith(b"+PONG")


class CacheRedis(Redis):
    """Redis as a cache: nothing of it goes to the disk."""

    name = "redis-cache"
    settings = ["--appendonly", "no"]

    def ask(self, command):
        """The first line of the answer to a command without arguments."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
            s.sendall(command + b"\r\n")
            return s.recv(64).split(b"\r\n")[0]

    def empty(self):
        if self.ask(b"FLUSHALL") != b"+OK":
            raise Failed("Redis refuses FLUSHALL")

    def key_count(self):
        return int(self.ask(b"DBSIZE").lstrip(b":"))


class Webdis(Server):
    """Redis over HTTP: what one would use today for durable counts behind an HTTP address."""

    name = "webdis"

    def __init__(self, root, redis, threads):
        super().__init__(root)
        self.redis = redis
        self.threads = threads

    def start(self):
        program = find_program("webdis")
        config = os.path.join(self.folder, "webdis.json")
        settings = {
            "redis_host": "127.0.0.1",
            "redis_port": self.redis.port,
            "http_host": "127.0.0.1",
            "http_port": self.port,
            "threads": self.threads,
            "daemonize": False,
            "database": 0,
            "verbosity": 0,
            "logfile": os.path.join(self.folder, "webdis.log"),
        }
        with open(config, "w") as f:
            json.dump(settings, f)
        self.spawn([program, config])
        wait_until("webdis", lambda: http_get(self.port, "/PING")[0] == 200, self.process, self.log_path)


def load_of_tests(name):
    """A module of tests/engines, which knows how to start a broker."""
    folder = os.path.join(ROOT, "tests")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(f"engines.{name}")


class Kafka:
    """A real broker with the settings of the tests, or librdkafka's mock cluster if no broker is available; `is_real`
    says which. Its messages are counted with python3-kafka."""

    def __init__(self, root):
        self.root = root
        try:
            with warnings.catch_warnings():  # from the copy of six that comes with python3-kafka
                warnings.simplefilter("ignore")
                import kafka
        except ImportError as e:
            raise Missing("python3-kafka is not installed") from e
        self.client = kafka

    def __enter__(self):
        try:
            self.server = load_of_tests("kafka").Kafka(folder=self.root)
            self.server.start()
        except (RuntimeError, OSError, subprocess.SubprocessError) as e:
            raise Failed(f"Kafka: {e}") from e
        self.url = self.server.url
        self.is_real = self.server.is_real
        return self

    def __exit__(self, *exception):
        self.server.close()

    def message_count(self, topic):
        """Returns how many messages were ever put on the topic; 0 if it does not exist."""
        consumer = self.client.KafkaConsumer(bootstrap_servers=self.server.address)
        with contextlib.closing(consumer):
            numbers = consumer.partitions_for_topic(topic) or ()
            partitions = [self.client.TopicPartition(topic, number) for number in numbers]
            return sum(consumer.end_offsets(partitions).values()) if partitions else 0


class Nats(Server):
    """nats-server with JetStream and its defaults."""

    name = "nats"

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def start(self):
        self.spawn([find_program("nats-server"), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", self.folder])
        wait_until("NATS", self.accepts, self.process, self.log_path)

    def accepts(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as s:
            return s.recv(64).startswith(b"INFO ")


class RabbitMQ:
    """RabbitMQ as the tests start it, but with a scheduler for each processor, which is its default."""

    def __init__(self, root):
        tests = load_of_tests("rabbitmq")
        try:
            self.server = tests.RabbitMQ(schedulers=os.cpu_count())
        except tests.Unavailable as e:
            raise Missing(str(e)) from e

    def __enter__(self):
        try:
            self.server.start()
        except (RuntimeError, OSError, subprocess.SubprocessError) as e:
            self.server.close()
            raise Failed(f"RabbitMQ: {e}") from e
        return self

    def __exit__(self, *exception):
        self.server.close()

    def new_host(self, name):
        """A virtual host, in which one Quipu has its exchange and queues for itself."""
        self.server.ctl("add_vhost", name)
        self.server.ctl("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        return f"{self.server.url}/{name}"

    def purge(self, host, *queues):
        try:
            import pika
        except ImportError as e:
            raise Missing("python3-pika is not installed") from e
        parameters = pika.ConnectionParameters("127.0.0.1", self.server.port, host)
        with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
            for queue in queues:
                connection.channel().queue_purge(queue)


class Quipu(Server):
    """`quipu serve` with its defaults and `options`; its port is the one that it prints."""

    name = "quipu"

    def __init__(self, root, program, store=None, options=()):
        super().__init__(root)
        self.program = program
        self.store = store
        self.options = list(options)

    def environment(self):
        return dict(os.environ)

    def start(self):
        if not os.access(self.program, os.X_OK):
            raise Missing(f"{self.program} is not built")
        arguments = [os.path.abspath(self.program), "serve", "--listen", "127.0.0.1:0"]
        arguments += ["--data", os.path.join(self.folder, "data")] + self.options
        if self.store:
            arguments += ["--store", self.store]
        self.port = None
        self.spawn(arguments, stdout=subprocess.PIPE, env=self.environment())
        threading.Thread(target=self.read_output, args=(self.process.stdout,), daemon=True).start()
        wait_until("quipu", self.is_ready, self.process, self.log_path)

    def read_output(self, output):
        """Also keeps the pipe from filling up, because a sender prints a line for each message."""
        for line in output:
            found = re.match(rb"quipu listening on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        while output.read(1 << 16):
            pass
        output.close()

    def metric(self, name, labels=""):
        """Returns the sum of a metric over all its samples whose labels contain `labels`."""
        status, page = http_get(self.port, "/metrics")
        if status != 200:
            raise Failed(f"/metrics: {status}")
        samples = [line.rsplit(" ", 1) for line in page.decode().splitlines() if not line.startswith("#")]
        return sum(float(value) for sample, value in samples if sample.split("{")[0] == name and labels in sample)

    def is_ready(self):
        return self.port is not None and http_get(self.port, "/readyz")[0] == 200

    def resident_kib(self):
        """Returns VmRSS: how much memory this process uses now, according to the kernel."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1))


class SlowDiskQuipu(Quipu):
    """The same with its SQLite files on a disk whose sync takes 1 ms."""

    name = "quipu-slow-disk"

    def environment(self):
        return SlowDisk.environment(self.folder)
