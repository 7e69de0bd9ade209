"""What a check says."""

import dataclasses

FINDINGS_SHOWN = 3
LINES_SHOWN = 12
LINE_LENGTH = 300


@dataclasses.dataclass
class Finding:
    """One contradiction: a sentence, and the shortest part of the log that shows it."""

    what: str
    lines: list = dataclasses.field(default_factory=list)

    def text(self):
        shown = [line[:LINE_LENGTH] for line in self.lines[:LINES_SHOWN]]
        if len(self.lines) > LINES_SHOWN:
            shown.append(f"… and {len(self.lines) - LINES_SHOWN} lines more")
        return "\n".join([self.what, *("    " + line for line in shown)])


@dataclasses.dataclass
class Invariant:
    """A promise, how many operations it was checked on, and what contradicts it."""

    name: str
    covered: int = 0
    findings: list = dataclasses.field(default_factory=list)
    note: str = ""

    @property
    def holds(self):
        return not self.findings

    def line(self):
        verdict = "holds" if self.holds else f"BROKEN {len(self.findings)} times"
        note = f" ({self.note})" if self.note else ""
        return f"{self.name}: {verdict}, {self.covered:,} checked{note}"

    def text(self):
        """The line, and the first findings."""
        shown = [finding.text() for finding in self.findings[:FINDINGS_SHOWN]]
        return "\n".join([self.line(), *shown])
