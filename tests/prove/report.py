"""The report of a proof: one HTML file without scripts or anything from elsewhere, which opens from the disk.

For each store it draws what clients got (operations per second, by role), what they did not get (failed attempts, by
kind) and what was broken meanwhile (faults as bands), all on one axis of time, and lists every invariant, recovery and
kind of fault. Pointing at something shows its numbers.
"""

import collections
import datetime
import html
import os
import pathlib
import platform

from faults import KINDS

STYLE = (pathlib.Path(__file__).resolve().parent / "report.css").read_text(encoding="utf-8")
WIDTH, LEFT, RIGHT = 1160, 118, 8  # of a chart: the whole, and what is left free at its sides
PLOT_HEIGHT, ERRORS_HEIGHT, LANE_HEIGHT, GAP = 190, 90, 15, 34
POINTS_MAX = 580
ROLES = ["counts", "gateway", "entitlements", "pots", "dialogs", "counters"]
ERRORS = {"refused": "503, nothing changed", "lost": "connection lost", "timeout": "no answer in time",
          "connect": "no connection", "unknown": "outcome unknown", "bad": "an answer that no client should get"}
NAMES = {"postgres": "PostgreSQL", "redis": "Redis", "kafka": "Kafka", "nats": "NATS", "rabbitmq": "RabbitMQ"}
TARGETS = ["quipu-1", "quipu-2", "quipu-3", "postgres", "redis", "kafka", "nats", "rabbitmq", "network"]


def write(path, results, again):
    """`again` is the command for the same run."""
    pathlib.Path(path).write_text(page(results, again), encoding="utf-8")


def page(results, again):
    violated = any(result.is_violated for result in results)
    planned = not any(result.failures for result in results)
    verdict, mood = ("A promise is broken", "bad") if violated else ("Everything holds", "good") if planned else \
        ("Nothing is broken, but the run was not as planned", "fair")
    body = [f'<header class="{mood}"><h1>{verdict}</h1>{_figures(results)}{_machine(again)}</header>']
    body += [_part(result) for result in results]
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Quipu: {verdict}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
            f'<body>{"".join(body)}</body></html>\n')


def _figures(results):
    faults = [fault for result in results for fault in result.faults]
    invariants = [invariant for result in results for invariant in result.invariants]
    figures = [(f"{sum(result.operations for result in results):,}", "operations acknowledged"),
               (str(len(faults)), f"faults of {len({fault.kind for fault in faults})} kinds"),
               (str(len(invariants)), "invariants checked"),
               (str(sum(not invariant.holds for invariant in invariants)), "broken")]
    return '<dl class="figures">' + "".join(f"<div><dd>{number}</dd><dt>{what}</dt></div>" for number, what in figures) \
        + "</dl>"


def _machine(again):
    now = datetime.datetime.now(datetime.timezone.utc)
    return (f"<p>{now:%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, {platform.machine()}. Again with "
            f"<code>{html.escape(again)}</code></p>")


def _part(result):
    title = "Three processes on " + ", ".join(NAMES[name] for name in result.engines) if result.engines else \
        "One process on SQLite"
    title += ", upgraded from the previous release" if result.upgrades else ""
    roles = ", ".join(f"{role} {count:,}" for role, count in result.roles.items())
    return (f"<section><h2>{title}</h2><p>{result.operations:,} operations acknowledged: {html.escape(roles)}.</p>"
            f"{_chart(result)}{_failures(result)}<h3>Invariants</h3>{_invariants(result)}{_recoveries(result)}"
            f"<h3>Faults</h3>{_faults(result)}{_notes(result)}</section>")


# ---- tables ----------------------------------------------------------------------------------------------------------


def _table(heads, rows):
    head = "".join(f'<th{_right(name)}>{name.lstrip(">")}</th>' for name in heads)
    lines = "".join("<tr>" + "".join(f"<td{_right(name)}>{cell}</td>" for name, cell in zip(heads, row)) + "</tr>"
                    for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _right(name):
    return ' class="number"' if name.startswith(">") else ""


def _invariants(result):
    rows = [(html.escape(invariant.name) + (f" <small>{html.escape(invariant.note)}</small>" if invariant.note else ""),
             f"{invariant.covered:,}", '<b class="good">holds</b>' if invariant.holds else
             f'<b class="bad">broken: {len(invariant.findings)}</b>') for invariant in result.invariants]
    found = [f"<h4>{html.escape(invariant.name)}</h4><pre>{html.escape(invariant.text())}</pre>"
             for invariant in result.invariants if not invariant.holds]
    return _table(["what must be true", ">checked on", "verdict"], rows) + "".join(found)


def _recoveries(result):
    if not result.recoveries:
        return ""

    def seconds(value):
        return "never" if value is None else f"{value:.2f} s"

    rows = [(recovery.engine, seconds(recovery.success_s), seconds(recovery.empty_s) if recovery.has_outbox else "–")
            for recovery in result.recoveries]
    return "<h3>Recovery, from the moment the engine accepts connections (Kafka: leads its partitions)</h3>" + \
        _table(["killed", ">first success", ">outboxes empty"], rows)


def _faults(result):
    by_kind = collections.defaultdict(list)
    for fault in result.faults:
        by_kind[fault.kind].append(fault)
    rows = []
    for kind, faults in sorted(by_kind.items()):
        lasted = sum((fault.healed_us or fault.injected_us) - fault.injected_us for fault in faults) / 1e6
        example = next((fault.detail for fault in faults if fault.detail), "")
        rows.append((kind, len(faults), f"{lasted:.0f} s", html.escape(_meaning(kind)), html.escape(example[:90])))
    return _table(["kind", ">times", ">in all", "what it is", "for example"], rows)


def _meaning(kind):
    text = next(cls.__doc__ for cls in KINDS[kind].__mro__ if cls.__doc__)
    return " ".join(text.split("\n\n")[0].split())


def _failures(result):
    if not result.failures:
        return ""
    return '<h3 class="bad">Not as planned</h3><ul>' + "".join(f"<li>{html.escape(text)}</li>" for text in result.failures) \
        + "</ul>"


def _notes(result):
    return "".join(f'<p class="note">{html.escape(note)}</p>' for note in result.notes)


# ---- the chart -------------------------------------------------------------------------------------------------------


class Axis:
    """Time, from left to right: microseconds to points of the drawing."""

    def __init__(self, begin_us, end_us):
        self.begin_us, self.end_us = begin_us, max(end_us, begin_us + 1_000_000)

    def x(self, us):
        share = (us - self.begin_us) / (self.end_us - self.begin_us)
        return LEFT + max(0.0, min(1.0, share)) * (WIDTH - LEFT - RIGHT)

    def ticks(self):
        seconds = (self.end_us - self.begin_us) / 1e6
        step = next(step for step in (5, 10, 15, 30, 60, 120, 300, 600, 1e9) if seconds / step <= 14)
        return [int(step * number) for number in range(int(seconds / step) + 1)]


def _rates(seconds, group):
    """[(time, {name: per second}), …] from the totals that the load reports."""
    every = max(1, len(seconds) // POINTS_MAX)
    kept = seconds[::every]
    rates = []
    for before, after in zip(kept, kept[1:]):
        span = (after["t"] - before["t"]) / 1e6
        if span > 0:
            rates.append((after["t"], {name: (after[group][name] - before[group].get(name, 0)) / span
                                       for name in after[group]}))
    return rates


def _chart(result):
    if len(result.seconds) < 3:
        return ""
    axis = Axis(result.seconds[0]["t"], result.seconds[-1]["t"])
    lanes = [target for target in TARGETS if any(_lane(fault) == target for fault in result.faults)]
    top = 20
    plot = _stack(axis, _rates(result.seconds, "acked"), top)
    errors_top = top + PLOT_HEIGHT + GAP
    errors = _stack(axis, _rates(result.seconds, "errors"), errors_top, ERRORS_HEIGHT, list(ERRORS), "error")
    lanes_top = errors_top + ERRORS_HEIGHT + GAP
    bands = _bands(axis, result.faults, lanes, lanes_top)
    bottom = lanes_top + LANE_HEIGHT * len(lanes)
    return (f'<figure><div class="wide"><svg viewBox="0 0 {WIDTH} {bottom + 24}" role="img" '
            f'aria-label="Operations, failed attempts and faults over time">'
            f'<text class="head" x="{LEFT}" y="{top - 7}">operations acknowledged per second</text>{plot}'
            f'<text class="head" x="{LEFT}" y="{errors_top - 7}">failed attempts per second</text>{errors}'
            f'<text class="head" x="{LEFT}" y="{lanes_top - 7}">faults</text>{bands}{_time_axis(axis, bottom)}</svg></div>'
            f"<figcaption>{_legend(result)}</figcaption></figure>")


def _stack(axis, rates, top, height=PLOT_HEIGHT, names=tuple(ROLES), style="role"):
    """One area on another, with a scale."""
    present = [name for name in names if any(rate.get(name, 0) > 0 for _, rate in rates)]
    highest = max((sum(rate.get(name, 0) for name in present) for _, rate in rates), default=0) or 1
    scale = height / highest
    base = [0.0] * len(rates)
    drawn = [_scale(highest, scale, top + height)]
    for name in present:
        upper = [low + rate.get(name, 0) for low, (_, rate) in zip(base, rates)]
        points = [(axis.x(us), top + height - value * scale) for (us, _), value in zip(rates, upper)]
        points += [(axis.x(us), top + height - value * scale) for (us, _), value in reversed(list(zip(rates, base)))]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + "Z"
        number = list(names).index(name)
        drawn.append(f'<path class="{style}-{number}" d="{path}"><title>{ERRORS.get(name, name)}</title></path>')
        base = upper
    return "".join(drawn)


def _scale(highest, scale, bottom):
    step = next(step for step in (n * 10 ** e for e in range(0, 8) for n in (1, 2, 5)) if highest / step <= 4)
    lines = []
    for number in range(int(highest / step) + 1):
        y = bottom - number * step * scale
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                     f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number * step:,}</text>')
    return "".join(lines)


def _lane(fault):
    return "network" if fault.target.startswith("path-") else fault.target


def _bands(axis, faults, lanes, top):
    drawn = []
    for number, target in enumerate(lanes):
        y = top + number * LANE_HEIGHT
        drawn.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 11}" text-anchor="end">{target}</text>'
                     f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{LANE_HEIGHT - 2}"/>')
        for fault in (fault for fault in faults if _lane(fault) == target):
            begin, end = axis.x(fault.injected_us), axis.x(fault.healed_us or axis.end_us)
            words = f"{fault.kind} on {fault.target}, {((fault.healed_us or axis.end_us) - fault.injected_us) / 1e6:.1f} s"
            drawn.append(f'<rect class="{_family(fault.kind)}" x="{begin:.1f}" y="{y}" width="{max(2.0, end - begin):.1f}" '
                         f'height="{LANE_HEIGHT - 2}"><title>{html.escape(words)}: {html.escape(fault.detail)}</title></rect>')
    return "".join(drawn)


FAMILIES = {"killed or restarted": ("kill", "restart", "upgrade"), "silent": ("stop", "half-open"),
            "loses data": ("flush", "older", "forgets"),
            "cut, slow, full, locked, wrong clock": ()}


def _family(kind):
    for number, ends in enumerate(FAMILIES.values()):
        if any(kind.endswith(end) for end in ends) or not ends:
            return f"family-{number}"
    raise AssertionError("the last family has the rest")


def _time_axis(axis, y):
    return "".join(
        f'<text class="tick" x="{axis.x(axis.begin_us + s * 1_000_000):.1f}" y="{y + 16}" text-anchor="middle">'
        f"{s // 60}:{s % 60:02}</text>" for s in axis.ticks())


def _legend(result):
    def item(style, text):
        return f'<span><i class="{style}"></i>{html.escape(text)}</span>'

    errors = result.seconds[-1]["errors"]
    groups = [[item(f"role-{number}", role) for number, role in enumerate(ROLES) if role in result.acknowledged],
              [item(f"error-{number}", text) for number, (name, text) in enumerate(ERRORS.items()) if errors.get(name)],
              [item(f"family-{number}", text) for number, text in enumerate(FAMILIES)]]
    return "".join(f"<p>{''.join(group)}</p>" for group in groups if group)
