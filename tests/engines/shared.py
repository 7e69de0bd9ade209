"""The servers of a whole run. tests/run.py starts them once; every process it starts finds them by QUIPU_TEST_SERVERS.

That variable names a folder with one file per server, which says how to reach it. Without it (a test run by hand) each
call starts a server of its own, and the caller ends it.
"""

import contextlib
import os
import pathlib

from . import citus, kafka, postgres, rabbitmq

FOLDER = "QUIPU_TEST_SERVERS"


def start_postgres(folder):
    server = postgres.Postgres()
    template = server.save_template()
    server.start()
    _announce(folder, "postgres", server.describe(template))
    return server


def start_citus(folder):
    server = citus.Citus().start()
    _announce(folder, "citus", server.describe())
    return server


def start_rabbitmq(folder):
    server = rabbitmq.RabbitMQ().start()
    _announce(folder, "rabbitmq", server.describe())
    return server


def start_kafka(folder):
    server = kafka.Kafka(session_ms=kafka.LONG_SESSION_MS).start()
    _announce(folder, "kafka", server.describe())
    return server


STARTERS = {"postgres": start_postgres, "citus": start_citus, "rabbitmq": start_rabbitmq, "kafka": start_kafka}


def _announce(folder, name, description):
    (pathlib.Path(folder) / name).write_text(description)


def _description(name):
    folder = os.environ.get(FOLDER)
    file = pathlib.Path(folder) / name if folder else None
    return file.read_text() if file and file.exists() else None


@contextlib.contextmanager
def _shared_or_own(name, attach, start):
    description = _description(name)
    if description:
        yield attach(description)
    else:
        with start() as server:
            yield server


def databases():
    """A PostgreSQL to create databases in. Not to be stopped or frozen."""
    return _shared_or_own("postgres", postgres.attach, postgres.Postgres)


def cluster():
    """A Citus cluster to create databases in. Not to be stopped or frozen."""
    return _shared_or_own("citus", citus.attach, citus.Citus)


def own_postgres(**settings):
    """A PostgreSQL that the caller may do anything to. Not started."""
    description = _description("postgres")
    template = postgres.template_of(description) if description else None
    return postgres.Postgres(template, **settings)


def hosts():
    """A RabbitMQ to create virtual hosts in. Not to be stopped or frozen."""
    return _shared_or_own("rabbitmq", rabbitmq.attach, rabbitmq.RabbitMQ)


def broker(kind=kafka.Kafka):
    """A Kafka for topics of the caller's own. Not to be stopped or frozen."""
    return _shared_or_own("kafka", kind.attach, kind)
