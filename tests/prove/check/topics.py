"""What lies on the topics, read from the engines themselves."""

import contextlib
import json
import pathlib
import shutil
import sqlite3
import struct
import tempfile
import warnings
from datetime import datetime, timedelta, timezone

SENDS = "sms-outbound"
GROUP = "prove"
HANG_S = 60


class Send:
    """A message to a user, as the gateway published it."""

    __slots__ = ("id", "user", "text", "window_us", "partition", "offset")

    def __init__(self, value, headers, partition=0, offset=0):
        event = json.loads(value)
        self.id, self.user, self.text = event["messageId"], str(event["userId"]), event["message"]
        self.window_us = microseconds(headers["window-start"])
        self.partition, self.offset = partition, offset


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def microseconds(text):
    """An RFC 3339 time in microseconds since 1970."""
    return (datetime.fromisoformat(text.replace("Z", "+00:00")) - EPOCH) // timedelta(microseconds=1)


def read_sends(cluster):
    if cluster.kafka:
        return list(_read_kafka(cluster.kafka))
    return list(_read_local(cluster.store_url))


# ---- Kafka -----------------------------------------------------------------------------------------------------------


def _read_kafka(address):
    with warnings.catch_warnings():  # of the copy of six that python3-kafka brings along
        warnings.simplefilter("ignore")
        import kafka
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, group_id=None, auto_offset_reset="earliest",
                                   enable_auto_commit=False, max_poll_records=5000)
    with contextlib.closing(consumer):
        partitions = [kafka.TopicPartition(SENDS, number) for number in consumer.partitions_for_topic(SENDS) or ()]
        ends = consumer.end_offsets(partitions) if partitions else {}
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            fetched = consumer.poll(timeout_ms=HANG_S * 1000)
            assert fetched, f"{SENDS} ends at {ends}, and nothing more came"
            for records in fetched.values():
                for record in records:
                    headers = {name: value.decode() for name, value in record.headers}
                    yield Send(record.value, headers, record.partition, record.offset)


# ---- the local bus ---------------------------------------------------------------------------------------------------


def keep_local(folder):
    """Adds a group that never acknowledges, so that nothing is deleted. No server may run on the folder, but one must
    have created its files."""
    path = pathlib.Path(folder) / "gateway-bus.db"
    if not path.exists():
        return
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT OR IGNORE INTO channels (name) VALUES (?)", (SENDS,))
        connection.execute("INSERT OR IGNORE INTO groups (channel, name, position) "
                           "SELECT id, ?, 0 FROM channels WHERE name = ?", (GROUP, SENDS))


def _read_local(folder):
    """From a copy: the server holds a lock on the file as long as it runs."""
    with tempfile.TemporaryDirectory(prefix="quipu-prove-") as copy:
        for path in pathlib.Path(folder).glob("gateway-bus.db*"):
            shutil.copy(path, copy)
        with contextlib.closing(sqlite3.connect(pathlib.Path(copy) / "gateway-bus.db")) as connection:
            rows = connection.execute("SELECT m.headers, m.value FROM messages m JOIN channels c ON c.id = m.channel "
                                      "WHERE c.name = ? ORDER BY m.offset", (SENDS,))
            for headers, value in rows:
                yield Send(value, _unpack_headers(headers))


def _unpack_headers(packed):
    """Name and value in turn, each with its length before it."""
    words, at = [], 0
    while at < len(packed):
        (length,) = struct.unpack_from("=I", packed, at)
        words.append(packed[at + 4:at + 4 + length].decode())
        at += 4 + length
    return dict(zip(words[::2], words[1::2]))
