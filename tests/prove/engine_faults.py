"""The faults of engines: killed, stopped, flushed, locked by outsiders, and brokers that forget what they confirmed.

A broker forgets the way real ones do: its data is put back to a copy that was taken while the process was stopped, or
the end of its log is gone. What a service keeps in an outbox is then sent again with `quipu outbox resend`, as an
operator would. Sends of the gateway have no outbox: what Kafka forgets after it has confirmed it is outside the promise,
and `forgotten` tells the check which interval that is.
"""

import contextlib
import shutil
import subprocess
import time

import psycopg2

from check.cluster import Forgotten
from cluster import LEASE_S, now_us
from engines.kafka_log import last_segments, truncate
from engines.process import is_stopped
from fault import EngineFault, FaultFailed, round_trip_s, until
from harness import quipu
from harness.kafka import TOPIC, kafka

ANSWERS_S = 60.0
RESEND_S = 60.0


class EngineKilled(EngineFault):
    """It ends at once and is started again with its data."""

    hold_s = (0.5, 3.0)

    def inject(self):
        self.engine.kill()
        self.expect(round_trip_s(self.engine_name, self.engine.port, 1.0) is None, "it still answers")

    def heal(self):
        self.engine.start()


class EngineStopped(EngineFault):
    """SIGSTOP: connected, and silent, for longer than anyone waits."""

    hold_s = (LEASE_S + 1.0, LEASE_S + 4.0)
    rest_s = 4.0
    weight = 3

    def inject(self):
        self._thaw = contextlib.ExitStack()
        self._thaw.enter_context(self.engine.frozen())
        self.expect(until(lambda: is_stopped(self.engine.pid), 10), "it runs on")

    def heal(self):
        self._thaw.close()
        self.expect(until(lambda: round_trip_s(self.engine_name, self.engine.port) is not None, ANSWERS_S),
                    "it does not answer any more")


# ---- PostgreSQL ------------------------------------------------------------------------------------------------------


class PostgresKilled(EngineKilled):
    """An immediate shutdown: what was not committed is gone, and it recovers from its log."""

    name = "postgres-kill"
    engine_name = "postgres"
    weight = 6
    rest_s = 4.0

    def inject(self):
        self.engine.stop("immediate")
        self.expect(round_trip_s("postgres", self.engine.port, 1.0) is None, "it still answers")


class PostgresStopped(EngineStopped):
    name = "postgres-stop"
    engine_name = "postgres"


class PostgresSessionsTerminated(EngineFault):
    """pg_terminate_backend for every session of the database."""

    name = "postgres-terminate"
    engine_name = "postgres"
    hold_s = (0.1, 0.2)
    rest_s = 1.0
    weight = 6

    def inject(self):
        ended = self.cluster.database.terminate_sessions()
        self.expect(ended > 0, "there were no sessions")
        return f"{ended} sessions"

    def heal(self):
        pass


class PostgresRowsLocked(EngineFault):
    """An outsider holds locks on rows of every service."""

    name = "postgres-locks"
    engine_name = "postgres"
    hold_s = (1.0, 7.0)
    rest_s = 1.0
    weight = 6
    tables = ("count_values", "rate_limit_store", "entitlements", "pot", "counters", "idempotency_keys", "outbox_events",
              "dialog_outbox_events", "notifications")

    def inject(self):
        self._session = self.cluster.database.connect()
        self._session.autocommit = False
        locked = {}
        with self._session.cursor() as cursor:
            for table in self.tables:
                cursor.execute("SELECT to_regclass(%s)", (table,))
                if cursor.fetchone()[0]:
                    cursor.execute(f"SELECT 1 FROM {table} TABLESAMPLE SYSTEM (20) LIMIT 40 FOR UPDATE SKIP LOCKED")
                    locked[table] = cursor.rowcount
        if not sum(locked.values()):  # tables that are too small for a sample
            locked["count_values"] = self._lock_any("count_values")
        self.expect(sum(locked.values()) > 0, "there were no rows to lock")
        return f"{sum(locked.values())} rows in {sum(1 for rows in locked.values() if rows)} tables"

    def _lock_any(self, table):
        with self._session.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {table} LIMIT 40 FOR UPDATE SKIP LOCKED")
            return cursor.rowcount

    def heal(self):
        with contextlib.suppress(psycopg2.Error):
            self._session.rollback()
        self._session.close()


# ---- Redis -----------------------------------------------------------------------------------------------------------


class RedisKilled(EngineKilled):
    """It comes back empty."""

    name = "redis-kill"
    engine_name = "redis"
    weight = 5

    def heal(self):
        (self.engine.directory / "dump.rdb").unlink(missing_ok=True)
        super().heal()
        self.engine.do("SET", "prove-started", "1")


class RedisStopped(EngineStopped):
    name = "redis-stop"
    engine_name = "redis"


class RedisFlushed(EngineFault):
    """FLUSHALL, in the middle of everything."""

    name = "redis-flush"
    engine_name = "redis"
    hold_s = (0.1, 0.2)
    rest_s = 0.5
    weight = 6

    def inject(self):
        self.engine.do("SET", "prove-marker", "1")
        self.engine.do("FLUSHALL")
        self.expect(self.engine.do("GET", "prove-marker") is None, "the keys are still there")

    def heal(self):
        pass


class RedisPutBack(EngineFault):
    """It is started again with an older copy of its data: limits and counters of a moment ago."""

    name = "redis-older"
    engine_name = "redis"
    hold_s = (0.2, 1.0)
    prepare_s = 20.0

    def prepare(self):
        self.engine.do("SET", "prove-copied", str(self.dice))
        self.engine.do("SAVE")
        self._copy = self.cluster.snapshots / f"redis-{now_us()}.rdb"
        shutil.move(self.engine.directory / "dump.rdb", self._copy)
        self._copied_at = time.monotonic()
        self.engine.do("SET", "prove-copied", "later")

    def inject(self):
        self.engine.kill()
        shutil.move(self._copy, self.engine.directory / "dump.rdb")
        return f"put back by {time.monotonic() - self._copied_at:.0f} s"

    def heal(self):
        self.engine.start()
        (self.engine.directory / "dump.rdb").unlink()
        self.expect(self.engine.do("GET", "prove-copied") == str(self.dice), "it has other data than the copy")


# ---- brokers ---------------------------------------------------------------------------------------------------------


class KafkaKilled(EngineKilled):
    name = "kafka-kill"
    engine_name = "kafka"
    rest_s = 6.0

    def heal(self):
        start_kafka(self)


def start_kafka(fault):
    """Kafka accepts connections a while before it leads its partitions; until then it takes messages from nobody."""
    fault.engine.start()
    fault.expect(until(lambda: _leads(fault.engine.address), ANSWERS_S), "it does not lead its partitions any more")


def _leads(address):
    try:
        consumer = kafka.KafkaConsumer(bootstrap_servers=address)
    except kafka.errors.KafkaError:
        return False
    with contextlib.closing(consumer):
        partitions = [kafka.TopicPartition(TOPIC, number) for number in consumer.partitions_for_topic(TOPIC) or ()]
        try:
            return not partitions or bool(consumer.end_offsets(partitions))
        except kafka.errors.KafkaError:
            return False


class KafkaStopped(EngineStopped):
    name = "kafka-stop"
    engine_name = "kafka"


class NatsKilled(EngineKilled):
    name = "nats-kill"
    engine_name = "nats"
    weight = 5


class NatsStopped(EngineStopped):
    name = "nats-stop"
    engine_name = "nats"


class RabbitKilled(EngineKilled):
    name = "rabbitmq-kill"
    engine_name = "rabbitmq"
    weight = 3
    rest_s = 10.0


class RabbitStopped(EngineStopped):
    name = "rabbitmq-stop"
    engine_name = "rabbitmq"


class BrokerPutBack(EngineFault):
    """Its data becomes that of two minutes ago. The operator sends the events of that time again."""

    hold_s = (0.2, 1.0)
    rest_s = 6.0
    weight = 1
    prepare_s = 120.0
    folder = None  # of its data, in the engine's directory
    outbox = ()  # what `quipu outbox resend` is told

    def prepare(self):
        self._copy = self.cluster.snapshots / f"{self.engine_name}-{now_us()}"
        with self.engine.frozen():
            self._copied_us = now_us()
            copy(self.engine.directory / self.folder, self._copy)
        self.mark()

    def mark(self):
        """Changes something that the broker must have forgotten afterwards."""

    def has_mark(self):
        raise NotImplementedError

    def inject(self):
        self.expect(self.has_mark(), "it does not have what was to be forgotten")
        self.engine.kill()
        self.forgotten = [Forgotten(self.engine_name, self._copied_us, now_us())]
        data = self.engine.directory / self.folder
        shutil.rmtree(data)
        self._copy.rename(data)
        return f"put back by {(now_us() - self._copied_us) / 1e6:.0f} s"

    def heal(self):
        self.engine.start()
        self.expect(not self.has_mark(), "it has forgotten nothing")
        return resend(self.cluster, self.outbox, self._copied_us)


def copy(source, target):
    subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(target)], check=True)


def resend(cluster, outbox, since_us):
    """What an operator does then; again if the process is killed meanwhile."""
    deadline = time.monotonic() + RESEND_S
    while True:
        seconds = int((now_us() - since_us) / 1e6) + 5
        node = cluster.running_node()
        if node:
            done = quipu.run(cluster.binary, "outbox", "resend", *outbox, "--since", f"{seconds}s", "--server",
                             f"http://{node.address}", "--api-key-file", str(cluster.key_file))
            if done.returncode == 0:
                return done.stdout.strip()
        if time.monotonic() > deadline:
            raise FaultFailed(f"quipu outbox resend: {done.stderr if node else 'no process runs'}")
        time.sleep(0.2)


class NatsForgets(BrokerPutBack):
    name = "nats-forgets"
    engine_name = "nats"
    folder = "data"

    @property
    def _stream(self):
        return f"PROVE-{int(self.dice * 1e9)}"

    def mark(self):
        with self.engine.wire() as wire:
            wire.ask(f"STREAM.CREATE.{self._stream}", {"name": self._stream, "subjects": [f"{self._stream}.none"]})

    def has_mark(self):
        with self.engine.wire() as wire:
            return self._stream in (wire.ask("STREAM.NAMES")["streams"] or [])


class RabbitForgets(BrokerPutBack):
    name = "rabbitmq-forgets"
    engine_name = "rabbitmq"
    folder = "mnesia"
    outbox = ("dialog-outbox",)
    rest_s = 10.0

    @property
    def _queue(self):
        return f"prove-marker-{self.dice}"

    def mark(self):
        with self.cluster.host.channel() as channel:
            channel.queue_declare(self._queue, durable=True)

    def has_mark(self):
        return self.cluster.host.depth(self._queue) is not None


class KafkaForgets(EngineFault):
    """The end of the log of every partition of sms-outbound is gone when it comes back."""

    name = "kafka-forgets"
    engine_name = "kafka"
    hold_s = (0.2, 1.0)
    rest_s = 6.0
    weight = 1
    prepare_s = 8.0

    def prepare(self):
        """What Kafka confirms from now on lies behind these positions: it confirms what it has written."""
        self._since_us = now_us()
        self._ends = {log: log.stat().st_size for log in last_segments(self.engine.data, TOPIC)}

    def inject(self):
        self.expect(until(self._has_grown, ANSWERS_S), "nothing is published")
        self.engine.kill()
        until_us = now_us()
        gone = sum(len(truncate(log, end)) for log, end in self._ends.items())
        self.expect(gone > 0, "nothing is gone")
        self.forgotten = [Forgotten("kafka", self._since_us, until_us)]
        return f"{gone} messages of the last {(until_us - self._since_us) / 1e6:.0f} s"

    def _has_grown(self):
        return any(log.stat().st_size > end for log, end in self._ends.items())

    def heal(self):
        start_kafka(self)


ENGINE_KINDS = (PostgresKilled, PostgresStopped, PostgresSessionsTerminated, PostgresRowsLocked, RedisKilled,
                RedisStopped, RedisFlushed, RedisPutBack, KafkaKilled, KafkaStopped, KafkaForgets, NatsKilled,
                NatsStopped, NatsForgets, RabbitKilled, RabbitStopped, RabbitForgets)
