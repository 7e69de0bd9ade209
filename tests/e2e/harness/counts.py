"""The count service as a client sees it. Every answer is checked against the OpenAPI document."""

import itertools
import uuid
from urllib.parse import quote

from .http import Client, render

COLLECTION = "/api/v1/internal/counts"
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

_names = itertools.count(1)


def new_id(prefix="item"):
    """Returns an id that no other test uses."""
    return f"{prefix}-{next(_names)}"


def new_key():
    return f"key-{uuid.uuid4()}"


def record(item):
    return f"{COLLECTION}/{quote(item, safe='')}"


def action(item, verb):
    return f"/api/v1/counts/{quote(item, safe='')}/{verb}"


def increase_request(item, amount=None, key=None):
    """Returns the bytes of an increase, for tests that send many at one moment."""
    headers = {"Idempotency-Key": key} if key else {}
    return render("POST", action(item, "increase"), None if amount is None else {"amount": amount}, headers)


class Counts(Client):
    def create(self, item, initial_value=None, **options):
        body = {"itemId": item}
        if initial_value is not None:
            body["initialValue"] = initial_value
        return self.ask("POST", COLLECTION, body, **options)

    def increase(self, item, amount=None, **options):
        return self.ask("POST", action(item, "increase"), _amount(amount), **options)

    def decrease(self, item, amount=None, **options):
        return self.ask("POST", action(item, "decrease"), _amount(amount), **options)

    def reset(self, item, **options):
        return self.ask("POST", action(item, "reset"), **options)

    def get(self, item, **options):
        return self.ask("GET", record(item), **options)

    def put(self, item, body, **options):
        return self.ask("PUT", record(item), body, **options)

    def delete(self, item, **options):
        return self.ask("DELETE", record(item), **options)

    def list(self, *items, name="itemIds"):
        query = "&".join(f"{name}={quote(item, safe='')}" for item in items)
        return self.ask("GET", f"{COLLECTION}?{query}")

    def new_item(self, initial_value=0):
        """Creates a count that belongs to this test alone, and returns its id."""
        item = new_id()
        answer = self.create(item, initial_value)
        assert answer.status == 201, answer
        return item

    def new_bounded(self, initial_value, min_value=None, max_value=None):
        """The same with bounds; None means no bound."""
        item = new_id()
        body = {"itemId": item, "initialValue": initial_value, "minValue": min_value, "maxValue": max_value}
        answer = self.ask("POST", COLLECTION, body)
        assert answer.status == 201, answer
        return item

    def value(self, item):
        answer = self.get(item)
        assert answer.status == 200, answer
        return answer.json()["currentValue"]


def _amount(amount):
    return None if amount is None else {"amount": amount}
