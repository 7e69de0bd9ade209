"""A name that a route does not know is refused, names what was probably meant, and changes nothing."""

import re

import pytest

from harness.counts import COLLECTION, action, new_id, record
from harness.problems import assert_bad_request, assert_problem

FAR = "zzzzzzzzzzzzzzzzzzzzzzzz"  # resembles no name, so the refusal lists all of them
PROBES = ("/healthz", "/readyz", "/metrics")
PAGES = ("/", "/console", "/console/{file}")  # like probes, they ignore the query


def operations(openapi):
    """Every route of our own: (method, template, operation)."""
    for route in sorted(openapi.routes()):
        method, template = route.split(" ")
        if not template.startswith("/twirp/") and template not in PROBES + PAGES:
            item = openapi.document["paths"][template]
            yield method, template, {**item[method.lower()], "path": item.get("parameters", [])}


def target_of(template):
    return re.sub(r"\{\w+\}", "x", template.replace("{kind}", "outbox").replace("{service}", "entitlements"))


def resolved(openapi, node):
    while "$ref" in node:
        name = node["$ref"].removeprefix("#/")
        node = openapi.document
        for part in name.split("/"):
            node = node[part]
    return node


def listed(answer, code):
    """The names that the refusal of FAR lists."""
    problem = assert_problem(answer, 400, code, field=FAR)
    (error,) = problem["errors"]
    assert FAR in problem["detail"] and error["message"] in problem["detail"]
    assert error["message"].startswith("is unknown; this route accepts ") or error["message"] == "is unknown; this route accepts none"
    return set(re.findall(r'"([^"]+)"', error["message"]))


def test_every_route_knows_the_parameters_that_the_document_has(all_roles_server, openapi):
    checked = 0
    for method, template, operation in operations(openapi):
        parameters = [resolved(openapi, node) for node in operation.get("parameters", []) + operation["path"]]
        documented = {node["name"] for node in parameters if node["in"] == "query"}
        answer = all_roles_server.ask(method, f"{target_of(template)}?{FAR}=1")
        known = listed(answer, "UNKNOWN_PARAMETER")
        assert {name.removesuffix("[]") for name in known} == documented, template  # itemIds[] is itemIds, as PHP writes it
        checked += len(documented)
    assert checked >= 10


def test_every_route_knows_the_members_that_the_document_has(all_roles_server, openapi):
    checked = 0
    for method, template, operation in operations(openapi):
        if method == "GET":
            continue
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        schema = resolved(openapi, content.get("schema", {}))
        answer = all_roles_server.ask(method, target_of(template), {FAR: 1})
        assert listed(answer, "UNKNOWN_FIELD") == schema.get("properties", {}).keys(), template
        assert schema == {} or schema["additionalProperties"] is False, template
        checked += 1
    assert checked >= 10


TYPOS = {"amont": "amount", "Amount": "amount", "amuont": "amount", "ammount": "amount", "amount_": "amount"}


@pytest.mark.parametrize("verb", ["increase", "decrease"])
@pytest.mark.parametrize("typed", TYPOS)
def test_a_mistyped_amount_is_refused_and_changes_nothing(counts, verb, typed):
    item = counts.new_item(10)
    problem = assert_problem(counts.ask("POST", action(item, verb), {typed: 3}), 400, "UNKNOWN_FIELD", field=typed)
    assert f'did you mean "{TYPOS[typed]}"?' in problem["detail"]
    assert counts.value(item) == 10


def test_a_mistyped_initial_value_creates_nothing(counts):
    item = new_id()
    answer = counts.ask("POST", COLLECTION, {"itemId": item, "initialvalue": 3})
    problem = assert_problem(answer, 400, "UNKNOWN_FIELD", field="initialvalue")
    assert 'did you mean "initialValue"?' in problem["detail"]
    assert counts.get(item).status == 404


def test_all_unknown_members_are_named_beside_known_ones(counts):
    item = counts.new_item()
    answer = counts.ask("POST", action(item, "increase"), {"amont": 3, "amount": 1, "why": "because"})
    problem = assert_problem(answer, 400, "UNKNOWN_FIELD")
    assert [error["field"] for error in problem["errors"]] == ["amont", "why"]
    assert counts.value(item) == 0


@pytest.mark.parametrize("verb", ["reset", None])
def test_a_route_without_members_takes_none(counts, verb):
    item = counts.new_item(5)
    method, target = ("POST", action(item, verb)) if verb else ("DELETE", record(item))
    assert_problem(counts.ask(method, target, {"amount": 3}), 400, "UNKNOWN_FIELD", field="amount")
    assert counts.value(item) == 5
    assert counts.ask(method, target, {}).status in (200, 204)


@pytest.mark.parametrize("name", ["é", 'a"b', "a\nb", "", "x" * 60000], ids=["é", "quote", "line", "empty", "endless"])
def test_any_name_can_be_refused(counts, name):
    item = counts.new_item()
    answer = counts.ask("POST", action(item, "increase"), {name: 3})
    problem = assert_problem(answer, 400, "UNKNOWN_FIELD", field=name[:64])
    assert len(answer.body) < 1000 and name[:64] in problem["detail"]
    assert counts.value(item) == 0


def test_a_mistyped_parameter_is_refused(counts, all_roles_server):
    problem = assert_problem(counts.ask("GET", f"{COLLECTION}?itemId=a"), 400, "UNKNOWN_PARAMETER", field="itemId")
    assert 'did you mean "itemIds"?' in problem["detail"]
    problem = assert_problem(all_roles_server.ask("GET", "/v1/users/u/entitlements?limt=1"), 400, "UNKNOWN_PARAMETER", field="limt")
    assert 'did you mean "limit"?' in problem["detail"]


def test_a_parameter_on_a_change_is_refused_and_changes_nothing(counts):
    item = counts.new_item()
    assert_problem(counts.ask("POST", action(item, "increase") + "?amount=3"), 400, "UNKNOWN_PARAMETER", field="amount")
    assert counts.value(item) == 0


def test_a_query_that_cannot_be_read_is_refused_on_every_route(counts):
    for target in (record(counts.new_item()), f"{COLLECTION}"):
        for query in ("%zz", "a=%ff", "a=%00", "itemIds=%"):
            assert "query" in assert_bad_request(counts.ask("GET", f"{target}?{query}"))["detail"]


def test_an_empty_query_is_none(counts):
    item = counts.new_item(4)
    for query in ("?", "?&", "?&&="):
        assert counts.ask("GET", record(item) + query).json()["currentValue"] == 4


def test_a_query_has_at_most_1100_parameters(counts):
    item = counts.new_item(7)
    assert len(counts.ask("GET", f"{COLLECTION}?" + f"itemIds={item}&" * 1000).json()) == 1
    assert_bad_request(counts.ask("GET", f"{COLLECTION}?" + f"itemIds={item}&" * 1001), field="itemIds")
    for query in ("itemIds=a&" * 1101, "a&" * 30000):
        assert "1100" in assert_bad_request(counts.ask("GET", f"{COLLECTION}?{query}"))["detail"]


@pytest.mark.parametrize("first, second", [("userId", "user_id"), ("rateLimit", "rate_limit"), ("timeWindow", "time_window")])
def test_both_names_of_one_member_are_refused(all_roles_server, first, second):
    body = {"userId": "both-names", "rateLimit": 5, "timeWindow": 1}
    for other in (body[first], None, "x"):
        answer = all_roles_server.ask("POST", "/api/config", {**body, second: other})
        assert_bad_request(answer, field=second)
    assert all_roles_server.ask("GET", "/api/config/both-names").status == 404
    spelled = {second if name == first else name: value for name, value in body.items()}
    spelled["user_id" if first == "userId" else "userId"] = f"either-name-{first}"
    assert all_roles_server.ask("POST", "/api/config", spelled).status == 200


def test_a_member_given_twice_is_refused(counts):
    item = counts.new_item()
    assert_bad_request(counts.ask("POST", action(item, "increase"), b'{"amount":3,"amount":3}'))
    assert_bad_request(counts.ask("POST", action(item, "increase"), rb'{"amount":3,"\u0061mount":4}'))
    assert counts.value(item) == 0


@pytest.mark.parametrize("path", PROBES)
@pytest.mark.parametrize("query", ["ts=1", "verbose", "%zz", "a&" * 30000], ids=["time", "word", "broken", "flood"])
def test_probes_may_add_parameters(http_server, path, query):
    assert http_server.ask("GET", f"{path}?{query}").status == 200


UNKNOWN = {"text": '"x"', "wide": "9" * 30, "huge": "1e999", "nested": '{"a":[{}]}', "null": "null"}


@pytest.mark.parametrize("value", UNKNOWN.values(), ids=UNKNOWN)
def test_twirp_ignores_what_it_does_not_know(all_roles_server, value):
    path, headers = "/twirp/pyggpot.pot.Pot/ListPots", {"Content-Type": "application/json"}
    answer = all_roles_server.ask("POST", path + "?x=%zz&page=0", f'{{"page":1,"added_later":{value}}}'.encode(), headers)
    assert answer.status == 200, answer
    assert answer.json()["request"]["page"] == 1
