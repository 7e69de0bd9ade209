"""Messages with fields of every type, in both encodings, against google.protobuf: the same bytes mean the same."""

import json
import math
import random
import struct
import subprocess

import pytest
from google.protobuf import json_format

from harness import protos
from harness.waiting import HANG_S

# how many random messages
COUNTS = pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.full)])


@pytest.fixture(scope="module")
def every_type():
    return protos.load("tests/unit/every_type.proto").EveryType


@pytest.fixture(scope="module")
def echo(binary):
    """Sends messages through the program's reader and writer: [(encoding, bytes)] -> [(json, binary) or the refusal]."""
    tool = binary.parent / "tests" / "unit" / "proto_echo"
    assert tool.exists(), f"{tool} is not built"

    def run(messages):
        lines = "".join(f"{encoding} {data.hex()}\n" for encoding, data in messages)
        done = subprocess.run([str(tool)], input=lines, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stderr
        answers = []
        for line in done.stdout.splitlines():
            kind, *parts = line.split(" ")
            answers.append(tuple(bytes.fromhex(part) for part in parts) if kind == "ok" else " ".join(parts))
        assert len(answers) == len(messages)
        return answers

    return run


def random_text(choose):
    return "".join(choose.choice(["a", "Z", " ", '"', "\\", "\n", "\x01", "\x7f", "é", "€", "😀", "/"]) for _ in range(choose.randint(0, 6)))


def random_real(choose):
    return choose.choice([0.0, 1.5, -2.25, 1e300, 5e-324, math.inf, -math.inf, math.nan, choose.uniform(-1e6, 1e6)])


def random_value(choose, field):
    kind = field.type
    whole = {field.TYPE_INT32: (-(2**31), 2**31 - 1), field.TYPE_SINT32: (-(2**31), 2**31 - 1), field.TYPE_SFIXED32: (-(2**31), 2**31 - 1),
             field.TYPE_UINT32: (0, 2**32 - 1), field.TYPE_FIXED32: (0, 2**32 - 1), field.TYPE_INT64: (-(2**63), 2**63 - 1),
             field.TYPE_SINT64: (-(2**63), 2**63 - 1), field.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
             field.TYPE_UINT64: (0, 2**64 - 1), field.TYPE_FIXED64: (0, 2**64 - 1)}
    if kind in whole:
        least, most = whole[kind]
        return choose.choice([least, most, 0 if least <= 0 else least, 1, choose.randint(least, most)])
    return {
        field.TYPE_FLOAT: lambda: struct.unpack("f", struct.pack("f", choose.choice([0.0, 1.5, 0.1, 3e38, 1e-40, math.inf, math.nan])))[0],
        field.TYPE_DOUBLE: lambda: random_real(choose),
        field.TYPE_BOOL: lambda: choose.choice([True, False]),
        field.TYPE_ENUM: lambda: choose.choice([0, 1, -2, 1000, 77, -5]),
        field.TYPE_STRING: lambda: random_text(choose),
        field.TYPE_BYTES: lambda: bytes(choose.randrange(256) for _ in range(choose.randint(0, 7))),
    }[kind]()


def fill(choose, message, chance=0.4):
    for field in message.DESCRIPTOR.fields:
        if choose.random() > chance:
            continue
        repeated = field.label == field.LABEL_REPEATED
        for _ in range(choose.randint(0, 3) if repeated else 1):
            if field.message_type is None:
                value = random_value(choose, field)
                getattr(message, field.name).append(value) if repeated else setattr(message, field.name, value)
                continue
            inner = getattr(message, field.name).add() if repeated else getattr(message, field.name)
            inner.SetInParent()
            if field.message_type.full_name == "google.protobuf.Timestamp":
                inner.seconds = choose.randint(-62135596800, 253402300799)
                inner.nanos = choose.choice([0, 5, 5000, 5000000, 999999999])
            else:
                fill(choose, inner)
    return message


def same(left, right):
    """Equality of messages in which NaN equals itself."""
    return left.SerializeToString(deterministic=True) == right.SerializeToString(deterministic=True)


def as_json(message):
    return json.loads(json_format.MessageToJson(
        message, including_default_value_fields=True, preserving_proto_field_name=True))


def numbers_equal(left, right):
    """Shortest digits may differ between writers where the number is the same: compared as numbers."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(numbers_equal(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(numbers_equal, left, right))
    if isinstance(left, float) or isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-7)
    return left == right


@COUNTS
def test_what_google_writes_is_read_and_written_again_the_same(every_type, echo, count):
    choose = random.Random(5)
    messages = [fill(choose, every_type()) for _ in range(count)]
    for encoding, encode in {
        "binary": lambda message: message.SerializeToString(),
        "json": lambda message: json_format.MessageToJson(message).encode(),  # in camelCase
    }.items():
        for message, answer in zip(messages, echo([(encoding, encode(message)) for message in messages])):
            assert isinstance(answer, tuple), f"{answer} in {message}"
            ours, binary = answer
            again = every_type()
            again.ParseFromString(binary)
            assert same(again, message)
            assert same(json_format.Parse(ours, every_type()), message), "read by json_format from our JSON"
            assert numbers_equal(json.loads(ours), as_json(message))


@COUNTS
def test_broken_bytes_are_refused_by_both_or_mean_the_same(every_type, echo, count):
    """Bytes of messages with some changed: what we accept means the same to google.protobuf."""
    choose = random.Random(6)
    broken = []
    for _ in range(count):
        data = bytearray(fill(choose, every_type()).SerializeToString())
        for _ in range(choose.randint(1, 3)):
            if data:
                data[choose.randrange(len(data))] = choose.randrange(256)
        broken.append(bytes(data[: choose.randint(0, len(data))]))
    accepted = 0
    for data, answer in zip(broken, echo([("binary", data) for data in broken])):
        if not isinstance(answer, tuple):
            continue
        accepted += 1
        theirs, ours = every_type(), every_type()
        theirs.ParseFromString(data)
        theirs.DiscardUnknownFields()
        ours.ParseFromString(answer[1])
        ours.DiscardUnknownFields()
        assert same(ours, theirs)
    assert accepted > count / 20
