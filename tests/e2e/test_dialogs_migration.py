"""Dialogs of a version without conversations: a database made by its migrations gets those of its messages."""

import pytest

from harness.old_schema import OldSchema

ROLES = ("--roles", "dialogs,counters")
OLD = OldSchema("dialogs.db", [("common", 1, "base"), ("common", 2, "operator_actions"), ("dialogs", 1, "messages")])
MANY = 200_000
PAIRS = 20_000


def old_message(store, number, sender, receiver, is_read=False):
    time = "now()" if store.name == "postgres" else "0"
    read = str(is_read).lower() if store.name == "postgres" else int(is_read)
    return (f"INSERT INTO messages (receiver_id, id, sender_id, text, created_at, is_read) VALUES ('{receiver}', "
            f"'0192f0c{number}-0000-7000-8000-000000000000', '{sender}', 'text {number}', {time}, {read})")


def many_old_messages(store):
    """Between many users and one bot, by turns to and from it."""
    numbers = f"generate_series(1, {MANY}) n" if store.name == "postgres" else "numbers"
    before = "" if store.name == "postgres" else (
        f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY}) ")
    time, read = "now()" if store.name == "postgres" else "0", "n % 3 > 0"
    insert = "INSERT INTO messages (receiver_id, id, sender_id, text, created_at, is_read) "
    user = f"'user-' || (n % {PAIRS})"
    select = (f"SELECT CASE WHEN n % 2 = 0 THEN 'bot' ELSE {user} END, '0182f0c1-' || (n + 1000000), "
              f"CASE WHEN n % 2 = 0 THEN {user} ELSE 'bot' END, 'hello', {time}, {read} FROM {numbers}")
    return insert + before + select


def shown(answer):
    assert answer.status == 200, answer
    return [(entry["userId"], entry["lastMessage"]["text"], entry["unread"]) for entry in answer.json()]


def test_existing_messages_are_listed_as_conversations(serve, store, unread_client):
    OLD.make(store)
    OLD.run(store, [
        old_message(store, 1, "ann", "bob", is_read=True),
        old_message(store, 2, "ann", "bob"),
        old_message(store, 3, "eve", "bob"),
        old_message(store, 4, "bob", "ann"),
        old_message(store, 5, "bob", "bob"),
    ])
    client = unread_client(serve(store, *ROLES))
    assert shown(client.conversations("bob")) == [("bob", "text 5", 1), ("ann", "text 4", 1), ("eve", "text 3", 1)]
    assert shown(client.conversations("ann")) == [("bob", "text 4", 1)]
    assert shown(client.conversations("eve")) == [("bob", "text 3", 0)]
    client.sent("eve", "bob", "new")
    assert [entry[0] for entry in shown(client.conversations("bob"))] == ["eve", "bob", "ann"]


def test_many_existing_messages_are_no_obstacle(serve, store, unread_client):
    """A migration whose work grew faster than the messages would not end before the deadline that ends a hang."""
    OLD.make(store)
    OLD.run(store, [many_old_messages(store)])
    client = unread_client(serve(store, *ROLES))
    page = shown(client.conversations("bot", limit=1000))
    assert len(page) == 1000 and len({other for other, _, _ in page}) == 1000
    assert [other for other, _, _ in page[:3]] == [f"user-{n % PAIRS}" for n in (MANY, MANY - 1, MANY - 2)]


def test_a_process_of_the_old_version_cannot_write_beside_the_new_one(serve, postgres_store):
    serve(postgres_store, *ROLES)
    with pytest.raises(Exception, match="null value in column \"in_conversation\""):
        OLD.run(postgres_store, [old_message(postgres_store, 1, "ann", "bob")])
