"""The gateway as a client sees it, and the sender by what it prints. Every answer is checked against the OpenAPI
document."""

import itertools
import re
from urllib.parse import quote

from .counts import new_id
from .http import Client, render

CONFIG = "/api/config"
SEND = "/api/send"
YEAR = 525600  # the longest window: it does not elapse while a test runs

_texts = itertools.count(1)
_SMS = re.compile(r"^SMS SENT userId=(.*?) message=(.*)$", re.MULTILINE)
_ITEM = re.compile(r'"sms";([a-z])=(\d+);([a-z])=(\d+)')


def new_user():
    """Returns a user that no other test has."""
    return new_id("user")


def new_text():
    """Returns a message that no other test sends, so that its line can be found."""
    return f"text-{next(_texts)}"


def send_request(user, message=None, key=None):
    """Returns the bytes of a send, for tests that send many at one moment."""
    headers = {"Idempotency-Key": key} if key else {}
    return render("POST", SEND, {"userId": user, "message": message or new_text()}, headers)


class Gateway(Client):
    def configure(self, user, rate_limit=5, time_window=YEAR, **options):
        body = {"userId": user, "rateLimit": rate_limit, "timeWindow": time_window}
        return self.ask("POST", CONFIG, body, **options)

    def look(self, user):
        return self.ask("GET", f"{CONFIG}/{quote(str(user), safe='')}")

    def remove(self, user, **options):
        return self.ask("DELETE", f"{CONFIG}/{quote(str(user), safe='')}", **options)

    def take(self, user, amount=None, **options):
        return self.ask("POST", f"/api/limits/{quote(str(user), safe='')}/take",
                        None if amount is None else {"amount": amount}, **options)

    def forecast(self, user):
        return self.ask("GET", f"/api/limits/{quote(str(user), safe='')}")

    def send(self, user, message=None, **options):
        return self.ask("POST", SEND, {"userId": user, "message": message or new_text()}, **options)

    def new_user(self, rate_limit=5, time_window=YEAR):
        """Returns a user with a limit of their own."""
        user = new_user()
        answer = self.configure(user, rate_limit, time_window)
        assert answer.status == 200, answer
        return user

    def count(self, user):
        answer = self.look(user)
        assert answer.status == 200, answer
        return answer.json()["currentCount"]

    def use_up(self, user):
        """Sends until a send is refused. Returns the messages that were admitted."""
        admitted = []
        while True:
            text = new_text()
            answer = self.send(user, text)
            if answer.status == 429:
                return admitted
            assert answer.status == 200, answer
            admitted.append(text)
            assert len(admitted) <= 1000, "it is never refused"


def limits_told(answer):
    """Returns {'q': limit, 'w': window in s, 'r': remaining, 't': s until it ends}, from the two headers."""
    told = {}
    for name in ("ratelimit-policy", "ratelimit"):
        found = _ITEM.fullmatch(answer.header(name) or "")
        assert found, f"{name} is not as it should be: {answer}"
        told[found.group(1)] = int(found.group(2))
        told[found.group(3)] = int(found.group(4))
    assert told.keys() == {"q", "w", "r", "t"}, answer
    return told


def sms_sent(*servers):
    """Returns what the senders have printed: [(user, message), …]."""
    text = "".join(server.output.read_text(errors="replace") for server in servers)
    return _SMS.findall(text)


def texts_sent(*servers):
    return [message for _, message in sms_sent(*servers)]
