"""Every route of dialogs, every answer."""

import datetime
import re

import pytest

from harness.problems import assert_bad_request, assert_problem
from harness.unread import UUID7, new_user

IDS = [("", "empty"), ("x" * 129, "overlong"), ("a\tb", "control")]


def texts(answer):
    assert answer.status == 200, answer
    return [message["text"] for message in answer.json()]


def parse_time(text):
    """To compare: a fraction has no zeros at its end, so texts have another order than times."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


# ---- send


def test_a_message_is_sent_and_listed_as_it_was_sent(unread):
    alice, bob = new_user(), new_user()
    answer = unread.send(alice, bob, "Grüße, \"Bob\"\n\U0001f600")
    assert answer.status == 200
    sent = answer.json()
    assert sent["status"] == "Message sent" and UUID7.fullmatch(sent["messageId"])
    (message,) = unread.list(bob, alice).json()
    assert message == {
        "id": sent["messageId"], "senderId": alice, "receiverId": bob, "text": "Grüße, \"Bob\"\n\U0001f600",
        "createdAt": sent["createdAt"], "isRead": False,
    }


def test_a_user_may_write_to_himself(unread):
    user = new_user()
    message = unread.sent(user, user, "note")
    assert [entry["id"] for entry in unread.list(user, user).json()] == [message]
    unread.wait_count(user, 1)
    assert unread.read(user, message).json()["updated"] == 1
    unread.wait_count(user, 0)


@pytest.mark.parametrize("text", ["", " \t\n", None, 5, ["x"]], ids=repr)
def test_a_text_that_is_blank_or_no_text_is_refused(unread, text):
    alice, bob = new_user(), new_user()
    assert_bad_request(unread.send(alice, bob, text), "text")
    assert unread.list(alice, bob).json() == []


def test_a_text_of_16_kib_is_taken_and_one_byte_more_is_refused(unread):
    alice, bob = new_user(), new_user()
    assert unread.send(alice, bob, "ä" * 8192).status == 200
    assert_bad_request(unread.send(alice, bob, "ä" * 8192 + "x"), "text")
    assert len(unread.list(alice, bob).json()) == 1


@pytest.mark.parametrize(
    "receiver", [*(value for value, _ in IDS), None, 7], ids=[*(name for _, name in IDS), "null", "number"]
)
def test_a_receiver_that_is_no_id_is_refused(unread, receiver):
    assert_bad_request(unread.send(new_user(), receiver), "receiverId")


def test_what_is_missing_is_named_all_at_once(unread):
    problem = assert_bad_request(unread.ask("POST", "/dialogs/send", {}))
    assert {error["field"] for error in problem["errors"]} == {"X-User-Id", "receiverId", "text"}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe"], ids=repr)
def test_a_body_that_is_no_object_is_refused(unread, body):
    assert_bad_request(unread.ask("POST", "/dialogs/send", body, user=new_user()))
    assert_bad_request(unread.ask("POST", "/dialogs/read-batch", body, user=new_user()))


def test_a_body_of_another_type_is_refused(unread):
    answer = unread.ask("POST", "/dialogs/send", b"x", user=new_user(), headers={"Content-Type": "text/plain"})
    assert_problem(answer, 415, "UNSUPPORTED_MEDIA_TYPE")


# ---- who asks


@pytest.mark.parametrize(
    "request_of",
    [
        lambda unread, **who: unread.ask("POST", "/dialogs/send", {"receiverId": "bob", "text": "x"}, **who),
        lambda unread, **who: unread.ask("GET", "/dialogs/list?receiverId=bob", **who),
        lambda unread, **who: unread.ask("POST", "/dialogs/read/some", **who),
        lambda unread, **who: unread.ask("POST", "/dialogs/read-batch", {"messageIds": ["some"]}, **who),
        lambda unread, **who: unread.ask("POST", "/dialogs/read-up-to", {"senderId": "bob", "messageId": "some"}, **who),
        lambda unread, **who: unread.ask("GET", "/dialogs", **who),
    ],
    ids=["send", "list", "read", "read-batch", "read-up-to", "conversations"],
)
def test_who_asks_must_be_said_and_be_an_id(unread, request_of):
    assert_bad_request(request_of(unread), "X-User-Id")
    assert_bad_request(request_of(unread, user=""), "X-User-Id")
    assert_bad_request(request_of(unread, user="x" * 129), "X-User-Id")


def test_who_asks_is_said_once(unread_server):
    with unread_server.connect() as connection:
        connection.send(b"GET /dialogs/list?receiverId=bob HTTP/1.1\r\nHost: localhost\r\n"
                        b"X-User-Id: eve\r\nX-User-Id: alice\r\n\r\n")
        assert_bad_request(connection.read_answer(), "X-User-Id")


# ---- list


def test_a_list_has_both_directions_oldest_first_and_nobody_else(unread):
    alice, bob, eve = new_user(), new_user(), new_user()
    for sender, receiver, text in [(alice, bob, "1"), (bob, alice, "2"), (alice, bob, "3"), (bob, alice, "4")]:
        unread.sent(sender, receiver, text)
    unread.sent(eve, bob, "other")
    unread.sent(alice, eve, "other")
    assert texts(unread.list(alice, bob)) == texts(unread.list(bob, alice)) == ["1", "2", "3", "4"]
    times = [parse_time(message["createdAt"]) for message in unread.list(alice, bob).json()]
    assert times == sorted(times)
    assert texts(unread.list(alice, new_user())) == []


def test_a_limit_takes_the_newest_and_the_cursor_goes_on_from_there(unread):
    alice, bob = new_user(), new_user()
    for number in range(10):
        unread.sent(*((alice, bob) if number % 3 else (bob, alice)), str(number))
    page = unread.list(alice, bob, limit=4)
    assert texts(page) == ["6", "7", "8", "9"]
    page = unread.list(alice, bob, limit=4, before=page.json()[0]["id"])
    assert texts(page) == ["2", "3", "4", "5"]
    page = unread.list(alice, bob, limit=4, before=page.json()[0]["id"])
    assert texts(page) == ["0", "1"]
    assert texts(unread.list(alice, bob, limit=4, before=page.json()[0]["id"])) == []


def test_a_list_without_a_limit_has_100_messages(unread):
    alice, bob = new_user(), new_user()
    for number in range(103):
        unread.sent(alice, bob, str(number))
    assert texts(unread.list(bob, alice)) == [str(number) for number in range(3, 103)]
    assert len(unread.list(bob, alice, limit=1000).json()) == 103


def pages_by_link(unread, user, other, limit):
    """The answers of a list from its newest page to its oldest, as the Link headers lead."""
    answer = unread.list(user, other, limit=limit)
    while True:
        assert answer.status == 200, answer
        yield answer
        link = answer.header("link")
        if link is None:
            return
        target = re.fullmatch(r'<(/dialogs/list\?.*)>; rel="next"', link).group(1)
        answer = unread.ask("GET", target, user=user)


def test_links_lead_through_all_pages(unread):
    alice, bob = new_user(), new_user()
    for number in range(6):
        unread.sent(alice, bob, str(number))
    assert [texts(page) for page in pages_by_link(unread, bob, alice, 4)] == [["2", "3", "4", "5"], ["0", "1"]]
    assert [texts(page) for page in pages_by_link(unread, bob, alice, 3)] == [["3", "4", "5"], ["0", "1", "2"]]


@pytest.mark.parametrize("character", ["x", "\x7f", "\u00e4"], ids=["plain", "escaped", "two bytes"])
def test_a_list_of_long_messages_is_about_a_mebibyte_and_the_rest_is_behind_the_link(unread, character):
    alice, bob = new_user(), new_user()
    long = character * (16384 // len(character.encode()))
    for number in range(90):
        unread.sent_unescaped(alice, bob, f"{number:02}" + long[4:])
    pages = list(pages_by_link(unread, bob, alice, 1000))
    assert len(pages) > 1
    assert all(len(page.body) < 1024 * 1024 + 6 * 16384 + 1024 for page in pages)
    assert all(len(page.body) > 900_000 for page in pages[:-1])
    numbers = [int(text[:2]) for page in reversed(pages) for text in texts(page)]
    assert numbers == list(range(90))


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "1.5", ""])
def test_a_limit_that_is_none_is_refused(unread, limit):
    assert_bad_request(unread.list(new_user(), new_user(), limit=limit), "limit")


@pytest.mark.parametrize("receiver", [value for value, _ in IDS], ids=[name for _, name in IDS])
def test_a_list_with_somebody_who_is_no_id_is_refused(unread, receiver):
    assert_bad_request(unread.list(new_user(), receiver), "receiverId")


def test_a_list_with_nobody_is_refused(unread):
    assert_bad_request(unread.ask("GET", "/dialogs/list", user=new_user()), "receiverId")


# ---- read


def test_reading_twice_changes_nothing(unread):
    alice, bob = new_user(), new_user()
    message = unread.sent(alice, bob)
    unread.sent(alice, bob)
    assert unread.read(bob, message).json() == {"status": "Message marked as read", "updated": 1}
    again = unread.read(bob, message)
    assert again.status == 200 and again.json()["updated"] == 0
    assert [entry["isRead"] for entry in unread.list(alice, bob).json()] == [True, False]
    unread.wait_count(bob, 1)


def test_a_message_id_may_be_written_in_upper_case(unread):
    alice, bob = new_user(), new_user()
    one, other = unread.sent(alice, bob), unread.sent(alice, bob)
    assert unread.read(bob, one.upper()).json()["updated"] == 1
    assert unread.read_batch(bob, [one, other.upper(), other]).json()["updated"] == 1
    unread.wait_count(bob, 0)


def test_only_the_receiver_reads_a_message(unread):
    alice, bob, eve = new_user(), new_user(), new_user()
    message = unread.sent(alice, bob)
    for user in (alice, eve):
        assert_problem(unread.read(user, message), 404, "MESSAGE_NOT_FOUND")
        assert unread.read_batch(user, [message]).json() == {"status": "0 messages marked as read", "updated": 0}
    assert unread.list(bob, alice).json()[0]["isRead"] is False


def test_a_message_that_there_is_not_is_not_found(unread):
    assert_problem(unread.read(new_user(), "0192f0c1-2d3e-7abc-8def-0123456789ab"), 404, "MESSAGE_NOT_FOUND")
    assert_problem(unread.read(new_user(), "ünknown"), 404, "MESSAGE_NOT_FOUND")
    assert_bad_request(unread.read(new_user(), "x" * 129), "messageId")


# ---- read-batch


def test_a_batch_counts_only_what_was_unread_and_the_readers_own(unread):
    alice, bob, eve = new_user(), new_user(), new_user()
    own = [unread.sent(alice, bob) for _ in range(4)]
    foreign = unread.sent(alice, eve)
    unread.read(bob, own[0])
    answer = unread.read_batch(bob, [own[0], own[1], own[2], own[1], foreign, "unknown"])
    assert answer.json() == {"status": "2 messages marked as read", "updated": 2}
    assert [entry["isRead"] for entry in unread.list(bob, alice).json()] == [True, True, True, False]
    assert unread.list(eve, alice).json()[0]["isRead"] is False
    unread.wait_count(bob, 1)
    unread.wait_count(eve, 1)


def test_a_batch_of_1000_is_taken_and_one_more_refused(unread):
    bob = new_user()
    message = unread.sent(new_user(), bob)
    ids = [f"{number:0128d}" for number in range(999)]
    assert unread.read_batch(bob, [*ids, message]).json()["updated"] == 1
    assert_bad_request(unread.read_batch(bob, [*ids, message, "more"]), "messageIds")


@pytest.mark.parametrize("messages", [[], None, "x", {}, [1], [None], [""], ["x" * 129], ["ok", "a\nb"]], ids=repr)
def test_a_bad_list_is_refused(unread, messages):
    assert_bad_request(unread.read_batch(new_user(), messages), "messageIds")


def test_routes_of_dialogs_have_their_methods(unread):
    for target in ("/dialogs/send", "/dialogs/read-batch", "/dialogs/read-up-to", "/dialogs/read/x"):
        assert_problem(unread.ask("GET", target, user="x"), 405, "METHOD_NOT_ALLOWED")
    assert_problem(unread.ask("POST", "/dialogs/list", {}, user="x"), 405, "METHOD_NOT_ALLOWED")
    assert_problem(unread.ask("POST", "/dialogs", {}, user="x"), 405, "METHOD_NOT_ALLOWED")
    assert_problem(unread.ask("GET", "/dialogs/", user="x"), 404, "ROUTE_NOT_FOUND")
