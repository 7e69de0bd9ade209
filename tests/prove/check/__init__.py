"""The judge of a proof: reads the log of the load, the tables and the topics, and says what contradicts what.

It shares no code with the server and believes only what clients were told. Each service has a module with a model of
its own; each yields invariants, and an invariant that does not hold has findings with the lines of the log that show it.
"""

from . import answers, counts, dialogs, entitlements, gateway, pots, verify
from .log import Log
from .tables import Tables

MODELS = {"counts": counts, "gateway": gateway, "entitlements": entitlements, "pots": pots, "dialogs": dialogs}


def run(log_dir, cluster):
    """All invariants of the roles that have a log, as a list of Invariant."""
    with Tables(cluster) as tables:
        invariants = [invariant for role in MODELS for invariant in _run_role(log_dir, role, tables, cluster)]
    return invariants + verify.check(cluster)


def _run_role(log_dir, role, tables, cluster):
    """Only the log of one role is in memory at a time."""
    log = Log(log_dir, role)
    if not log.exists:
        return []
    return [answers.check_statuses(log), answers.check_repeats(log), *MODELS[role].check(log, tables, cluster)]
