"""What every service owes every client: no answer that makes no sense, and the same answer again under the same key."""

from .result import Finding, Invariant

# What the load may be told. It asks only for things that exist, so there is no 404.
EXPECTED = {200, 201, 204, 409, 412, 429, 503}


def check_statuses(log):
    invariant = Invariant(f"{log.role}: no answer that a client should not get", len(log.by_id))
    for operation in log.operations:
        wrong = operation.status is not None and operation.status not in EXPECTED
        if wrong or "IDEMPOTENCY_KEY_CONFLICT" in operation.body:
            invariant.findings.append(Finding(f"{operation} was answered {operation.body[:200]}", log.lines_of(operation)))
            if len(invariant.findings) > 20:
                break
    unknown = sum(operation.unknown for operation in log.operations)
    invariant.note = f"{unknown} stayed unknown" if unknown else ""
    return invariant


def check_repeats(log):
    """The stored answer comes back byte for byte."""
    invariant = Invariant(f"{log.role}: the same key gets the same answer")
    for operation in log.operations:
        for status, body in operation.repeats or ():
            invariant.covered += 1
            if (status, body) != (operation.status, operation.body):
                invariant.findings.append(Finding(f"{operation} was answered differently when it was repeated",
                                                  log.lines_of(operation)))
    return invariant
