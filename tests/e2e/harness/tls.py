"""Certificates, created by the openssl command, and a client of which the test controls every byte of TLS."""

import contextlib
import pathlib
import ssl
import subprocess

from .http import dial

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Certificate:
    """A self-signed certificate for loopback, and its key, in two files that can be replaced."""

    def __init__(self, directory, days=30):
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self.file = directory / "cert.pem"
        self.key = directory / "key.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", days,
                "-subj", "/CN=quipu", "-addext", NAMES, "-keyout", self.key, "-out", self.file)

    def expire(self):
        """The same, valid for one day of the past. Only `openssl ca` can create such a certificate."""
        folder = self.file.parent
        (folder / "index").write_text("")
        (folder / "ca.cnf").write_text(
            f"[ca]\ndefault_ca=own\n[own]\ndatabase={folder}/index\nnew_certs_dir={folder}\nrand_serial=yes\n"
            "default_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n")
        openssl("req", "-new", "-key", self.key, "-subj", "/CN=quipu", "-out", folder / "request")
        openssl("ca", "-batch", "-selfsign", "-config", folder / "ca.cnf", "-keyfile", self.key, "-in",
                folder / "request", "-startdate", "20200101000000Z", "-enddate", "20200102000000Z", "-notext",
                "-out", self.file)

    def arguments(self):
        return ["--tls-cert", self.file, "--tls-key", self.key]

    def install(self, other):
        """Renews it: both files become those of `other`."""
        self.file.write_bytes(other.file.read_bytes())
        self.key.write_bytes(other.key.read_bytes())

    def der(self):
        return ssl.PEM_cert_to_DER_cert(self.file.read_text())

    def trust(self, *others):
        """Returns what a client needs to trust it, and `others`."""
        context = ssl.create_default_context()
        for certificate in (self, *others):
            context.load_verify_locations(certificate.file)
        return context


class Wire:
    """A client that does no input or output itself: the test carries its bytes, and may cut or damage them."""

    def __init__(self, port, tls):
        self.socket = dial(port)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def pending(self):
        """Returns bytes of TLS that wait to be sent."""
        return self._outgoing.read()

    def flush(self):
        self.socket.sendall(self.pending())

    def try_handshake(self):
        """Takes one step. Returns True if the handshake is done."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def shake_hands(self, send=None):
        send = send or self.socket.sendall
        while True:
            done = self.try_handshake()
            data = self.pending()
            if data:
                send(data)
            if done:
                return self
            self.receive()

    def receive(self):
        data = self.socket.recv(65536)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return data

    def end(self):
        """Sends close_notify, without waiting for that of the other side."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        self.flush()

    def read_all(self):
        """Reads everything up to the server's close_notify. An end without it raises."""
        text = b""
        while True:
            try:
                data = self.tls.read(65536)
            except ssl.SSLWantReadError:
                self.receive()
                continue
            except ssl.SSLZeroReturnError:
                return text
            if not data:
                return text
            text += data
