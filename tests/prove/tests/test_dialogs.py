"""Dialogs and counters: a message, a read or a number that should not be is found."""

import json

import pytest

SENDS = "every acknowledged message is one row, and no refused one is"
READS = "what was read is read, and nothing else is"
UPDATED = "every message is marked as read once"
EVENTS = "every message and every read is one published event"
COUNTERS = "unread is what a recount of the messages gives"
STREAMS = "streams never go back and end on the last value"
ALICE, BOB = "s1d0", "s1d1"


class Chat:
    """Alice writes to Bob."""

    def __init__(self, story):
        self.story = story
        for service in ("dialogs", "counters"):
            story.database(service)

    def send(self, stored=True, **more):
        number = self.story._number + 1
        message = f"id{number}"
        self.story.tell("dialogs", "send", ALICE, BOB, f"m{number}", answer={"messageId": message}, **more)
        if stored:
            self.store(message, f"m{number}")
        return message

    def store(self, message, text):
        self.story.row("dialogs", "messages", receiver_id=BOB, id=message, sender_id=ALICE, text=text, created_at=0)
        self.event("NewMessageEvent", message)

    def event(self, kind, message, status="PUBLISHED"):
        self.story._number += 1
        self.story.row("dialogs", "dialog_outbox_events", event_id=f"e{self.story._number}", event_type=kind,
                       aggregate_key=BOB, trace_id="", payload=json.dumps({"message": {"messageId": message}}).encode(),
                       status=status, created_at=0)

    def mark(self, message):
        self.story.database("dialogs").execute("UPDATE messages SET is_read = 1 WHERE id = ?", (message,))
        self.event("MessageReadEvent", message)

    def read(self, message, updated=1, marked=True, **more):
        self.story.tell("dialogs", "read", BOB, message, answer={"updated": updated}, **more)
        if marked:
            self.mark(message)

    def counted(self, count, *unread):
        self.story.row("counters", "counters", user_id=BOB, type="UnreadMessages", count=count, last_updated=0, version=1)
        for message in unread:
            self.story.row("counters", "counter_messages", user_id=BOB, message_id=message, state="unread", event_at=0)

    def judge(self):
        return self.story.judge("dialogs")


@pytest.fixture
def chat(story):
    return Chat(story)


def test_messages_and_reads_that_agree_are_fine(chat):
    one, two = chat.send(), chat.send()
    chat.read(one)
    chat.read(one, updated=0, marked=False)
    chat.story.open_stream(BOB)
    chat.story.stream(BOB, 1, 2)
    chat.story.stream(BOB, 3, 1)
    chat.counted(1, two)
    assert chat.judge() == {}
    assert (chat.story.uncounted(), chat.story.streams_behind()) == (0, 0)


def test_an_acknowledged_message_that_is_gone_is_found(chat):
    chat.send(stored=False)
    assert SENDS in chat.judge()


def test_a_message_that_was_stored_twice_is_found(chat):
    chat.send()
    chat.store("another", "m1")
    assert SENDS in chat.judge()


def test_a_refused_message_that_is_there_is_found(chat):
    chat.send(status=503)
    assert SENDS in chat.judge()


def test_a_read_that_was_acknowledged_and_lost_is_found(chat):
    chat.read(chat.send(), marked=False)
    found = chat.judge()
    assert READS in found and UPDATED in found


def test_a_message_that_nobody_read_and_is_read_is_found(chat):
    chat.mark(chat.send())
    assert READS in chat.judge()


def test_a_message_that_was_marked_twice_is_found(chat):
    message = chat.send()
    chat.read(message)
    chat.read(message, marked=False)
    assert UPDATED in chat.judge()


def test_a_range_covers_what_was_there_before_it(chat):
    one, two = chat.send(), chat.send()
    chat.story.tell("dialogs", "readupto", BOB, ALICE, two, answer={"updated": 1, "more": False})
    chat.mark(one)
    assert READS in chat.judge()


def test_an_event_that_is_missing_or_one_too_many_is_found(chat):
    message = chat.send()
    chat.event("NewMessageEvent", message)
    assert EVENTS in chat.judge()


def test_an_event_that_was_never_published_is_found(chat):
    message = chat.send()
    chat.read(message, marked=False)
    chat.story.database("dialogs").execute("UPDATE messages SET is_read = 1")
    chat.event("MessageReadEvent", message, status="PENDING")
    assert EVENTS in chat.judge()


def test_a_counter_that_is_off_by_one_is_found(chat):
    message = chat.send()
    chat.story.open_stream(BOB)
    chat.story.stream(BOB, 1, 1)
    chat.counted(2, message)
    assert COUNTERS in chat.judge()
    assert chat.story.uncounted() == 1


def test_a_stream_that_missed_the_last_value_is_found(chat):
    message = chat.send()
    chat.story.open_stream(BOB)
    chat.story.stream(BOB, 1, 0)
    chat.counted(1, message)
    assert STREAMS in chat.judge()
    assert chat.story.streams_behind() == 1


def test_a_stream_that_goes_back_is_found(chat):
    message = chat.send()
    chat.story.open_stream(BOB)
    chat.story.stream(BOB, 2, 2)
    chat.story.stream(BOB, 1, 1)
    chat.counted(1, message)
    assert STREAMS in chat.judge()


def test_two_values_of_one_version_are_found(chat):
    message = chat.send()
    chat.story.open_stream(BOB)
    chat.story.stream(BOB, 1, 2)
    chat.story.open_stream(BOB)
    chat.story.stream(BOB, 1, 1)
    chat.counted(1, message)
    assert STREAMS in chat.judge()
