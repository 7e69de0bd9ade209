"""The OpenAPI document: sound in itself, and neither it nor the router can drift from the other."""

import json
import re

from harness.http import Connection, render
from harness.openapi import METHODS
from harness.quipu import run
from harness.routes import list_routes, names
from harness.tokens import Issuer


def nodes(value):
    """Every object of the document."""
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(child)


def operations(document):
    return [item[method] for item in document["paths"].values() for method in METHODS if method in item]


def test_every_reference_resolves(openapi):
    for node in nodes(openapi.document):
        if "$ref" in node:
            target = openapi.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                assert part in target, node
                target = target[part]


def test_everything_defined_is_used(openapi):
    used = {node["$ref"] for node in nodes(openapi.document) if "$ref" in node}
    used |= {f"#/components/securitySchemes/{name}" for operation in operations(openapi.document)
             for requirement in operation["security"] for name in requirement}
    defined = {
        f"#/components/{kind}/{name}" for kind, entries in openapi.document["components"].items() for name in entries
    }
    assert defined == used


def test_every_example_satisfies_its_schema(openapi):
    checked = 0
    for node in nodes(openapi.document):
        if "schema" not in node:
            continue
        examples = [entry["value"] for entry in node.get("examples", {}).values()]
        for example in examples + ([node["example"]] if "example" in node else []):
            openapi.validate(example, node["schema"])
            checked += 1
    assert checked > 20


def test_every_operation_is_named_once_tagged_and_described(openapi):
    names = [operation["operationId"] for operation in operations(openapi.document)]
    assert len(names) == len(set(names))
    for operation in operations(openapi.document):
        assert operation["tags"] and operation["summary"], operation
        assert all("description" in response or "$ref" in response for response in operation["responses"].values())


def test_every_change_accepts_an_idempotency_key(openapi):
    for item in openapi.document["paths"].values():
        for method in {"post", "put", "patch", "delete"} & item.keys():
            if item[method].get("x-changes-nothing"):  # Twirp has nothing but POST
                continue
            if item[method].get("x-keys-in-body"):  # one for each change
                continue
            accepted = {parameter.get("$ref") for parameter in item[method]["parameters"]}
            assert accepted & {f"#/components/parameters/{name}" for name in ("IdempotencyKey", "IdempotencyKeyRequired")}


def test_the_served_document_is_the_one_in_the_repository(all_roles_server, openapi):
    answer = all_roles_server.ask("GET", "/openapi.json")
    assert answer.status == 200
    assert answer.header("content-type").startswith("application/json")
    served = answer.json()
    assert served["openapi"].startswith("3.1.")
    assert served["info"]["title"] == openapi.document["info"]["title"]
    assert served["paths"] == openapi.document["paths"]
    assert served["components"] == openapi.document["components"]


def test_the_router_and_the_document_have_the_same_routes(binary, all_roles_server, tmp_path):
    routed = names(list_routes(binary, cwd=tmp_path))
    document = all_roles_server.ask("GET", "/openapi.json").json()
    documented = {
        f"{method.upper()} {path}" for path, item in document["paths"].items() for method in METHODS if method in item
    }
    assert routed == documented
    assert {"POST /api/v1/counts/{itemId}/increase", "POST /api/send", "POST /twirp/pyggpot.pot.Pot/CreatePot"} <= routed


# What the document says of a route, by what the router asks for.
SECURITY = {
    "public": [],
    "external": [{"apiKey": ["external"]}],
    "internal": [{"apiKey": ["internal"]}],
    "admin": [{"apiKey": ["admin"]}],
    "user": [{"userToken": []}, {"apiKey": ["internal"]}],
    "owner": [{"userToken": []}, {"apiKey": ["internal"]}],
}


def test_the_document_says_who_may_call_each_route_as_the_router_does(binary, openapi, tmp_path):
    for route in list_routes(binary, cwd=tmp_path):
        operation = openapi.document["paths"][route.path][route.method.lower()]
        assert operation["security"] == SECURITY[route.access], route
        assert ("401" in operation["responses"]) == (route.access != "public"), route
        assert "403" in operation["responses"], route


def ask_for_head_of_streams(server, method, path):
    """The answer; without the body where that goes on for ever."""
    if not path.endswith("/stream"):
        return server.ask(method, path)
    with Connection(server.port) as connection:
        connection.send(render(method, path))
        return connection.read_answer("HEAD")


def test_every_documented_route_is_answered_by_the_server(all_roles_server, openapi):
    """Not only listed: no documented operation falls through to ROUTE_NOT_FOUND or 405."""
    for route in sorted(openapi.routes()):
        method, template = route.split(" ")
        path = template.replace("{file}", "app.js")  # a file that is not there is no route
        answer = ask_for_head_of_streams(all_roles_server, method, re.sub(r"\{\w+\}", "no-such-thing", path))
        openapi.check_answer(method, template, answer)
        if answer.status >= 400:
            assert json.loads(answer.body)["code"] not in ("ROUTE_NOT_FOUND", "METHOD_NOT_ALLOWED"), route


def test_the_header_that_names_the_caller_is_required_unless_a_token_does(all_roles_server, serve, sqlite_store, tmp_path):
    def required(server):
        parameters = server.ask("GET", "/openapi.json").json()["components"]["parameters"]
        return {name for name, parameter in parameters.items()
                if parameter["required"] and parameter.get("in") == "header"}

    checks_tokens = serve(sqlite_store, "--roles", "all", *Issuer(tmp_path, "ES256").arguments())
    assert required(all_roles_server) - required(checks_tokens) == {"CallingUser"}


def test_the_document_has_the_version_of_the_program(serve, sqlite_store, binary):
    answer = serve(sqlite_store).ask("GET", "/openapi.json")
    assert f"quipu {answer.json()['info']['version']}\n" == run(binary, "version").stdout
