#!/usr/bin/env python3
"""A client of Quipu in Python, with the standard library only. docs/CLIENTS.md explains its rules.

    python3 quipu_client.py increase visits [KEY]       an increase that counts once, however often it is sent
    python3 quipu_client.py send 1001 'Hello!' [KEY]    a message that waits until the user's limit admits it
    python3 quipu_client.py badge dave                  the number of unread messages, live

QUIPU_SERVER is the server's address (http://127.0.0.1:8080), QUIPU_API_KEY a key, if it requires one.
"""

import http.client
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
import uuid
from urllib.parse import quote

SERVER = os.environ.get("QUIPU_SERVER", "http://127.0.0.1:8080")
API_KEY = os.environ.get("QUIPU_API_KEY")
ANSWER_S = 10.0   # how long to wait for one answer; the server gives up after its --deadline, 5 s
SILENCE_S = 45.0  # a stream without a line for three heartbeats is dead
RETRIED = {408, 429, 502, 503, 504}
UNHEARD = {401, 403}  # the server looks at the key only of callers whom it knows: an earlier attempt may have happened
UNCHANGED = {"OVERLOADED", "STORE_UNAVAILABLE", "BUS_UNAVAILABLE", "RATE_LIMIT_EXCEEDED", "REQUEST_TIMEOUT"}


class Refused(Exception):
    """The server says no, and would say no again. Nothing was changed."""


class GaveUp(Exception):
    """The server could not do it in time. Nothing was changed."""


class Unknown(Exception):
    """It may have happened. Retry later with the same key: that resolves it."""


def request(method, path, body=None, headers=None):
    own = {"Authorization": f"Bearer {API_KEY}"} if API_KEY else {}
    if body is not None:
        own["Content-Type"] = "application/json"
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.Request(SERVER + path, data, {**own, **(headers or {})}, method=method)


def post(path, body, key):
    """One attempt: the status, Retry-After in seconds, and the answer. The status is 0 if no answer came."""
    try:
        with urllib.request.urlopen(request("POST", path, body, {"Idempotency-Key": key}), timeout=ANSWER_S) as answer:
            return answer.status, 0.0, json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read()
        is_json = "json" in error.headers.get("Content-Type", "")
        return error.code, float(error.headers.get("Retry-After", 0)), json.loads(text) if is_json else {}
    except (OSError, http.client.HTTPException, ValueError):  # no connection, no answer, or only a part of it
        return 0, 0.0, {}


def change(path, body, key, patience_s=60.0):
    """Sends a change until it is answered for good. Every attempt carries the same key, so only one takes effect."""
    deadline = time.monotonic() + patience_s
    backoff_s = 0.2
    may_have_happened = False
    while True:
        status, retry_after_s, answer = post(path, body, key)
        if 200 <= status < 300:
            return answer
        if status != 0 and status not in RETRIED:
            is_unknown = may_have_happened and status in UNHEARD
            raise (Unknown if is_unknown else Refused)(f"{status} {answer.get('code', '')}: {answer.get('detail', '')}; key {key}")
        may_have_happened |= answer.get("code") not in UNCHANGED  # no answer, OUTCOME_UNKNOWN, or a proxy's error
        pause_s = retry_after_s + random.uniform(0, backoff_s)
        if time.monotonic() + pause_s > deadline:
            raise (Unknown if may_have_happened else GaveUp)(f"{status} {answer.get('code', 'no answer')}; key {key}")
        time.sleep(pause_s)
        backoff_s = min(2 * backoff_s, 5.0)


def increase(item, key):
    return change(f"/api/v1/counts/{quote(item, safe='')}/increase", {"amount": 1}, key)["value"]


def send(user, message, key):
    """Waits for the user's next window if this one is used up: 429 says in Retry-After how long that takes."""
    return change("/api/send", {"userId": user, "message": message}, key, patience_s=180.0)["messageId"]


def events(user, last_id):
    """The events of one connection, as (id, milliseconds to wait before the next connection, counter)."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
    retry_ms, data = 2000, ""
    with urllib.request.urlopen(request("GET", f"/counters/user/{quote(user, safe='')}/stream", None, headers),
                                timeout=SILENCE_S) as lines:
        for line in lines:
            name, _, value = line.decode().rstrip("\r\n").partition(": ")
            if name == "id":
                last_id = value
            elif name == "retry":
                retry_ms = int(value)
            elif name == "data":
                data = value
            elif name == "" and data:  # only the empty line completes an event: half of one is not shown
                yield last_id, retry_ms, json.loads(data)
                data = ""


def badge(user, show):
    """Follows the stream for ever. After a loss it asks for what is newer than the last event."""
    last_id, retry_ms = "", 2000
    while True:
        try:
            for last_id, retry_ms, counter in events(user, last_id):
                show(counter["count"])
        except urllib.error.HTTPError as error:
            if error.code not in RETRIED:
                raise Refused(f"{error.code}: {error.read().decode(errors='replace')}") from None
        except (OSError, http.client.HTTPException):
            pass  # the connection is lost, or nothing came for SILENCE_S
        time.sleep(retry_ms / 1000 * random.uniform(0.5, 1.5))


def main(words):
    verb, rest = (words[0], words[1:]) if words else ("", [])
    # A job that must survive a restart of this program stores its key before the first attempt.
    new_key = str(uuid.uuid4())
    try:
        if verb == "increase" and len(rest) in (1, 2):
            print(increase(rest[0], rest[1] if len(rest) == 2 else new_key))
        elif verb == "send" and len(rest) in (2, 3):
            print(send(rest[0], rest[1], rest[2] if len(rest) == 3 else new_key))
        elif verb == "badge" and len(rest) == 1:
            badge(rest[0], lambda count: print(f"{count} unread", flush=True))
        else:
            sys.exit(__doc__)
    except (Refused, GaveUp) as reason:
        sys.exit(f"Nothing was changed: {reason}")
    except Unknown as reason:
        print(f"It may have happened; run this again with the key: {reason}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
