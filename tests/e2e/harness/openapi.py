"""The OpenAPI document: merged from api/ as the program does it, and used to check answers."""

import json
import pathlib
import re

import jsonschema

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "api"
METHODS = ("get", "post", "put", "patch", "delete")


def merge(documents):
    """Merges `paths` and every object below `components`; the rest comes from the first document."""
    documents = list(documents)
    merged = json.loads(json.dumps(documents[0]))
    for document in documents[1:]:
        _unite(merged.setdefault("paths", {}), document.get("paths", {}))
        for kind, entries in document.get("components", {}).items():
            _unite(merged.setdefault("components", {}).setdefault(kind, {}), entries)
    return merged


def _unite(into, entries):
    clash = into.keys() & entries.keys()
    assert not clash, f"defined twice: {sorted(clash)}"
    into.update(entries)


class OpenApi:
    def __init__(self, document):
        self.document = document
        self._resolver = jsonschema.RefResolver.from_schema(document)
        self._templates = [(template, _pattern(template)) for template in document["paths"]]

    @classmethod
    def from_files(cls, folder=FOLDER):
        services = sorted(path for path in folder.glob("*.json") if path.name != "common.json")
        return cls(merge(json.loads(path.read_text()) for path in [folder / "common.json", *services]))

    def routes(self):
        """{'POST /api/v1/…/{itemId}/increase', …}"""
        return {
            f"{method.upper()} {template}"
            for template, item in self.document["paths"].items()
            for method in METHODS
            if method in item
        }

    def check_answer(self, method, target, answer):
        """Fails unless the document has this status and these headers, and the body satisfies its schema."""
        operation = self._operation(method, target.split("?")[0])
        if operation is None:
            assert answer.status in (400, 404, 405), f"{method} {target} is not in the document: {answer}"
            self.check_problem(answer)
            return
        responses = operation["responses"]
        assert str(answer.status) in responses, f"{method} {target}: {answer.status} is not in the document: {answer}"
        response = self._resolve(responses[str(answer.status)])
        self._check_headers(response, answer)
        if method == "HEAD" or "content" not in response:
            assert answer.body == b"", answer
            return
        media_type = (answer.header("content-type") or "").split(";")[0].strip()
        assert media_type in response["content"], f"{method} {target}: {media_type!r} is not in the document"
        if media_type.endswith("json"):
            self.validate(answer.json(), response["content"][media_type]["schema"])

    def check_problem(self, answer):
        assert answer.header("content-type") == "application/problem+json", answer
        self.validate(answer.json(), {"$ref": "#/components/schemas/Problem"})
        assert answer.json()["status"] == answer.status, answer

    def validate(self, value, schema):
        jsonschema.Draft202012Validator(schema, resolver=self._resolver).validate(value)

    def _check_headers(self, response, answer):
        for name, header in response.get("headers", {}).items():
            header = self._resolve(header)
            value = answer.header(name)
            if value is None:
                assert not header.get("required"), f"{name} is missing: {answer}"
            elif header["schema"].get("type") == "integer":
                self.validate(int(value), header["schema"])
            else:
                self.validate(value, header["schema"])

    def _operation(self, method, path):
        method = "get" if method == "HEAD" else method.lower()
        for template, pattern in self._templates:
            if pattern.fullmatch(path):
                return self.document["paths"][template].get(method)
        return None

    def _resolve(self, node):
        while "$ref" in node:
            _, node = self._resolver.resolve(node["$ref"])
        return node


def _pattern(template):
    parts = re.split(r"\{[^}]+\}", template)
    return re.compile("[^/]+".join(map(re.escape, parts)))
