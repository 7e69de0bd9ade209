"""The gateway: a message too many, too few, or of nobody is found."""

import pytest

from check.cluster import Forgotten
from check.topics import microseconds

WINDOWS = "under one window-start a user never has more messages than the limit"
THERE = "every acknowledged send lies on the topic"
ONCE = "one message per send, whatever was retried"
REFUSED = "nothing that was refused lies on the topic"
TAKES = "no unit of a quota is taken twice"
STORE = "the count in the table is that of the messages"
SENT = "every message on the topic was sent"
START, LATER, END = (f"2026-01-08T07:10:0{second}.000000Z" for second in (0, 1, 2))
USER = "s1g0"


@pytest.fixture
def user(story):
    """A user with a limit of 2 in windows of two seconds."""
    story.tell("gateway", "config", USER, 2, 2, answer={"rateLimit": 2, "timeWindow": 2, "lastRefreshTime": START})
    story.database("gateway")
    story.publish(0, "somebody-else", START)
    return story


def send(story, sent=True, on_topic=True, window=START, **more):
    number = story._number + 1
    story.tell("gateway", "send", USER, f"m{number}", answer={"messageId": f"id{number}"}, **more)
    if on_topic:
        story.publish(number, USER, window)
    if sent:
        story.row("gateway", "sent_messages", message_id=f"id{number}", sent_at=0)
    return number


def row(story, count, reserved, window=START):
    story.row("gateway", "rate_limit_store", user_id=USER, rate_limit=2, time_window=2, current_count=count,
              reserved_count=reserved, last_refresh_time=microseconds(window))


def test_as_many_messages_as_the_limit_are_fine_and_may_lie_there_twice_after_an_unknown_attempt(user):
    send(user)
    number = send(user, doubtful=True)
    user.publish(number, USER, START)
    row(user, 2, 2)
    assert user.judge("gateway") == {}


def test_a_message_over_the_limit_is_found(user):
    for _ in range(3):
        send(user)
    assert WINDOWS in user.judge("gateway")


def test_a_limit_that_was_set_anew_begins_a_window(user):
    send(user)
    send(user)
    user.tell("gateway", "config", USER, 1, 2, answer={"rateLimit": 1, "timeWindow": 2, "lastRefreshTime": LATER})
    send(user, window=LATER)
    assert user.judge("gateway") == {}
    send(user, window=LATER)
    assert WINDOWS in user.judge("gateway")


def test_an_acknowledged_message_that_is_gone_is_found(user):
    send(user, sent=False, on_topic=False)
    assert THERE in user.judge("gateway")


def test_what_kafka_was_made_to_forget_is_outside_the_promise(user):
    send(user, sent=False, on_topic=False)
    user.cluster.forgotten.append(Forgotten("kafka", 0, 1000))
    assert user.judge("gateway") == {}


def test_a_message_that_was_never_sent_is_found_also_where_kafka_forgot_others(user):
    user.cluster.forgotten.append(Forgotten("kafka", 0, 10))
    send(user, sent=False)
    assert SENT in user.judge("gateway")


def test_two_messages_of_one_send_are_found(user):
    number = send(user)
    user.publish(number, USER, START, message="another")
    assert ONCE in user.judge("gateway")


def test_a_message_that_was_refused_and_sent_is_found(user):
    send(user, status=429)
    assert REFUSED in user.judge("gateway")


def test_a_message_that_a_refused_attempt_has_published_is_found(user):
    number = send(user)
    user.publish(number, USER, START)
    assert REFUSED in user.judge("gateway")


def test_a_message_whose_first_attempt_is_unknown_may_lie_there(user):
    send(user, status=503, doubtful=True)
    assert user.judge("gateway") == {}


def test_a_message_that_was_never_sent_is_found(user):
    send(user, sent=False)
    assert SENT in user.judge("gateway")


def outbound(story, number, status):
    story.row("gateway", "outbound_messages", id=f"id{number}", message_id=f"id{number}", aggregate_key=USER, trace_id="",
              payload=b"", occurred_at=0, created_at=0, status=status)


def test_a_message_that_still_waits_at_the_sender_is_found(user):
    outbound(user, send(user, sent=False), "PENDING")
    assert SENT in user.judge("gateway")


def test_a_message_that_the_sender_recorded_as_sent_is_fine(user):
    outbound(user, send(user, sent=False), "SENT")
    assert user.judge("gateway") == {}


@pytest.mark.parametrize("count, reserved", [(0, 0), (2, 2), (1, 3)])
def test_a_wrong_count_is_found(user, count, reserved):
    """One message is acknowledged and on the topic: fewer counted, more counted, more reserved than the limit."""
    send(user)
    row(user, count, reserved)
    assert STORE in user.judge("gateway")


# ---- rows of users of whom Kafka forgot messages ---------------------------------------------------------------------

WINDOW_US = microseconds(START)


def forget(story, since_s, until_s):
    story.cluster.forgotten.append(Forgotten("kafka", WINDOW_US + int(since_s * 1e6), WINDOW_US + int(until_s * 1e6)))


def send_at(story, second, **more):
    send(story, at=WINDOW_US + int(second * 1e6), until=WINDOW_US + int(second * 1e6) + 1000, **more)


def test_a_row_whose_messages_kafka_may_have_forgotten_is_not_judged_and_that_is_told(user):
    send_at(user, 0.5, on_topic=False, sent=False)
    row(user, 1, 1)
    forget(user, 0.4, 0.6)
    store = user.invariants("gateway")[STORE]
    assert store.holds and store.covered == 0 and store.note.startswith("1 more")


def test_a_wrong_count_is_found_if_the_user_sent_nothing_while_kafka_forgot(user):
    send_at(user, 0.5)
    row(user, 2, 2)
    forget(user, 0.6, 0.7)
    assert STORE in user.judge("gateway")


def test_a_wrong_count_is_found_in_a_window_that_began_after_kafka_forgot(user):
    send_at(user, 0.5, on_topic=False, sent=False)
    send_at(user, 1.5, window=LATER)
    row(user, 2, 2, window=LATER)
    forget(user, 0.4, 0.6)
    assert list(user.judge("gateway")) == [STORE]


def test_a_refused_send_was_not_forgotten(user):
    send_at(user, 0.2)
    send_at(user, 0.5, on_topic=False, sent=False, status=429)
    row(user, 2, 2)
    forget(user, 0.4, 0.6)
    assert STORE in user.judge("gateway")


def take(story, amount, remaining, **more):
    story.tell("gateway", "take", USER, amount, answer={"allowed": True, "remaining": remaining, "resetAt": END}, **more)


def test_takes_share_the_units_of_a_window(user):
    take(user, 1, 1)
    take(user, 1, 0)
    assert user.judge("gateway") == {}


def test_a_unit_that_was_taken_twice_is_found(user):
    take(user, 1, 1)
    take(user, 1, 1)
    assert TAKES in user.judge("gateway")


def test_more_than_the_limit_taken_is_found(user):
    take(user, 2, 0)
    take(user, 1, 2)
    assert TAKES in user.judge("gateway")
