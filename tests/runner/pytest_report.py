"""A pytest plugin: one line of JSON per finished test, in the file that QUIPU_PYTEST_REPORT names.

    {"collected": 2791}
    {"node": "tests/e2e/test_x.py::test_y[sqlite]", "outcome": "passed", "seconds": 0.12, "text": ""}
"""

import json
import os

_file = None
_open = {}  # node -> what is known before its teardown


def pytest_configure():
    global _file  # pylint: disable=global-statement # one process, one report
    if "PYTEST_XDIST_WORKER" not in os.environ:
        _file = open(os.environ["QUIPU_PYTEST_REPORT"], "a", encoding="utf-8")  # pylint: disable=consider-using-with


def _say(line):
    if _file is not None:
        _file.write(json.dumps(line) + "\n")
        _file.flush()


def pytest_collection_finish(session):
    if not session.config.pluginmanager.hasplugin("dsession"):
        _say({"collected": len(session.items)})


def pytest_xdist_node_collection_finished(ids):
    _say({"collected": len(ids)})


def pytest_collectreport(report):
    if report.failed:
        _say({"node": report.nodeid or "collection", "outcome": "failed", "seconds": 0.0, "text": report.longreprtext})


def pytest_runtest_logreport(report):
    case = _open.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0, "text": ""})
    case["seconds"] += report.duration
    if report.failed:
        case["outcome"] = "failed"
        case["text"] += _text_of(report)
    elif report.skipped and case["outcome"] == "passed":
        case["outcome"] = "skipped"
        case["text"] = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    if report.when == "teardown":
        _say({"node": report.nodeid, **_open.pop(report.nodeid)})


def _text_of(report):
    sections = "".join(f"\n---- {title}\n{content}" for title, content in report.sections)
    return f"{report.when}: {report.longreprtext}{sections}\n"
