"""The conversations of a user, and reading one up to a message."""

import re
import threading

import pytest

from harness.counts import new_key
from harness.problems import assert_bad_request, assert_problem
from harness.unread import new_user
from harness.verify import verified

UNKNOWN = "0192f0c1-2d3e-7abc-8def-0123456789ab"


def shown(answer):
    """[(other user, last message's id, unread)]"""
    assert answer.status == 200, answer
    return [(entry["userId"], entry["lastMessage"]["id"], entry["unread"]) for entry in answer.json()]


def pages_by_link(unread, user, limit):
    answer = unread.conversations(user, limit=limit)
    while True:
        assert answer.status == 200, answer
        yield answer
        link = answer.header("link")
        if link is None:
            return
        answer = unread.ask("GET", re.fullmatch(r'<(/dialogs\?.*)>; rel="next"', link).group(1), user=user)


# ---- the list


def test_both_users_see_the_last_message_and_what_they_have_not_read(unread):
    alice, bob = new_user(), new_user()
    unread.sent(alice, bob, "one")
    last = unread.send(alice, bob, "two").json()
    assert unread.conversations(bob).json() == [{
        "userId": alice, "unread": 2,
        "lastMessage": {"id": last["messageId"], "senderId": alice, "receiverId": bob, "text": "two",
                        "createdAt": last["createdAt"], "isRead": False},
    }]
    assert shown(unread.conversations(alice)) == [(bob, last["messageId"], 0)]
    unread.read(bob, last["messageId"])
    (entry,) = unread.conversations(bob).json()
    assert entry["unread"] == 1 and entry["lastMessage"]["isRead"] is True


def test_the_conversation_with_the_newest_message_is_first(unread):
    user, others = new_user(), [new_user() for _ in range(4)]
    messages = {other: unread.sent(*((user, other) if number % 2 else (other, user)))
                for number, other in enumerate(others)}
    messages[others[1]] = unread.sent(others[1], user)
    order = [others[1], others[3], others[2], others[0]]
    assert [(other, last) for other, last, _ in shown(unread.conversations(user))] == [
        (other, messages[other]) for other in order]


def test_notes_to_oneself_are_a_conversation(unread):
    user = new_user()
    unread.sent(user, user)
    note = unread.sent(user, user)
    assert shown(unread.conversations(user)) == [(user, note, 2)]


def test_nobody_has_no_conversations(unread):
    assert shown(unread.conversations(new_user())) == []


def test_links_lead_through_all_conversations_once(unread):
    user, others = new_user(), [new_user() for _ in range(55)]
    for number, other in enumerate(others):
        unread.sent(*((user, other) if number % 2 else (other, user)))
    others.reverse()
    first = unread.conversations(user)
    assert [other for other, _, _ in shown(first)] == others[:50], "50 where no limit is given"
    pages = [[other for other, _, _ in shown(page)] for page in pages_by_link(unread, user, 20)]
    assert [len(page) for page in pages] == [20, 20, 15] and sum(pages, []) == others
    assert len(unread.conversations(user, limit=1000).json()) == 55


def test_a_page_of_long_last_messages_is_about_a_mebibyte(unread):
    user, others = new_user(), [new_user() for _ in range(80)]
    for other in others:
        unread.sent_unescaped(other, user, "x" * 16384)
    pages = list(pages_by_link(unread, user, 1000))
    assert len(pages) > 1 and all(len(page.body) < 1024 * 1024 + 2 * 16384 for page in pages)
    assert [other for page in pages for other, _, _ in shown(page)] == others[::-1]


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "1.5", ""])
def test_a_limit_that_is_none_is_refused(unread, limit):
    assert_bad_request(unread.conversations(new_user(), limit=limit), "limit")


@pytest.mark.parametrize("before", ["zzz", "\U0010ffff", "' OR 1=1 --", "0" * 200])
def test_any_cursor_is_a_place_in_the_list(unread, before):
    user, other = new_user(), new_user()
    unread.sent(user, other)
    assert [entry[0] for entry in shown(unread.conversations(user, before=before))] in ([other], [])


# ---- reading up to a message


def test_everything_up_to_a_message_is_read_and_nothing_else(binary, unread, unread_server):
    alice, bob, eve = new_user(), new_user(), new_user()
    messages = [unread.sent(alice, bob) for _ in range(4)]
    unread.sent(eve, bob)
    unread.sent(bob, alice)
    unread.read(bob, messages[1])
    assert unread.read_up_to(bob, alice, messages[2]).json() == {"updated": 2, "more": False}
    assert [(other, count) for other, _, count in shown(unread.conversations(bob))] == [(alice, 1), (eve, 1)]
    assert [entry["isRead"] for entry in unread.list(bob, alice).json()] == [True, True, True, False, False]
    unread.wait_count(bob, 2)
    unread.wait_count(alice, 1)
    assert unread.read_up_to(bob, alice, messages[2]).json() == {"updated": 0, "more": False}
    assert unread.read_up_to(bob, alice, messages[3].upper()).json() == {"updated": 1, "more": False}
    unread.wait_count(bob, 1)
    assert verified(binary, unread_server, "unread")[0] == set()


def test_a_call_reads_1000_messages_the_oldest_first(unread):
    alice, bob = new_user(), new_user()
    messages = [unread.sent(alice, bob, "x") for _ in range(1005)]
    assert unread.read_up_to(bob, alice, messages[1002]).json() == {"updated": 1000, "more": True}
    assert [entry["isRead"] for entry in unread.list(bob, alice, limit=6).json()] == [True] + 5 * [False]
    assert unread.read_up_to(bob, alice, messages[1002]).json() == {"updated": 3, "more": False}
    unread.wait_count(bob, 2)


def test_a_message_that_is_not_of_this_sender_to_this_user_is_not_found(unread):
    alice, bob, eve = new_user(), new_user(), new_user()
    message = unread.sent(alice, bob)
    for user, sender, up_to in [(bob, eve, message), (eve, alice, message), (alice, bob, message), (bob, alice, UNKNOWN),
                                (bob, alice, "zzz")]:
        assert_problem(unread.read_up_to(user, sender, up_to), 404, "MESSAGE_NOT_FOUND")
    assert shown(unread.conversations(bob)) == [(alice, message, 1)]


@pytest.mark.parametrize("body", [{}, {"senderId": "a"}, {"messageId": "a"}, {"senderId": "", "messageId": "a"},
                                  {"senderId": "a", "messageId": 5}, {"senderId": "a", "messageId": "x" * 129}], ids=repr)
def test_a_request_without_a_sender_and_a_message_is_refused(unread, body):
    assert_bad_request(unread.ask("POST", "/dialogs/read-up-to", body, user=new_user()))


def test_a_repeated_key_gets_the_first_answer(unread):
    alice, bob, key = new_user(), new_user(), new_key()
    first, second = unread.sent(alice, bob), unread.sent(alice, bob)
    answer = unread.read_up_to(bob, alice, first, key=key)
    again = unread.read_up_to(bob, alice, first, key=key)
    assert answer.json() == {"updated": 1, "more": False}
    assert again.body == answer.body and again.header("idempotent-replayed") == "true"
    assert_problem(unread.read_up_to(bob, alice, second, key=key), 409, "IDEMPOTENCY_KEY_CONFLICT")


# ---- two processes


def test_two_processes_agree_on_conversations_and_unread_messages(binary, serve, unread_client, full_unread):
    servers = [serve(full_unread), serve(full_unread)]
    users = [new_user() for _ in range(4)]
    clients = [unread_client(servers[number % 2]) for number in range(4)]
    failures, updated = [], []

    def work(number):
        for turn in range(40):
            sender, receiver = users[(turn + number) % 4], users[(turn * 3 + number) % 4]
            answer = clients[number].send(sender, receiver, str(turn))
            if answer.status == 200 and turn % 5 == 4:
                answer = clients[number].read_up_to(receiver, sender, answer.json()["messageId"])
                updated.append(answer.json()["updated"])
            if answer.status != 200:
                failures.append(answer)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    total = full_unread.dialogs_query("SELECT count(*) FROM messages WHERE is_read")[0][0]
    assert sum(updated) == total, "each message was read once"
    for user in users:
        for other, last, unread in shown(clients[1].conversations(user)):
            assert full_unread.dialogs_query(
                "SELECT max(id) FROM messages WHERE (sender_id, receiver_id) IN "
                f"(('{user}', '{other}'), ('{other}', '{user}'))") == [(last,)]
            assert full_unread.dialogs_query(
                f"SELECT count(*) FROM messages WHERE receiver_id = '{user}' AND sender_id = '{other}' "
                "AND NOT is_read") == [(unread,)]
    full_unread.wait_agreement()
    assert verified(binary, servers[0], "unread")[0] == set()
