#!/usr/bin/python3
"""Runs a command with a server for it, and tells it where in the environment.

with_server.py ENGINE COMMAND [ARGUMENT…]

    postgres    QUIPU_CONTRACT_STORE names a new database
    citus       the same in a cluster; QUIPU_CONTRACT_DISTRIBUTE says that its tables are to be distributed
    redis       QUIPU_CONTRACT_CACHE, and QUIPU_CONTRACT_REDIS_PID for tests that freeze it
    nats        QUIPU_CONTRACT_BUS
    rabbitmq    QUIPU_CONTRACT_BUS names a new virtual host
    kafka       QUIPU_CONTRACT_BUS; kafka-mock is librdkafka's mock cluster

Exits with the command's code, or with 77 if the server cannot be had.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from engines import kafka, nats, redis, shared  # noqa: E402  (their folder is named above)
from engines.process import with_us  # noqa: E402
from engines.server import Unavailable  # noqa: E402

SKIPPED = 77


@contextlib.contextmanager
def postgres_found():
    with shared.databases() as server:
        database = server.create_database()
        try:
            yield {"QUIPU_CONTRACT_STORE": database.url}
        finally:
            database.drop()


@contextlib.contextmanager
def citus_found():
    with shared.cluster() as server:
        database = server.create_database()
        try:
            yield {"QUIPU_CONTRACT_STORE": database.url, "QUIPU_CONTRACT_DISTRIBUTE": "1"}
        finally:
            database.drop()


@contextlib.contextmanager
def redis_found():
    with redis.Redis() as server:
        yield {"QUIPU_CONTRACT_CACHE": server.url, "QUIPU_CONTRACT_REDIS_PID": str(server.pid)}


@contextlib.contextmanager
def nats_found():
    with nats.Nats() as server:
        yield {"QUIPU_CONTRACT_BUS": server.url}


@contextlib.contextmanager
def rabbitmq_found():
    with shared.hosts() as server:
        yield {"QUIPU_CONTRACT_BUS": f"{server.url}/{server.new_host()}"}


@contextlib.contextmanager
def kafka_found():
    with shared.broker() as server:
        yield {"QUIPU_CONTRACT_BUS": server.url}


@contextlib.contextmanager
def mock_found():
    with kafka.Kafka(real=False) as server:
        yield {"QUIPU_CONTRACT_BUS": server.url}


ENGINES = {"postgres": postgres_found, "citus": citus_found, "redis": redis_found, "nats": nats_found,
           "rabbitmq": rabbitmq_found, "kafka": kafka_found, "kafka-mock": mock_found}


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in ENGINES:
        sys.exit(__doc__)
    # Being ended must end the server too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    engine, *command = arguments
    try:
        with ENGINES[engine]() as found:
            return subprocess.run(with_us(command), env={**os.environ, **found}, check=False).returncode
    except Unavailable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIPPED


sys.exit(main(sys.argv[1:]))
