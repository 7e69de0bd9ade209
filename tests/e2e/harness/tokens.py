"""Users' tokens, created with PyJWT and cryptography, which share no code with the program."""

import itertools
import os
import pathlib
import secrets
import time

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ALGORITHMS = ["HS256", "RS256", "ES256"]
_numbers = itertools.count(1)


def public_pem(key):
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def public_der(key):
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def private_pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def new_key(algorithm):
    """Returns a key to sign with, and the bytes of the file for --jwt-key."""
    if algorithm == "HS256":
        secret = secrets.token_urlsafe(48).encode()
        return secret, secret + b"\n"
    key = rsa.generate_private_key(65537, 2048) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
    return key, public_pem(key)


class Issuer:
    """An issuer of tokens; its `file` is for --jwt-key."""

    def __init__(self, directory, algorithm):
        self.algorithm = algorithm
        self.file = pathlib.Path(directory) / f"jwt-key-{next(_numbers)}"
        self.key, content = new_key(algorithm)
        self.publish(content)

    def publish(self, content):
        """Replaces the file as a whole, as everyone who rotates keys should."""
        fresh = self.file.with_suffix(".new")
        fresh.write_bytes(content)
        os.replace(fresh, self.file)

    def rotate(self):
        """Signs with a new key from now on. Returns the old one."""
        old = self.key
        self.key, content = new_key(self.algorithm)
        self.publish(content)
        return old

    def arguments(self):
        return ["--jwt-key", self.file, "--jwt-algorithm", self.algorithm]

    def token(self, subject, lifetime_s=300.0, key=None, **claims):
        claims = {"sub": subject, "exp": time.time() + lifetime_s, **claims}
        return self.sign({name: value for name, value in claims.items() if value is not None}, key)

    def sign(self, claims, key=None, algorithm=None):
        return jwt.encode(claims, key or self.key, algorithm or self.algorithm)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


class User:
    """A user with a token, with the methods of `unread`: every request sends the token and nothing else."""

    def __init__(self, unread, issuer, name, **claims):
        self.name = name
        self.unread = unread
        self.token = issuer.token(name, **claims)

    def ask(self, method, target, body=None, headers=None, **options):
        return self.unread.ask(method, target, body, headers={**bearer(self.token), **(headers or {})}, **options)

    def send(self, receiver, text="Hello!", **options):
        return self.ask("POST", "/dialogs/send", {"receiverId": receiver, "text": text}, **options)

    def sent(self, receiver, text="Hello!", **options):
        answer = self.send(receiver, text, **options)
        assert answer.status == 200, answer
        return answer.json()["messageId"]

    def list(self, other, **options):
        return self.ask("GET", f"/dialogs/list?receiverId={other}", **options)

    def read(self, message, **options):
        return self.ask("POST", f"/dialogs/read/{message}", **options)

    def read_batch(self, messages, **options):
        return self.ask("POST", "/dialogs/read-batch", {"messageIds": messages}, **options)

    def counter(self, user=None, prefix=""):
        return self.ask("GET", f"{prefix}/counters/user/{user or self.name}/UnreadMessages")

    def follow(self, prefix="", **headers):
        return self.unread.follow(self.name, prefix, **bearer(self.token), **headers)
