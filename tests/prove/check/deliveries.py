"""Nobody sends a notification that another one is sending: a claim excludes others as long as its lease lasts.

The processes print a line for each notification that they send. A second one is allowed after a crash, or once the lease
was over, because the first sender may have died before it recorded that it has sent. So two that follow each other
closely contradict each other, unless something was broken shortly before.
"""

import json

from .result import Finding, Invariant
from .topics import microseconds

SENT = '"notification sent"'


def check(outputs, broken, lease_us):
    """`outputs` are files with what each process printed; `broken` are the times of faults, [(from, to), …]."""
    invariant = Invariant("notifications: none is sent again while its lease lasts")
    sent = {}
    for path in outputs:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if SENT in line:
                    _take(line, sent)
    for number, times in sent.items():
        invariant.covered += len(times)
        times.sort()
        for first, second in zip(times, times[1:]):
            excused = any(begin <= second and first - lease_us <= end for begin, end in broken)
            if second - first < lease_us // 2 and not excused:
                invariant.findings.append(Finding(f"the notification {number} was sent again after {second - first} microseconds"))
                break
    return invariant


def _take(line, sent):
    """Adds the time of a line. The last line of a process that was killed may be torn."""
    try:
        said = json.loads(line)
    except ValueError:
        return
    sent.setdefault(said["notification_id"], []).append(microseconds(said["time"]))
