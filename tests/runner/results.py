"""What became of single tests, and how that is read from cmocka's and pytest's reports."""

import dataclasses
import re
import xml.etree.ElementTree as xml

from .plan import PLAIN

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
ENGINES = ("postgres", "sqlite", "redis", "kafka", "nats", "rabbitmq")


@dataclasses.dataclass
class Case:
    kind: str
    engine: str
    name: str
    outcome: str
    seconds: float = 0.0
    text: str = ""  # why it failed or was skipped
    rerun: str = ""  # the command that runs just this test again


def read_cmocka(path, job):
    """The cases of one XML file, which cmocka writes per group of tests."""
    return [_cmocka_case(element, job) for element in xml.parse(path).getroot().iter("testcase")]


def explain_skips(cases, output):
    """cmocka's report has no reasons; skip_because() prints them in the order of the tests."""
    reasons = re.findall(r"^skipped because (.*)$", output, re.MULTILINE)
    for case, reason in zip([case for case in cases if case.outcome == SKIPPED], reasons):
        case.text = reason


def _cmocka_case(element, job):
    name = element.get("name")
    outcome, text = PASSED, ""
    for tag, becomes in (("failure", FAILED), ("error", FAILED), ("skipped", SKIPPED)):
        found = element.find(tag)
        if found is not None:
            outcome, text = becomes, found.text or found.get("message") or ""
    return Case(job.kind, job.engine, f"{job.name} {name}", outcome, float(element.get("time") or 0), text,
                f"tests/run.py {job.name}:{name}")


def engine_of(node):
    """The engine in the parameters of a pytest node, for the summary: the first that is named."""
    parameters = re.search(r"\[(.*)\]$", node)
    named = [engine for engine in ENGINES if parameters and engine in parameters.group(1)]
    return named[0] if named else "-"


def read_pytest(line, job):
    """The case of one finished test, as pytest_report.py tells it."""
    node = line["node"]
    return Case(job.kind, engine_of(node) if job.tree else "-", node, line["outcome"], line["seconds"], line["text"],
                f"tests/run.py '{node}'" + (f" --tree {job.tree}" if job.tree not in (PLAIN, None) else ""))
