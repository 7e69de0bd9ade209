"""The files of Kafka's log, to cut off their end while the broker is down."""

import os
import struct


def last_segments(data, topic):
    """The file that is written to, of every partition."""
    for partition in sorted(data.glob(f"{topic}-[0-9]*")):
        yield max(partition.glob("*.log"))


# The head of a record batch, version 2: base offset and length of what follows; further on, the last offset minus the base.
BATCH_HEAD = struct.Struct(">qi")
BATCH_LAST, BATCH_SIZE = 23, 61


def truncate(log, end):
    """Cuts a segment at the first batch that begins there or behind; returns the offsets that are gone, as a range."""
    data = log.read_bytes()
    position, keep, gone = 0, None, range(0)
    while position + BATCH_SIZE <= len(data):
        base, length = BATCH_HEAD.unpack_from(data, position)
        if length <= 0:
            break  # preallocated, not written yet
        if keep is None and position >= end:
            keep, gone = position, range(base, base)
        if keep is not None:
            gone = range(gone.start, base + struct.unpack_from(">i", data, position + BATCH_LAST)[0] + 1)
        position += BATCH_HEAD.size + length
    if keep is not None:
        os.truncate(log, keep)
    return gone
