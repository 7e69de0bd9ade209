"""A notification that two processes send at the same time is found, and one that is sent again after a crash is not."""

import json

import pytest

from check import deliveries

LEASE_US = 4_000_000


@pytest.fixture(name="outputs")
def outputs_fixture(tmp_path):
    """What two processes printed: `outputs.sent(0, 1.5)` adds the notification n1 to the first, at 1.5 s."""
    return Outputs(tmp_path)


class Outputs:
    def __init__(self, folder):
        self._paths = [folder / "one", folder / "other"]
        for path in self._paths:
            path.write_text('{"time":"2026-11-18T17:00:00.000000Z","message":"ready"}\n')

    def sent(self, process, second, number="n1"):
        line = {"time": f"2026-11-18T17:00:{second:09.6f}Z", "message": "notification sent", "notification_id": number}
        with self._paths[process].open("a") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def tear(self, process):
        with self._paths[process].open("a") as file:
            file.write('{"time":"2026-11-18T17:00:09.0","message":"notification sent","notific')

    def judge(self, *broken):
        start_us = deliveries.microseconds("2026-11-18T17:00:00Z")
        times = [tuple(start_us + int(second * 1e6) for second in fault) for fault in broken]
        return deliveries.check(self._paths, times, LEASE_US)


def test_notifications_that_are_sent_once_are_fine(outputs):
    outputs.sent(0, 1)
    outputs.sent(1, 1, "n2")
    outputs.tear(0)
    judged = outputs.judge()
    assert judged.holds and judged.covered == 2


def test_one_that_two_processes_send_is_found(outputs):
    outputs.sent(0, 1)
    outputs.sent(1, 1.2)
    assert not outputs.judge().holds


def test_one_that_is_sent_again_after_its_lease_is_fine(outputs):
    outputs.sent(0, 1)
    outputs.sent(1, 5.1)
    assert outputs.judge().holds


def test_one_that_is_sent_again_after_a_fault_is_fine_and_a_fault_long_ago_is_no_excuse(outputs):
    outputs.sent(0, 21)
    outputs.sent(1, 21.2)
    assert outputs.judge((20.5, 20.9)).holds
    assert not outputs.judge((1, 3), (30, 40)).holds
