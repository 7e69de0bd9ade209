"""Certificates of the listener: replaced while it serves, wrong ones refused; and its end under load."""

import signal
import ssl
import threading
import time

import pytest

from harness import quipu
from harness.counts import new_id
from harness.keys import KeyFile
from harness.load import Load
from harness.tls import Certificate, openssl
from harness.waiting import wait_until


def create(server):
    item = new_id()
    assert server.ask("POST", "/api/v1/internal/counts", {"itemId": item}).status == 201
    return item


def value(server, item):
    return server.ask("GET", f"/api/v1/internal/counts/{item}").json()["currentValue"]


@pytest.fixture
def renewed(serve, sqlite_store, tmp_path):
    """A server of its own, its certificate, and the next one; clients trust both."""
    now, later = Certificate(tmp_path / "now"), Certificate(tmp_path / "later", days=60)
    tls = Certificate.trust(now, later)
    return serve(sqlite_store, *now.arguments(), tls=tls), now, later


def shown(server):
    """The certificate that a new connection sees."""
    with server.connect() as connection:
        return connection.socket.getpeercert(binary_form=True)


def test_sighup_takes_the_new_certificate_under_load_and_no_request_fails(renewed):
    server, now, later = renewed
    items = [create(server) for _ in range(4)]
    end = now.der(), later.der()
    failures = []
    stop = threading.Event()

    def connect_again_and_again():
        while not stop.is_set():
            try:
                if shown(server) not in end or server.ask("GET", "/healthz").status != 200:
                    failures.append("a strange certificate or answer")
            except Exception as error:  # pylint: disable=broad-except
                failures.append(repr(error))

    threads = [threading.Thread(target=connect_again_and_again) for _ in range(2)]
    for thread in threads:
        thread.start()
    with server.connect() as old, Load(server.port, items, threads=4, tls=server.tls) as load:
        load.wait_acknowledged(20)
        assert shown(server) == end[0]
        now.install(later)
        server.signal(signal.SIGHUP)
        wait_until(lambda: shown(server) == end[1], "new connections see the new certificate")
        for _ in range(5):
            server.signal(signal.SIGHUP)
            load.wait_acknowledged(20)
        assert old.ask("GET", "/healthz").status == 200
        assert old.socket.getpeercert(binary_form=True) == end[0]
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == [] and load.unknown == [] and sum(load.refused.values()) == 0
    load.assert_nothing_unexpected()
    assert sum(value(server, item) for item in items) == len(load.acknowledged)


def test_the_metric_tells_when_the_certificate_ends(renewed):
    server, now, later = renewed
    days = (server.metrics()["quipu_tls_certificate_expires_seconds"] - time.time()) / 86400
    assert 29 < days <= 30
    now.install(later)
    server.signal(signal.SIGHUP)
    wait_until(lambda: "SIGHUP: the certificate" in server.log_text(), "the new certificate is in the log")
    days = (server.metrics()["quipu_tls_certificate_expires_seconds"] - time.time()) / 86400
    assert 59 < days <= 60


def spoil_certificate(now, _):
    now.file.write_text("nonsense")


def spoil_key(now, _):
    now.key.write_text("nonsense")


def remove_key(now, _):
    now.key.unlink()


def mix(now, later):
    now.file.write_bytes(later.file.read_bytes())


def encrypt(now, _):
    openssl("pkcs8", "-topk8", "-in", now.key, "-out", now.key.with_suffix(".new"), "-passout", "pass:secret")
    now.key.with_suffix(".new").replace(now.key)


WRONG = [(spoil_certificate, "cannot be used as a certificate"), (spoil_key, "cannot be used as a private key"),
         (remove_key, "cannot read the private key"), (mix, "does not match the certificate"), (encrypt, "is encrypted")]


@pytest.mark.parametrize("spoil, words", WRONG)
def test_new_files_that_are_wrong_are_logged_and_the_old_certificate_stays(renewed, spoil, words):
    server, now, later = renewed
    der = now.der()
    spoil(now, later)
    server.signal(signal.SIGHUP)
    wait_until(lambda: "the old certificate stays in use" in server.log_text(), "the log says so")
    assert words in server.log_text()
    server.wait_reloaded(False)
    assert shown(server) == der


def test_the_metric_tells_of_any_file_that_was_refused_until_all_are_taken(serve, sqlite_store, binary, tmp_path):
    keys, certificate = KeyFile(binary, tmp_path / "keys"), Certificate(tmp_path / "tls")
    key = keys.new("prometheus", "internal")
    server = serve(sqlite_store, *certificate.arguments(), "--api-keys", keys.path, tls=certificate.trust())
    for file in (keys.path, certificate.file):
        good = file.read_bytes()
        file.write_text("nonsense")
        server.signal(signal.SIGHUP)
        server.wait_reloaded(False, key.headers)
        file.write_bytes(good)
        server.signal(signal.SIGHUP)
        server.wait_reloaded(True, key.headers)


@pytest.mark.parametrize("spoil, words", WRONG)
def test_files_that_are_wrong_are_refused_at_the_start(binary, tmp_path, spoil, words):
    now, later = Certificate(tmp_path / "now"), Certificate(tmp_path / "later")
    spoil(now, later)
    done = quipu.run(binary, "serve", "--listen", "127.0.0.1:0", *now.arguments(), cwd=tmp_path)
    assert done.returncode == 1 and words in done.stderr and "secret" not in done.stderr


@pytest.mark.parametrize("given, missing", [("--tls-cert", "--tls-key"), ("--tls-key", "--tls-cert")])
def test_half_of_the_options_is_a_wrong_use(binary, tmp_path, given, missing):
    done = quipu.run(binary, "serve", given, "x.pem", cwd=tmp_path)
    assert done.returncode == 2 and f"set {missing} too" in done.stderr


def test_a_certificate_that_has_expired_is_used_and_complained_about(serve, sqlite_store, tmp_path):
    old = Certificate(tmp_path / "old")
    old.expire()
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    server = serve(sqlite_store, *old.arguments(), tls=anyone)
    assert "has expired" in server.log_text()


def test_a_drain_under_load_loses_no_acknowledged_change_and_runs_nothing_unanswered(serve, sqlite_store, tmp_path):
    certificate = Certificate(tmp_path / "tls")
    tls = certificate.trust()
    server = serve(sqlite_store, *certificate.arguments(), tls=tls)
    items = [create(server) for _ in range(10)]
    with Load(server.port, items, threads=8, keyed=False, tls=tls) as load:
        load.wait_acknowledged(200)
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0
        load.join()
    load.assert_nothing_unexpected()
    server = serve(sqlite_store, *certificate.arguments(), tls=tls)
    assert sum(value(server, item) for item in items) == len(load.acknowledged)
