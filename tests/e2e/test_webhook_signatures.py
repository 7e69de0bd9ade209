"""Signed webhooks, verified by the public `standardwebhooks` package and not by our own code.

It is not among Debian's packages, so where PyPI cannot be reached this is skipped and says so.
"""

import base64
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from harness import quipu
from harness.entitlements import new_user
from harness.shown_receiver import shown_receiver
from harness.waiting import HANG_S, wait_until
from harness.webhook import Webhook
from harness.webhook_channels import CHANNELS


def new_secret():
    return "whsec_" + base64.b64encode(os.urandom(32)).decode()


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder with the package; it runs in a process of its own."""
    folder = tmp_path_factory.mktemp("standardwebhooks")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "standardwebhooks"],
            capture_output=True, text=True, timeout=HANG_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("PyPI does not answer")
    if done.returncode != 0:
        pytest.skip(f"pip cannot install standardwebhooks: {done.stderr.strip().splitlines()[-1]}")
    return folder


def is_accepted(package, secret, body, headers):
    program = ("import json, sys; from standardwebhooks.webhooks import Webhook, WebhookVerificationError\n"
               "told = json.load(sys.stdin)\n"
               "try: Webhook(told['secret']).verify(told['body'], told['headers'])\n"
               "except WebhookVerificationError: sys.exit(3)\n")
    told = json.dumps({"secret": secret, "body": body, "headers": headers})
    done = subprocess.run([sys.executable, "-c", program], input=told, text=True, capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(package)}, timeout=HANG_S, check=False)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode == 0


@pytest.fixture(params=CHANNELS, ids=lambda channel: channel.name)
def channel(request):
    return request.param


@pytest.fixture
def receiver(channel):
    with Webhook(user=channel.user_member) as running:
        yield running


@pytest.fixture
def secrets(tmp_path):
    path = tmp_path / "webhook-secrets"

    def write(*lines):
        path.write_text("".join(line + "\n" for line in lines), encoding="ascii")
        path.chmod(0o600)
        return path

    return write


@pytest.fixture
def next_hook(channel, receiver, openapi):
    """The body, byte for byte, and the headers of a webhook that a request to the server causes now."""
    def caused_by(server):
        with channel.client(server, openapi) as client:
            user = channel.cause(client)
            return wait_until(lambda: receiver.raw_of(user), "the webhook came")[0]

    return caused_by


def test_a_signed_webhook_is_accepted_by_the_public_package(serve, sqlite_store, channel, next_hook, receiver, secrets, package):
    secret = new_secret()
    server = serve(sqlite_store, *channel.options(), channel.option, receiver.channel, "--webhook-secret-file", secrets(secret))
    body, headers = next_hook(server)
    assert headers["webhook-id"] == headers["idempotency-key"] == json.loads(body)[channel.id_member]
    assert is_accepted(package, secret, body, headers)
    assert not is_accepted(package, new_secret(), body, headers)
    assert not is_accepted(package, secret, body.replace("{", '{"more":1,', 1), headers)


def test_secrets_are_replaced_under_way_and_both_are_good_meanwhile(serve, sqlite_store, channel, next_hook, receiver, secrets,
                                                                    package):
    old, new = new_secret(), new_secret()
    server = serve(sqlite_store, *channel.options(), channel.option, receiver.channel, "--webhook-secret-file", secrets(old))
    assert is_accepted(package, old, *next_hook(server))

    secrets(new, old)
    server.signal(1)
    wait_until(lambda: "the secrets of webhooks were read again" in server.log_text(), "the file was read again")
    hook = next_hook(server)
    assert is_accepted(package, old, *hook) and is_accepted(package, new, *hook)

    secrets("no secret at all")
    server.signal(1)
    server.wait_reloaded(False)
    hook = next_hook(server)
    assert is_accepted(package, old, *hook) and is_accepted(package, new, *hook)

    secrets(new)
    server.signal(1)
    server.wait_reloaded(True)
    hook = next_hook(server)
    assert is_accepted(package, new, *hook) and not is_accepted(package, old, *hook)


def test_a_file_without_a_secret_is_refused_at_start_and_not_shown(binary, tmp_path, secrets):
    done = quipu.run(binary, "serve", "--check-config", "--webhook-secret-file", secrets("whsec_tooshort"), cwd=tmp_path)
    assert done.returncode != 0
    assert "24 to 64 bytes in base64" in done.stderr and "tooshort" not in done.stderr


def test_neither_the_secret_nor_user_info_or_query_of_the_url_is_logged(
        serve, sqlite_store, channel, next_hook, receiver, secrets):
    secret = new_secret()
    receiver.behaviour = 500
    url = receiver.url.replace("http://", "http://someone:hidden1@") + "/hook?token=hidden2"
    server = serve(sqlite_store, *channel.options(), "--log-level", "debug", "--webhook-secret-file", secrets(secret),
                   env={channel.variable: f"webhook:{url}"})
    next_hook(server)
    receiver.behaviour = 200
    next_hook(server)
    server.stop()
    assert "hidden" not in server.log_text() and secret.removeprefix("whsec_") not in server.log_text()


# ---- the receivers on the page


@pytest.mark.parametrize("language", ["python", "js"])
def test_the_receivers_on_the_page_accept_our_webhooks_and_no_others(serve, nats_stack, entitlements_client, secrets, language,
                                                                    free_port, tmp_path):
    secret, user = new_secret(), new_user()
    with shown_receiver(language, secret, free_port, tmp_path) as printed:
        server = serve(nats_stack, "--notify-channel", f"webhook:http://127.0.0.1:{free_port}/", "--outbox-poll", "20ms",
                       "--webhook-secret-file", secrets(new_secret(), secret))
        client = entitlements_client(server)
        client.grant(user)
        client.wait_sent(user)
        assert re.search(f"^accepted .*{user}", printed.read_text(encoding="utf-8"), re.MULTILINE)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{free_port}/", data=b"{}", timeout=HANG_S)
        assert refused.value.code == 401
