"""TLS to the engines, by the parameters of their URLs: it is spoken, and whoever cannot prove to be the engine is refused.

NATS and RabbitMQ are in the contract tests (nats_tls_faults.c, rabbitmq_login_faults.c).
"""

import contextlib
import os
import pwd
import shutil
import socket
import ssl
import subprocess
import threading

import pytest

from engines import postgres as pg
from harness import quipu
from harness.waiting import HANG_S, wait_until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """`right` signs for localhost, `wrong` does too, and nobody who trusts one trusts the other."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("right", "wrong"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost", "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem"],
            check=True, capture_output=True)
    return folder


# ---- PostgreSQL


@pytest.fixture(scope="module")
def tls_postgres(certificates):
    try:
        server = pg.Postgres(ssl="on", ssl_cert_file="server.pem", ssl_key_file="server.key")
    except pg.Unavailable as reason:
        pytest.skip(str(reason))
    for ending in ("pem", "key"):
        copy = server.data / f"server.{ending}"
        shutil.copy(certificates / f"right.{ending}", copy)
        copy.chmod(0o600)
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(copy, owner.pw_uid, owner.pw_gid)
    try:
        yield server.start()
    finally:
        server.close()


def tls_url(server, database, ca):
    return f"postgres://postgres@localhost:{server.port}/{database.name}?sslmode=verify-full&sslrootcert={ca}"


def test_postgresql_over_tls_that_is_checked(serve, client, sqlite_store, tls_postgres, certificates):
    database = tls_postgres.create_database()
    server = serve(sqlite_store, "--store", tls_url(tls_postgres, database, certificates / "right.pem"))
    assert client(server).create("a", 1).status == 201
    secured = database.query("SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                             "WHERE datname = current_database() AND pid <> pg_backend_pid()")
    assert secured == [(True,)]
    server.stop()
    database.drop()


def test_postgresql_with_another_certificate_is_refused(serve, sqlite_store, tls_postgres, certificates):
    database = tls_postgres.create_database()
    url = tls_url(tls_postgres, database, certificates / "wrong.pem")
    server = serve(sqlite_store, "--store", url, ready=False)
    wait_until(lambda: "certificate" in server.log_text(), "the log says what is wrong")
    assert server.ask("GET", "/readyz").status == 503
    server.stop()
    database.drop()


# ---- Kafka


@contextlib.contextmanager
def tls_listener(certificates):
    """A port that does no more than the handshake; whether one was completed is in `met`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "right.pem", certificates / "right.key")
    context.num_tickets = 0
    met, refused = threading.Event(), threading.Event()

    def accept():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(HANG_S)
                try:
                    with context.wrap_socket(client, server_side=True) as secured:
                        if secured.recv(1):  # with TLS 1.3 the client's verdict comes after the handshake
                            met.set()
                except ssl.SSLError:
                    refused.set()
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1], met, refused
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("ca", ["right", "wrong"])
def test_kafka_over_tls_that_is_checked(serve, sqlite_store, certificates, ca):
    with tls_listener(certificates) as (port, met, refused):
        server = serve(
            sqlite_store, "--roles", "gateway,sender", "--cache", "none", "--gateway-bus",
            f"kafka://localhost:{port}?security.protocol=SSL&ssl.ca.location={certificates / ca}.pem", ready=False)
        assert (met if ca == "right" else refused).wait(HANG_S)
        assert met.is_set() == (ca == "right")
        server.stop()


# ---- Redis


def test_redis_over_tls_is_refused_with_a_reason(binary, tmp_path):
    done = quipu.run(binary, "serve", "--check-config", "--cache", "rediss://host:6380", cwd=tmp_path)
    assert done.returncode == 2
    assert "TLS" in done.stderr and "stunnel" in done.stderr
