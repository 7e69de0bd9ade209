"""POST /api/config and GET /api/config/{userId}: requirement 1 of the seed, on every stack."""

import datetime

import pytest

from harness.counts import new_key
from harness.gateway import CONFIG, new_user
from harness.problems import assert_bad_request, assert_problem

GOOD = {"userId": "someone", "rateLimit": 5, "timeWindow": 1}
INT32_MAX = 2**31 - 1


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def test_r1_1_a_valid_configuration_is_stored_with_count_0_and_returned(gateway, gateway_stack):
    user, before = new_user(), now()
    answer = gateway.configure(user, 5, 1)
    assert answer.status == 200
    body = answer.json()
    assert before <= datetime.datetime.fromisoformat(body.pop("lastRefreshTime").replace("Z", "+00:00")) <= now()
    assert body == {"userId": user, "rateLimit": 5, "timeWindow": 1, "currentCount": 0}
    row = gateway_stack.row(user)
    assert (row["rate_limit"], row["time_window"], row["current_count"], row["reserved_count"]) == (5, 1, 0, 0)


@pytest.mark.parametrize("field", ["userId", "rateLimit", "timeWindow"])
@pytest.mark.parametrize("value", ["absent", "null"])
def test_r1_2_a_missing_field_is_a_400_that_names_it(gateway, field, value):
    body = {**GOOD, field: None}
    if value == "absent":
        del body[field]
    assert_bad_request(gateway.ask("POST", CONFIG, body), field)


def test_r1_2_everything_that_is_missing_is_named_at_once(gateway):
    problem = assert_bad_request(gateway.ask("POST", CONFIG, {}))
    assert {error["field"] for error in problem["errors"]} == {"userId", "rateLimit", "timeWindow"}
    assert_bad_request(gateway.ask("POST", CONFIG), "userId")


@pytest.mark.parametrize(
    "field, value",
    [("userId", value) for value in ("", "x" * 129, "a\nb", "\u007f", -1, 1.5, True, [], {})]
    + [("rateLimit", value) for value in (0, -1, INT32_MAX + 1, 10**18, 1.0, 1.5, "5", True, [], {})]
    + [("timeWindow", value) for value in (0, -1, 525601, INT32_MAX + 1, 1.0, "1", False, [], {})],
    ids=lambda value: repr(value)[:12],
)
def test_r1_2_a_wrong_field_is_a_400_that_names_it_and_nothing_is_stored(gateway, gateway_stack, field, value):
    user = new_user()
    assert_bad_request(gateway.ask("POST", CONFIG, {**GOOD, "userId": user, field: value}), field)
    assert gateway_stack.row(user) is None


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"5", b'{"userId":1,"userId":2,"rateLimit":1,"timeWindow":1}'])
def test_r1_2_a_body_that_is_no_json_object_is_a_400(gateway, body):
    assert_bad_request(gateway.ask("POST", CONFIG, body))


@pytest.mark.parametrize(
    "field, value", [("userId", 0), ("userId", 2**63 - 1), ("userId", "ü" * 64), ("userId", "a b%?&é"),
                     ("rateLimit", 1), ("rateLimit", INT32_MAX), ("timeWindow", 525600)],
    ids=lambda value: repr(value)[:12],
)
def test_the_ends_of_the_ranges_are_accepted(gateway, field, value):
    body = {**GOOD, "userId": new_user(), field: value}
    answer = gateway.ask("POST", CONFIG, body)
    assert answer.status == 200, answer
    assert answer.json()[field] == value
    assert gateway.look(body["userId"]).json()["rateLimit"] == body["rateLimit"]


def test_snake_case_names_are_accepted_too(gateway, gateway_stack):
    user = new_user()
    answer = gateway.ask("POST", CONFIG, {"user_id": user, "rate_limit": 7, "time_window": 3})
    assert answer.status == 200
    assert answer.json().keys() == {"userId", "rateLimit", "timeWindow", "currentCount", "lastRefreshTime"}
    assert (gateway_stack.row(user)["rate_limit"], gateway_stack.row(user)["time_window"]) == (7, 3)


def test_a_number_and_its_digits_are_one_user_and_come_back_as_they_were_sent(gateway):
    assert gateway.configure(1001, 5).json()["userId"] == 1001
    assert gateway.send(1001).json()["userId"] == 1001
    assert gateway.send("1001").json()["userId"] == "1001"
    assert gateway.look(1001).json()["userId"] == "1001"
    assert gateway.count(1001) == 2
    assert gateway.configure("1001", 6).json()["userId"] == "1001"
    assert gateway.count(1001) == 0


def test_r1_3_a_known_user_gets_the_new_limit_and_starts_again_at_0(gateway, gateway_stack):
    user = gateway.new_user(2)
    assert len(gateway.use_up(user)) == 2
    before = gateway_stack.row(user)
    answer = gateway.configure(user, 3, 10)
    assert answer.json()["currentCount"] == 0
    after = gateway_stack.row(user)
    assert (after["rate_limit"], after["time_window"], after["current_count"]) == (3, 10, 0)
    assert after["last_refresh_time"] > before["last_refresh_time"]
    assert len(gateway.use_up(user)) == 3


def test_r1_3_a_lower_limit_counts_at_once(gateway):
    user = gateway.new_user(100)
    assert gateway.send(user).status == 200
    gateway.configure(user, 1)
    assert len(gateway.use_up(user)) == 1


def test_looking_spends_nothing_and_writes_nothing(gateway, gateway_stack):
    user = gateway.new_user(2)
    gateway.send(user)
    before = gateway_stack.row(user)
    looks = [gateway.look(user).json() for _ in range(5)]
    assert all(look == looks[0] for look in looks)
    assert looks[0]["currentCount"] == 1
    assert gateway_stack.row(user) == before
    assert gateway.send(user).status == 200


def test_looking_for_an_unknown_user_is_a_404(gateway):
    assert_problem(gateway.look(new_user()), 404, "CONFIG_NOT_FOUND")


def test_a_repeated_configuration_is_replayed_and_gives_the_quota_back_once(gateway):
    user, key = new_user(), new_key()
    first = gateway.configure(user, 3, key=key)
    assert first.status == 200
    gateway.send(user)
    second = gateway.configure(user, 3, key=key)
    assert (second.body, second.header("idempotent-replayed")) == (first.body, "true")
    assert gateway.count(user) == 1
    assert_problem(gateway.configure(user, 4, key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")
    assert gateway.look(user).json()["rateLimit"] == 3


def test_another_content_type_is_a_415(gateway):
    answer = gateway.ask("POST", CONFIG, b"userId=1", {"Content-Type": "application/x-www-form-urlencoded"})
    assert_problem(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
