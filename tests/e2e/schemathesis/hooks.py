"""What an OpenAPI document cannot say, and schemathesis therefore takes for valid. The document says it in words."""

from collections.abc import Mapping

import schemathesis


def has(part, name):
    """Whether the part of the request is an object in which the member has a value."""
    return isinstance(part, Mapping) and part.get(name) is not None


def mixes_ids_with_a_page(case):
    """No parameter can exclude another one."""
    return case.path.endswith("/internal/counts") and has(case.query, "itemIds") and any(
        has(case.query, name) for name in ("prefix", "after", "limit"))


def has_bounds_out_of_order(case):
    """A schema cannot compare two members."""
    if "/internal/counts" not in case.path or not isinstance(case.body, Mapping):
        return False
    value = case.body.get("initialValue" if case.method == "POST" else "value")
    if value is None and case.method == "POST":
        value = 0
    numbers = [number for number in (case.body.get("minValue"), value, case.body.get("maxValue"))
               if isinstance(number, (int, float))]
    return numbers != sorted(numbers)


def has_two_kinds_of_keys(case):
    """A schema of the body cannot refer to a header."""
    changes = case.body.get("changes") if isinstance(case.body, Mapping) else None
    return isinstance(changes, list) and has(case.headers, "Idempotency-Key") and any(
        has(change, "idempotencyKey") for change in changes)


def invents_a_cursor(case):
    """What a cursor of /operator/verify looks like depends on the service, which is another parameter."""
    return case.path == "/operator/verify/{service}" and has(case.query, "after")


def write_integers_as_such(value):
    """Quipu refuses 1.0 where an integer is required: it is exact, and floats are not. To a schema, 1.0 is an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: write_integers_as_such(member) for name, member in value.items()}
    return [write_integers_as_such(element) for element in value] if isinstance(value, list) else value


@schemathesis.hook
def filter_case(context, case):
    return not (mixes_ids_with_a_page(case) or has_bounds_out_of_order(case) or has_two_kinds_of_keys(case)
                or invents_a_cursor(case))


@schemathesis.hook
def map_case(context, case):
    if isinstance(case.body, (dict, list)):  # one that is set, even to the same, is judged again
        case.body = write_integers_as_such(case.body)
    if case.query:
        case.query = write_integers_as_such(case.query)
    return case
