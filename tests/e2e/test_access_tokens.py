"""Users' tokens: who shows one is its subject and nobody else, whatever it is signed with."""

import base64
import contextlib
import hmac
import itertools
import json
import math
import time

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from harness import quipu
from harness.access import Places, metric, reload, stream_of
from harness.http import render
from harness.keys import KEPT, READ_AGAIN, KeyFile
from harness.problems import assert_problem
from harness.tokens import ALGORITHMS, Issuer, User, bearer, new_key, private_pem, public_der, public_pem
from harness.unread import Follower, SqliteUnread, new_user
from harness.waiting import wait_until

CHALLENGE = "Bearer"
INVALID = 'Bearer error="invalid_token"'


@pytest.fixture(scope="module", params=ALGORITHMS)
def module_place(request, module_serve, binary, tmp_path_factory, openapi):
    """A place for each algorithm, for all tests that only send requests."""
    places = Places(module_serve, binary, tmp_path_factory.mktemp("place"), openapi)
    yield places(request.param)
    places.close()


@pytest.fixture
def place(module_place):
    yield module_place
    module_place.server.check_alive()


@pytest.fixture(params=ALGORITHMS)
def own_place(request, open_place):
    """For tests that replace the key."""
    return open_place(request.param)


def assert_refused(answer, challenge=INVALID):
    """401, and why."""
    detail = assert_problem(answer, 401, "UNAUTHENTICATED")["detail"]
    assert answer.header("WWW-Authenticate") == challenge
    return detail


# ---- dialogs


def test_a_token_says_who_sends_lists_and_reads(place):
    alice, bob = place.user(), place.user()
    first, second, third = (alice.sent(bob.name, text) for text in ("one", "two", "three"))
    listed = bob.list(alice.name).json()
    assert [(message["id"], message["senderId"], message["receiverId"]) for message in listed] == [
        (message, alice.name, bob.name) for message in (first, second, third)
    ]
    wait_until(lambda: bob.counter().json()["count"] == 3, "counted")  # a read that comes first leaves nothing to count
    assert bob.read(first).json()["updated"] == 1
    assert bob.read_batch([first, second, third]).json()["updated"] == 2
    wait_until(lambda: bob.counter().json()["count"] == 0, "all are counted as read")


def test_the_header_that_says_who_asks_is_ignored(place):
    alice, bob, eve = place.user(), place.user(), place.user()
    claims_to_be_bob = {"X-User-Id": bob.name}
    eve.sent(alice.name, "from eve", headers=claims_to_be_bob)
    message = alice.sent(bob.name)
    assert [entry["senderId"] for entry in alice.list(eve.name).json()] == [eve.name]
    assert bob.list(eve.name).json() == []
    assert eve.list(alice.name, headers=claims_to_be_bob).json()[0]["text"] == "from eve"
    assert_problem(eve.read(message, headers=claims_to_be_bob), 404, "MESSAGE_NOT_FOUND")
    for target in ("/dialogs/list?receiverId=alice", "/dialogs/list"):
        assert_refused(place.unread.ask("GET", target, user=bob.name), CHALLENGE)


def test_nobody_reads_or_marks_the_messages_of_others(place):
    alice, bob, eve = place.user(), place.user(), place.user()
    message = alice.sent(bob.name, "secret")
    assert eve.list(alice.name).json() == eve.list(bob.name).json() == []
    assert_problem(eve.read(message), 404, "MESSAGE_NOT_FOUND")
    assert_problem(alice.read(message), 404, "MESSAGE_NOT_FOUND")
    assert eve.read_batch([message]).json()["updated"] == 0
    assert bob.list(alice.name).json()[0]["isRead"] is False


def test_one_idempotency_key_of_two_users_is_two_effects(place):
    alice, bob, carol = place.user(), place.user(), place.user()
    sent = {user.name: user.sent(carol.name, "once", key="the-same-key") for user in (alice, bob)}
    assert sent[alice.name] != sent[bob.name]
    for user in (alice, bob):
        again = user.send(carol.name, "once", key="the-same-key")
        assert again.header("Idempotent-Replayed") == "true" and again.json()["messageId"] == sent[user.name]
        assert len(carol.list(user.name).json()) == 1


def test_a_fresh_token_of_the_same_user_repeats_the_same_request(place):
    name, bob = new_user(), place.user()
    sent = [place.user(name, jti=str(number)).sent(bob.name, key="k") for number in range(2)]
    assert sent[0] == sent[1]


def test_an_api_key_is_no_user(place):
    answer = place.unread.ask("GET", "/dialogs/list?receiverId=bob", user="alice", headers=bearer(place.internal_key))
    assert_refused(answer, CHALLENGE)


# ---- counters


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
def test_a_counter_is_its_users_own(place, prefix):
    alice, bob = place.user(), place.user()
    own = f"{prefix}/counters/user/{alice.name}"
    for target in (own, own + "/UnreadMessages"):
        assert alice.ask("GET", target).status == 200
        assert_problem(bob.ask("GET", target), 403, "FORBIDDEN")
        assert place.unread.ask("GET", target, headers=bearer(place.internal_key)).status == 200
        assert_refused(place.unread.ask("GET", target), CHALLENGE)
    assert_problem(bob.ask("GET", own + "/stream"), 403, "FORBIDDEN")
    assert_problem(place.unread.ask("GET", stream_of(alice.name, bob.token, prefix)), 403, "FORBIDDEN")


def test_names_that_only_look_alike_are_others(place):
    user = new_user()
    alice = place.user(user)
    for other in (user.upper(), user + "%20", user + "x", user[:-1], user + "%2e"):
        assert_problem(alice.counter(other), 403, "FORBIDDEN")
    umlaut = place.user("ä" + user)
    assert umlaut.ask("GET", f"/counters/user/%C3%A4{user}").status == 200
    assert_problem(umlaut.ask("GET", f"/counters/user/a%CC%88{user}"), 403, "FORBIDDEN")


# ---- streams


def test_a_stream_takes_the_token_in_the_header_or_the_query_or_a_key(place):
    alice, bob = place.user(), place.user()
    key = bearer(place.internal_key)
    port = place.server.port
    with bob.follow() as one, Follower(port, stream_of(bob.name, bob.token), {}) as two, \
            Follower(port, stream_of(bob.name, bob.token, "/api/v1"), {}) as three, \
            place.unread.follow(bob.name, **key) as four:
        streams = (one, two, three, four)
        assert [stream.next()[1]["count"] for stream in streams] == [0] * 4
        alice.sent(bob.name)
        assert [stream.next()[1]["count"] for stream in streams] == [1] * 4


def test_a_token_in_the_query_counts_on_the_stream_alone(place):
    alice = place.user()
    query = f"access_token={alice.token}"
    for method, target, body in [
        ("GET", f"/counters/user/{alice.name}?{query}", None),
        ("GET", f"/counters/user/{alice.name}/UnreadMessages?{query}", None),
        ("GET", f"/dialogs/list?receiverId=bob&{query}", None),
        ("POST", f"/dialogs/send?{query}", {"receiverId": "bob", "text": "x"}),
        ("POST", f"/dialogs/read-batch?{query}", {"messageIds": ["x"]}),
    ]:
        assert_refused(place.unread.ask(method, target, body), CHALLENGE)
    assert_refused(place.unread.ask("GET", stream_of(alice.name)), CHALLENGE)


def test_a_key_in_a_url_opens_nothing(place):
    assert_refused(place.unread.ask("GET", stream_of("bob", place.internal_key)), CHALLENGE)


def test_a_bad_token_in_the_header_is_not_made_up_for_by_the_query(place):
    alice = place.user()
    answer = place.unread.ask("GET", stream_of(alice.name, alice.token), headers=bearer("nonsense"))
    assert_refused(answer)


def follow_by_query(place, user):
    return Follower(place.server.port, stream_of(user.name, user.token), {})


def test_a_stream_ends_when_its_token_expires_and_goes_on_with_a_fresh_one(open_place):
    place = open_place("ES256", "--jwt-leeway", "1s", "--stream-heartbeat", "1h")  # a stream that stays is silent
    alice, name = place.user(), new_user()
    lasting = place.user(name)
    alice.sent(name)
    wait_until(lambda: lasting.counter().json()["count"] == 1, "counted")
    started = time.time()
    with lasting.follow() as other:
        known = other.next()[0]
        # long enough to open two streams, by what one has just taken
        expires = math.ceil(time.time() + 1 + 10 * (time.time() - started))
        brief = place.user(name, exp=expires)
        with brief.follow() as stream, follow_by_query(place, brief) as by_query:
            for one in (stream, by_query):
                assert one.next()[1]["count"] == 1
                assert one.next() is None
            assert time.time() >= expires + 1, "it ended with the leeway"
        assert_refused(brief.ask("GET", stream_of(name)))
        alice.sent(name)
        other.until(2)
        with place.user(name).follow(**{"Last-Event-ID": str(known)}) as again:
            assert again.next()[1]["count"] == 2
    wait_until(lambda: metric(place, "quipu_http_streams") == 0, "no stream is left")


# ---- what is refused


def in_base64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def join(*parts):
    """A token without its signature, by hand: the library would refuse to make it."""
    return ".".join(in_base64(json.dumps(part).encode()) for part in parts)


def test_every_bad_token_is_a_401_that_says_why(place):
    name, issuer = new_user(), place.issuer
    claims = {"sub": name, "exp": time.time() + 300}
    foreign = Issuer(issuer.file.parent, issuer.algorithm)
    head, body, signature = issuer.sign(claims).split(".")
    forged = join({**claims, "sub": "root"})
    cases = [
        ("nonsense", "not a JWT"),
        (join({"alg": "none", "typ": "JWT"}, claims) + ".", "another algorithm"),
        (foreign.sign(claims), "signature"),
        (f"{head}.{forged}.{signature}", "signature"),
        (f"{head}.{body}.", "signature"),
        (f"{head}.{body}", "not a JWT"),
        (issuer.token(name, lifetime_s=-31), "expired"),
        (issuer.token(name, exp=None), "no exp"),
        (issuer.sign({**claims, "sub": ""}), "sub"),
        (issuer.sign({**claims, "sub": "x" * 129}), "sub"),
        (issuer.sign({**claims, "sub": "a\nb"}), "sub"),
        (issuer.sign({"exp": claims["exp"]}), "sub"),
        (issuer.sign({**claims, "nbf": time.time() + 3600}), "not valid yet"),
        (issuer.sign({**claims, "padding": "x" * 9000}), "not a JWT"),
    ]
    before = metric(place, "quipu_access_refused_total")
    for token, word in cases:
        for target in (f"/counters/user/{name}", "/dialogs/list?receiverId=bob"):
            answer = place.unread.ask("GET", target, headers=bearer(token))
            assert word in assert_refused(answer), token
        assert word in assert_refused(place.unread.ask("GET", stream_of(name, token)))
    assert metric(place, "quipu_access_refused_total") - before == 3 * len(cases)


def send_at_once(server, request, count):
    """The answers to a request on as many connections."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(count)]
        for connection in connections:
            connection.send(request)
        return [connection.read_answer() for connection in connections]


def test_bad_tokens_of_one_address_are_bounded_and_known_ones_still_open(open_place):
    place = open_place("ES256")
    alice, bob = place.user(), place.user()
    own = f"/counters/user/{alice.name}"
    assert alice.ask("GET", own).status == 200
    bad = render("GET", own, headers=bearer(place.issuer.token(alice.name, key=new_key("ES256")[0])))

    def refused_unread():
        answers = send_at_once(place.server, bad, 250)
        assert alice.ask("GET", own).status == 200
        assert all(answer.header("connection") == "close" for answer in answers)
        assert {answer.status for answer in answers} <= {401, 429}
        return [answer for answer in answers if answer.status == 429]

    # each second begins anew, so a wave that takes long may be read as a whole
    refused = wait_until(refused_unread, "more than a hundred came within a second")
    assert_problem(refused[0], 429, "TOO_MANY_BAD_TOKENS")
    assert refused[0].header("retry-after") == "1"
    wait_until(lambda: bob.ask("GET", f"/counters/user/{bob.name}").status == 200,
               "a second later all are checked again")


def test_a_public_key_is_no_secret(open_place):
    """Tokens that are signed with what everybody knows, in the hope that HS256 takes it for a secret."""
    for algorithm in ("RS256", "ES256"):
        place = open_place(algorithm)
        text = join({"alg": "HS256", "typ": "JWT"}, {"sub": "alice", "exp": time.time() + 300})
        mac = hmac.new(place.issuer.file.read_bytes(), text.encode(), "sha256").digest()
        token = f"{text}.{in_base64(mac)}"
        detail = assert_refused(place.unread.ask("GET", "/counters/user/alice", headers=bearer(token)))
        assert "another algorithm" in detail


def test_other_ways_to_show_a_token_are_none(place):
    alice = place.user()
    target = f"/counters/user/{alice.name}"
    for value in (f"Basic {alice.token}", alice.token, "Bearer", "Bearer ", f"Token {alice.token}"):
        assert_refused(place.unread.ask("GET", target, headers={"Authorization": value}), CHALLENGE)
    assert_refused(place.unread.ask("GET", target, headers={"Authorization": f"Bearer {alice.token} x"}))
    assert_refused(place.unread.ask("GET", target, headers={"Cookie": f"access_token={alice.token}"}), CHALLENGE)
    for value in (f"bearer {alice.token}", f"BEARER   {alice.token}"):
        assert place.unread.ask("GET", target, headers={"Authorization": value}).status == 200
    twice = [("Authorization", f"Bearer {alice.token}")] * 2
    assert_problem(place.server.ask("GET", target, headers=twice), 400, "BAD_REQUEST")


def test_issuer_audience_and_leeway_are_those_configured(open_place):
    place = open_place("ES256", "--jwt-issuer", "https://id.example", "--jwt-audience", "quipu", "--jwt-leeway", "30m")
    right = {"iss": "https://id.example", "aud": "quipu"}

    def ask(**claims):
        user = place.user(**{**right, **claims})
        return user.counter()

    assert ask().status == 200
    assert ask(aud=["mail", "quipu"]).status == 200
    assert ask(lifetime_s=-600).status == 200
    assert ask(nbf=time.time() + 600).status == 200
    assert "issuer" in assert_refused(ask(iss="https://id.example/"))
    assert "issuer" in assert_refused(ask(iss=None))
    assert "audience" in assert_refused(ask(aud="mail"))
    assert "audience" in assert_refused(ask(aud=["mail"]))
    assert "audience" in assert_refused(ask(aud=None))
    assert "expired" in assert_refused(ask(lifetime_s=-1801))
    assert "not valid yet" in assert_refused(ask(nbf=time.time() + 7200))


# ---- rotation


def test_a_key_is_replaced_by_sighup_and_a_broken_file_changes_nothing(own_place):
    place, name = own_place, new_user()
    before = place.user(name)
    assert before.counter().status == 200
    with before.follow() as stream:
        stream.next()
        place.issuer.rotate()
        after = place.user(name)
        assert_refused(after.counter())
        assert READ_AGAIN in place.reload()
        assert after.counter().status == 200
        assert "signature" in assert_refused(before.counter())
        while stream.next():
            pass  # what was opened with the old key ends
    place.issuer.publish(b"-----BEGIN nothing")
    assert KEPT in place.reload()
    assert after.counter().status == 200
    place.issuer.file.unlink()
    assert KEPT in place.reload()
    assert after.counter().status == 200
    assert_refused(before.counter())


# ---- secrecy


def test_no_token_is_in_the_log_or_in_an_answer(open_place):
    place = open_place("HS256", "--log-level", "debug", "--log-format", "json")
    alice = place.user()
    expired = place.issuer.token(alice.name, lifetime_s=-100)
    shown = [alice.token, expired, place.internal_key, "qk_ops_wrong-secret-that-was-typed"]
    bodies = []
    for token in shown:
        for target in (
            stream_of("somebody-else", token),
            stream_of(alice.name, token) + "&%zz",
            f"/counters/user/{alice.name}/UnreadMessages?access_token={token}",
            f"/no/such/path?access_token={token}",
            f"/dialogs/send?access_token={token}",
            f"/counters/user/{alice.name}/stream?access_token={token}%00",
            f"/%zz?access_token={token}",
        ):
            for headers in ({}, bearer(token), {"Authorization": f"Basic {token}"}):
                with place.server.connect() as connection:
                    answer = connection.ask("HEAD" if answer_streams(target, headers, alice) else "GET", target,
                                            headers=headers)
                bodies.append((answer.body, str(answer.headers)))
    with Follower(place.server.port, stream_of(alice.name, alice.token), {}) as stream:
        stream.next()
    place.issuer.publish(b"short-secret-in-a-file")
    place.reload()
    metrics = place.server.ask("GET", "/metrics", headers=bearer(place.internal_key)).body
    log = place.server.log_text()
    assert "/stream" in log, "requests are in the log"
    assert "access_token" not in log
    for secret in [*shown, *(token.split(".")[-1] for token in shown), place.issuer.key.decode(), "short-secret"]:
        assert secret not in log
        assert secret.encode() not in metrics
        assert all(secret.encode() not in body and secret not in headers for body, headers in bodies)


def answer_streams(target, headers, alice):
    """Whether a GET would be answered by a stream, which has no end to wait for."""
    return target.startswith(f"/counters/user/{alice.name}/stream") or headers.get("Authorization", "").startswith(
        "Bearer qk_")


# ---- starting


@pytest.fixture
def refuse(binary, tmp_path):
    """Starts the program with a key file of these bytes; returns the one sentence that it ends with."""

    def start(algorithm, content, code=1):
        file = tmp_path / "key"
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        done = quipu.run(binary, "serve", "--listen", "127.0.0.1:0", "--data", tmp_path / "data", "--jwt-key", file,
                         "--jwt-algorithm", algorithm)
        assert done.returncode == code, done
        assert done.stdout == ""
        assert done.stderr.startswith("quipu: ") and done.stderr.count("\n") == 1, done.stderr
        assert not content or content.split(b"\n")[0].decode("latin-1") not in done.stderr
        return done.stderr

    return start


def public_der_that_ends_with(last_byte):
    """A public key whose last byte looks like the line break that an editor adds to a secret."""
    keys = (public_der(ec.derive_private_key(number, ec.SECP256R1())) for number in itertools.count(1))
    return next(key for key in keys if key.endswith(last_byte))


def test_a_key_that_cannot_be_used_is_one_clear_sentence(refuse):
    rsa_key, weak = (rsa.generate_private_key(65537, bits) for bits in (2048, 1024))
    curve, other_curve = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP384R1())
    assert "cannot be read" in refuse("RS256", None)
    assert "RSA public key" in refuse("RS256", public_pem(curve))
    assert "RSA public key" in refuse("RS256", private_pem(rsa_key))
    assert "RSA public key" in refuse("RS256", b"x" * 64)
    assert "2048" in refuse("RS256", public_pem(weak))
    assert "P-256" in refuse("ES256", public_pem(rsa_key))
    assert "P-256" in refuse("ES256", public_pem(other_curve))
    assert "PEM file" in refuse("HS256", public_pem(rsa_key))
    assert "32 to 4096" in refuse("HS256", b"too short a secret\n")
    assert "public key" in refuse("HS256", public_der(rsa_key))
    assert "public key" in refuse("HS256", public_der(curve))
    for last_byte in (b"\n", b"\r"):
        assert "public key" in refuse("HS256", public_der_that_ends_with(last_byte))
    for guessable in (b"x" * 64, b"secret" * 8, b"0123456789abcdef" * 2, b"01" * 10 + b"10" * 10):
        assert "can be guessed" in refuse("HS256", guessable)
    assert "HS256, RS256 or ES256" in refuse("none", b"x" * 64, code=2)
    assert "HS256, RS256 or ES256" in refuse("rs256", public_pem(rsa_key), code=2)


def test_a_key_file_that_anybody_may_write_is_refused(binary, tmp_path):
    issuer, keys = Issuer(tmp_path, "ES256"), KeyFile(binary, tmp_path / "api-keys")
    keys.new("ops", "internal")
    for option, file in (("--jwt-key", issuer.file), ("--api-keys", keys.path)):
        file.chmod(0o666)
        done = quipu.run(binary, "serve", "--listen", "127.0.0.1:0", "--data", tmp_path / "data", option, file)
        assert done.returncode == 1 and f"everybody on this machine may write to {file}; run chmod o-w" in done.stderr
        file.chmod(0o660)


def test_parties_without_a_key_would_look_like_a_check(binary, tmp_path):
    for option in ("--jwt-issuer", "--jwt-audience"):
        done = quipu.run(binary, "serve", "--check-config", option, "x", cwd=tmp_path)
        assert done.returncode == 2 and "--jwt-key" in done.stderr


# ---- without keys


def test_tokens_alone_guard_users_and_leave_the_rest_open(serve, tmp_path, unread_client):
    issuer = Issuer(tmp_path, "ES256")
    server = serve(SqliteUnread(tmp_path), *issuer.arguments())
    alice = User(unread_client(server), issuer, new_user())
    assert alice.counter().status == 200
    assert_refused(alice.unread.ask("GET", f"/counters/user/{alice.name}"), CHALLENGE)
    assert server.ask("GET", "/metrics").status == 200
    issuer.publish(b"broken")
    assert KEPT in reload(server)
    server.wait_reloaded(False)
    assert alice.counter().status == 200
