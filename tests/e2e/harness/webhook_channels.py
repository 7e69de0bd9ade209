"""The two channels that can be a webhook, so that one test checks both: what makes a webhook come, and how it reads."""

import abc

from .entitlements import Entitlements
from .gateway import Gateway


class Channel(abc.ABC):
    """`with channel.client(server, openapi) as client: user = channel.cause(client)`"""

    def options(self):
        """For a server on SQLite that sends without delay; the URL is an option of its own."""
        return ["--roles", self.roles, "--outbox-poll", "20ms"]

    @property
    def variable(self):
        """The name of the option's environment variable, for URLs with secrets."""
        return "QUIPU_" + self.option.removeprefix("--").upper().replace("-", "_")

    @abc.abstractmethod
    def client(self, server, openapi):
        """Returns a client of the service whose requests cause webhooks."""

    @abc.abstractmethod
    def cause(self, client):
        """Causes one webhook for a new user. Returns the user."""

    @abc.abstractmethod
    def look(self, client, body):
        """Returns the answer that says what became of the webhook with this body."""


class Notifications(Channel):
    name = "notifications"
    roles = "entitlements,notifications"
    option = "--notify-channel"
    kind = "notification"  # of its dead letters
    user_member, id_member = "user_id", "notification_id"

    def client(self, server, openapi):
        return Entitlements(server.port, openapi)

    def cause(self, client):
        return client.granted()

    def look(self, client, body):
        return client.ask("GET", f"/debug/notification/inbox/{body['user_id']}")


class Messages(Channel):
    name = "sms"
    roles = "gateway,sender"
    option = "--sms-channel"
    kind = "sms"
    user_member, id_member = "userId", "messageId"

    def client(self, server, openapi):
        return Gateway(server.port, openapi)

    def cause(self, client):
        user = client.new_user()
        assert client.send(user).status == 200
        return user

    def look(self, client, body):
        return client.ask("GET", f"/api/messages/{body['messageId']}")


CHANNELS = [Notifications(), Messages()]
