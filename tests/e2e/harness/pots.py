"""The pot service as a client sees it, in JSON or protobuf, and its tables as an independent client sees them.

Messages are those of python3-protobuf, and its json_format writes and reads the JSON, so that every exchange also
tests interoperation. Every answer is checked against the OpenAPI document."""

import contextlib
import itertools
import json
import sqlite3
import uuid

from google.protobuf import json_format

from . import protos
from .http import Client, render
from .waiting import HANG_S

KINDS = {"BRONZE": 1, "SILVER": 10, "GOLD": 100}
MEDIA_TYPES = {"json": "application/json", "protobuf": "application/protobuf"}
FOREIGN = "11111111-1111-4111-8111-111111111111"

_names = itertools.count(1)


def new_name(prefix="Pot"):
    """Returns a name that no other test uses."""
    return f"{prefix} {next(_names)}"


def new_key():
    return f"key-{uuid.uuid4()}"


def pot_pb2():
    return protos.load("proto/pot.proto")


def coin_pb2():
    return protos.load("proto/coin.proto")


def path_of(method):
    """CreatePot -> /twirp/pyggpot.pot.Pot/CreatePot"""
    for module in (pot_pb2(), coin_pb2()):
        for service in module.DESCRIPTOR.services_by_name.values():
            if method in service.methods_by_name:
                return f"/twirp/{service.full_name}/{method}"
    raise AssertionError(f"no method {method}")


def descriptor_of(method):
    for module in (pot_pb2(), coin_pb2()):
        for service in module.DESCRIPTOR.services_by_name.values():
            if method in service.methods_by_name:
                return service.methods_by_name[method]
    raise AssertionError(f"no method {method}")


def encode(method, fields, encoding):
    """Returns the body of a request, from a dictionary in the JSON form of its message."""
    message = json_format.ParseDict(fields, descriptor_of(method).input_type._concrete_class())
    if encoding == "protobuf":
        return message.SerializeToString()
    return json_format.MessageToJson(message, preserving_proto_field_name=True).encode()


def request(method, fields, encoding="json", key=None):
    """Returns the bytes of one request, for tests that send many at one moment."""
    headers = {"Content-Type": MEDIA_TYPES[encoding]}
    if key is not None:
        headers["Idempotency-Key"] = key
    return render("POST", path_of(method), encode(method, fields, encoding), headers)


def coins(**counts):
    """coins(gold=3) -> [{'kind': 'GOLD', 'count': 3}]"""
    return [{"kind": kind.upper(), "count": count} for kind, count in counts.items()]


def counts_of(answer_fields):
    """{'coins': [...]} -> {'GOLD': 3}"""
    return {entry["kind"]: entry["count"] for entry in answer_fields["coins"]}


def decode(method, answer):
    """Returns a successful answer as a dictionary in the JSON form of its message, including defaults."""
    message = descriptor_of(method).output_type._concrete_class()
    if answer.header("content-type") == MEDIA_TYPES["protobuf"]:
        message.ParseFromString(answer.body)
    else:
        json_format.Parse(answer.body, message)
    return json_format.MessageToDict(message, including_default_value_fields=True, preserving_proto_field_name=True)


def assert_error(answer, code, reason=None, argument=None):
    """Checks that the answer is a Twirp error with this code and its status."""
    status = {
        "malformed": 400, "invalid_argument": 400, "permission_denied": 403, "not_found": 404, "bad_route": 404,
        "deadline_exceeded": 408, "already_exists": 409, "aborted": 409, "failed_precondition": 412, "internal": 500,
        "unavailable": 503,
    }[code]
    error = answer.json()
    assert (answer.status, error["code"]) == (status, code), answer
    assert answer.header("content-type") == "application/json", answer
    assert error["msg"], answer
    assert all(isinstance(value, str) for value in error["meta"].values()), answer
    if reason is not None:
        assert error["meta"]["reason"] == reason, answer
    if argument is not None:
        assert error["meta"]["argument"] == argument, answer
    if status == 503:
        assert (answer.header("retry-after") or "").isdigit(), answer
    return error


class Pots(Client):
    def __init__(self, port, openapi, encoding="json"):
        super().__init__(port, openapi)
        self.encoding = encoding

    def call(self, method, fields, key=None, encoding=None):
        """Sends a message, given as a dictionary, and returns the answer."""
        return self.send(request(method, fields, encoding or self.encoding, key), path_of(method))

    def send(self, data, path):
        return self.exchange("POST", path, data)

    def get(self, method, fields, **options):
        """Returns the answer of a call that must succeed, as a dictionary."""
        answer = self.call(method, fields, **options)
        assert answer.status == 200, answer
        assert answer.header("content-type") == MEDIA_TYPES[options.get("encoding") or self.encoding], answer
        return decode(method, answer)

    def new_pot(self, max_coins=1000, **counts):
        """Creates a pot that belongs to this test alone, with these coins in it. Returns its id."""
        pot_id = self.get("CreatePot", {"pot_name": new_name(), "max_coins": max_coins})["pot_id"]
        if counts:
            self.get("AddCoins", {"pot_id": pot_id, "coins": coins(**counts)})
        return pot_id

    def content(self, pot_id):
        return counts_of(self.get("ListCoins", {"pot_id": pot_id}))


class PostgresTables:
    """The tables of a running server on PostgreSQL."""

    def __init__(self, store):
        self._database = store.database

    def query(self, sql, arguments=()):
        return self._database.query(sql.replace("?", "%s"), arguments)

    def connect(self):
        return self._database.connect()

    def lock(self, pot_id, seconds, token=FOREIGN):
        """Takes the lock as another process would; it ends `seconds` from now, or never (None)."""
        end = "NULL" if seconds is None else f"clock_timestamp() + interval '{seconds} seconds'"
        self.query(f"UPDATE pot SET lock = ?, lock_expire_time = {end} WHERE id = ?", (token, pot_id))

    def unlock(self, pot_id):
        self.query("UPDATE pot SET lock = NULL, lock_expire_time = NULL WHERE id = ?", (pot_id,))


class SqliteTables:
    """The tables of a server on SQLite. Change them only while it does not run."""

    def __init__(self, store):
        self._path = store.data / "pots.db"

    def query(self, sql, arguments=()):
        with contextlib.closing(sqlite3.connect(self._path, timeout=HANG_S)) as connection, connection:
            return connection.execute(sql, arguments).fetchall()

    def lock(self, pot_id, seconds, token=FOREIGN):
        end = "NULL" if seconds is None else f"cast((julianday('now') - 2440587.5) * 86400000000 as integer) + {int(seconds * 1e6)}"
        self.query(f"UPDATE pot SET lock = ?, lock_expire_time = {end} WHERE id = ?", (token, pot_id))

    def unlock(self, pot_id):
        self.query("UPDATE pot SET lock = NULL, lock_expire_time = NULL WHERE id = ?", (pot_id,))


def tables_of(store):
    return PostgresTables(store) if store.name == "postgres" else SqliteTables(store)


def stored_coins(tables, pot_id):
    """Returns {'GOLD': 3}, without zeros."""
    rows = tables.query("SELECT denomination, coin_count FROM coin WHERE pot_id = ?", (pot_id,))
    names = {number: name for name, number in KINDS.items()}
    return {names[denomination]: count for denomination, count in rows if count != 0}


def stored_lock(tables, pot_id):
    row = tables.query("SELECT lock, lock_expire_time FROM pot WHERE id = ?", (pot_id,))[0]
    return None if row[0] is None else str(row[0])


def json_equal(left, right):
    return json.loads(left) == json.loads(right)
