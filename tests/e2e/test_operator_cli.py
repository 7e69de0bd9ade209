"""The operator's commands, against a server that plays the routes they use."""

import datetime
import json
import re
import subprocess

import pytest

from harness import quipu
from harness.operator import ask, run, server  # noqa: F401  (fixtures)
from harness.operator import KINDS, failed, letter, refused
from harness.waiting import HANG_S

UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


# ---- list


def test_list_shows_the_letters_of_all_kinds_in_columns(ask, server):
    server.letters["outbox"] = [letter("outbox", 1), letter("outbox", 22, error="the bus is away", attempt_count=3)]
    server.letters["poison"] = [letter("poison", 3, event_type=None, aggregate_key=None, attempt_count=None)]
    done = ask("dlq", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "ID            EVENT TYPE          AGGREGATE KEY  ATTEMPTS  SINCE                 ERROR\n"
        "outbox/id-1   EntitlementGranted  user-1:gold    10        2026-01-08T07:10:00Z  HTTP 500\n"
        "outbox/id-22  EntitlementGranted  user-22:gold   3         2026-01-08T07:10:00Z  the bus is away\n"
        "poison/id-3   -                   -              -         2026-01-08T07:10:00Z  HTTP 500\n"
    )


def test_list_says_so_where_there_are_none(ask):
    done = ask("dlq", "list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "no dead letters\n", "")


def test_list_follows_the_pages_of_every_kind(ask, server):
    server.page = 2
    server.letters["outbox"] = [letter("outbox", number) for number in range(5)]
    server.letters["notification"] = [letter("notification", number) for number in range(3)]
    done = ask("dlq", "list")
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert names == [f"outbox/id-{n}" for n in range(5)] + [f"notification/id-{n}" for n in range(3)]
    assert len(server.requests) == 3 + 2 + (len(KINDS) - 2)


@pytest.mark.parametrize("limit", [2, 3, 4])
def test_list_shows_no_more_than_its_limit_and_says_that_there_are_more(ask, server, limit):
    server.letters["outbox"] = [letter("outbox", number) for number in range(3)]
    server.letters["poison"] = [letter("poison", number) for number in range(3)]
    done = ask("dlq", "list", "--limit", limit)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1 + limit
    assert done.stderr == f"quipu: there are more dead letters than {limit}; use --limit to see more\n"
    assert server.requests[0][1] == f"/operator/dlq/outbox?limit={limit + 1}"


def test_list_shows_exactly_its_limit_without_a_word(ask, server):
    server.letters["outbox"] = [letter("outbox", number) for number in range(3)]
    done = ask("dlq", "list", "--limit=3")
    assert len(done.stdout.splitlines()) == 1 + 3
    assert done.stderr == ""


def test_list_shows_100_where_nothing_is_said(ask, server):
    server.letters["notification"] = [letter("notification", number) for number in range(150)]
    done = ask("dlq", "list")
    assert len(done.stdout.splitlines()) == 1 + 100
    assert "more dead letters than 100" in done.stderr
    assert len(ask("dlq", "list", "--limit", 1000).stdout.splitlines()) == 1 + 150


def test_a_kind_whose_role_does_not_run_is_passed_over(ask, server):
    del server.letters["outbox"]
    server.letters["poison"] = [letter("poison", 1)]
    done = ask("dlq", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].startswith("poison/id-1 ")


def test_a_server_without_such_roles_is_no_empty_list(ask, server):
    server.letters.clear()
    failed(ask("dlq", "list"), f"the server at {server.url} runs no role with dead letters")


def test_what_a_letter_says_cannot_steer_the_terminal(ask, server):
    evil = "a\x1b[31mb\nc\x9bd\u00e4"
    server.letters["outbox"] = [letter("outbox", 1, error=evil, event_type=evil), letter("outbox", 2)]
    done = ask("dlq", "list")
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("a\\x1b[31mb\\x0ac\\xc2\\x9bd\u00e4")
    assert lines[1].index("user-1:gold") == lines[2].index("user-2:gold")
    shown = ask("dlq", "show", "outbox/id-1").stdout
    assert json.loads(shown)["error"] == evil
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)


@pytest.mark.parametrize("link", [
    '<http://elsewhere.example/operator/dlq/outbox>; rel="next"', '<//elsewhere.example/>; rel="next"',
    '</operator/dlq/outbox?after=1>; rel="prev"', '</operator/dlq/outbox?after=1>', "nonsense", "</unfinished",
])
def test_a_link_that_is_not_the_next_page_of_this_server_is_not_followed(ask, server, link):
    page = {"letters": [letter("outbox", 1)]}
    server.override("/operator/dlq/outbox", lambda handler: handler.send(200, page, {"Link": link}))
    done = ask("dlq", "list")
    assert done.returncode == 0
    assert len(server.requests) == len(KINDS)


@pytest.mark.parametrize("link", [
    '</operator/dlq/poison?limit=1&after=1>; rel=next',
    '</elsewhere>; rel="prev", </operator/dlq/poison?limit=1&after=1>; title=a; REL="next"',
])
def test_a_link_is_read_however_it_is_written(ask, server, link):
    server.letters["poison"] = [letter("poison", 1), letter("poison", 2)]
    page = {"letters": [letter("outbox", 1)]}
    server.override("/operator/dlq/outbox", lambda handler: handler.send(200, page, {"Link": link}))
    ask("dlq", "list")
    assert server.requests[1][1] == "/operator/dlq/poison?limit=1&after=1"


def test_pages_without_letters_end_the_list(ask, server):
    link = {"Link": '</operator/dlq/outbox?after=1>; rel="next"'}
    server.override("/operator/dlq/outbox", lambda handler: handler.send(200, {"letters": []}, link))
    assert ask("dlq", "list").returncode == 0
    assert len(server.requests) == len(KINDS)


def test_a_failure_of_one_kind_fails_the_list(ask, server):
    server.letters["outbox"] = [letter("outbox", 1)]
    problem = {"status": 503, "code": "STORE_UNAVAILABLE", "detail": "the store cannot be reached"}
    server.override("/operator/dlq/poison", lambda handler: handler.send(503, problem))
    done = ask("dlq", "list")
    failed(done, "the store cannot be reached")
    assert done.stdout == ""


@pytest.mark.parametrize("limit", ["0", "-1", "many", "", "1000001"])
def test_a_wrong_limit_is_refused(ask, server, limit):
    assert refused(ask("dlq", "list", f"--limit={limit}"), "--limit must be a number from 1 to 1000000")
    assert server.requests == []


# ---- show


def test_show_prints_one_letter_as_json(ask, server):
    server.letters["notification"] = [letter("notification", 1)]
    done = ask("dlq", "show", "notification/id-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {**letter("notification", 1), "payload": "AAE=", "event": {"user_id": "ü"}}
    assert '\n  "event_type": "EntitlementGranted",\n' in done.stdout
    assert "ü" in done.stdout and done.stdout.endswith("}\n")


def test_show_of_an_unknown_letter_tells_what_the_server_says(ask):
    failed(ask("dlq", "show", "outbox/nobody"), 'no dead letter of the kind outbox has the id "nobody"')


def test_an_id_is_one_segment_of_the_path_whatever_is_in_it(ask, server):
    names = ["a/b", "..", "a b?c#d%20e", "ü", "-"]
    server.letters["outbox"] = [letter("outbox", 0, id=name) for name in names]
    for name in names:
        done = ask("dlq", "show", f"outbox/{name}")
        assert json.loads(done.stdout)["id"] == name
        assert server.requests[-1][1].count("/") == 4


def test_a_letter_of_a_role_that_does_not_run_is_told_as_such(ask, server):
    del server.letters["poison"]
    message = f"the server at {server.url} runs no role with dead letters of the kind poison"
    failed(ask("dlq", "show", "poison/1"), message)
    failed(ask("dlq", "replay", "poison/1"), f"poison/1: {message}")


@pytest.mark.parametrize("name", ["17", "outbox", "outbox/", "/17", "Outbox/17", "letters/17", "outboxes/17"])
def test_what_names_no_letter_is_refused(ask, server, name):
    for verb in ("show", "replay"):
        assert refused(ask("dlq", verb, name), f'"{name}" is not the name of a dead letter', "outbox/ID")
    assert refused(ask("dlq", "replay", "outbox/1", name), name)
    assert server.requests == []


# ---- replay and discard


def test_replay_tells_of_each_letter(ask, server):
    server.letters["outbox"] = [letter("outbox", 1)]
    server.letters["poison"] = [letter("poison", 2)]
    done = ask("dlq", "replay", "outbox/id-1", "poison/id-2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "outbox/id-1: replayed\npoison/id-2: replayed\n"
    assert [one[:3] for one in server.settled] == [("outbox", "id-1", "REPLAYED"), ("poison", "id-2", "REPLAYED")]


def test_one_that_fails_does_not_stop_the_rest(ask, server):
    server.letters["outbox"] = [letter("outbox", 1), letter("outbox", 2, event_type=None), letter("outbox", 3)]
    done = ask("dlq", "replay", "outbox/id-1", "outbox/id-2", "outbox/gone", "outbox/id-3")
    assert done.returncode == 1
    assert done.stdout == "outbox/id-1: replayed\noutbox/id-3: replayed\n"
    assert done.stderr == (
        "quipu: outbox/id-2: its event cannot be read, so it cannot be sent again\n"
        'quipu: outbox/gone: no dead letter of the kind outbox has the id "gone"\n'
    )


def test_discard_sends_the_reason(ask, server):
    server.letters["notification"] = [letter("notification", 1), letter("notification", 2)]
    why = 'the "user"\nis gone: ü'
    done = ask("dlq", "discard", "notification/id-1", "--why", why, "notification/id-2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "notification/id-1: discarded\nnotification/id-2: discarded\n"
    assert server.settled == [("notification", f"id-{n}", "DISCARDED", why) for n in (1, 2)]


@pytest.mark.parametrize("why", ["", " ", "\n", b"\xff"])
def test_discard_without_a_reason_is_refused(ask, server, why, binary):
    server.letters["outbox"] = [letter("outbox", 1)]
    assert refused(ask("dlq", "discard", "outbox/id-1"), "--why TEXT")
    done = subprocess.run(
        [str(binary), "dlq", "discard", "outbox/id-1", "--server", server.url, "--why", why],
        env=quipu.environment(), capture_output=True, check=False, timeout=HANG_S)
    assert done.returncode == 2 and b"--why must contain a reason" in done.stderr
    assert server.settled == []


def test_every_change_has_a_key_of_its_own(ask, server):
    server.letters["outbox"] = [letter("outbox", 1), letter("outbox", 2)]
    ask("dlq", "replay", "outbox/id-1", "outbox/id-2")
    ask("outbox", "resend", "--since", "1h")
    keys = [headers["Idempotency-Key"] for method, _, headers, _ in server.requests if method == "POST"]
    assert len(set(keys)) == len(keys) == 3
    assert all(UUID.match(key) for key in keys)
    types = [headers.get("Content-Type") for _, _, headers, _ in server.requests]
    assert types == [None, None, "application/json"]


# ---- resend


@pytest.mark.parametrize("since, expected", [
    ("2026-01-08T07:10:00Z", "2026-01-08T07:10:00Z"),
    ("2026-01-08T08:10:00.25+01:00", "2026-01-08T07:10:00.250Z"),
])
def test_resend_since_a_time(ask, server, since, expected):
    server.resent = 1234
    done = ask("outbox", "resend", "--since", since)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1234 events will be sent again\n", "")
    assert server.since == expected


def test_resend_since_so_long_ago(ask, server):
    def a_day_ago():
        return datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=24)

    server.resent, earliest = 1, a_day_ago()
    done = ask("outbox", "resend", "--since=24h")
    assert (done.returncode, done.stdout) == (0, "1 event will be sent again\n")
    since = datetime.datetime.fromisoformat(server.since.replace("Z", "+00:00"))
    assert earliest - datetime.timedelta(milliseconds=1) <= since <= a_day_ago(), "a time has milliseconds"


@pytest.mark.parametrize("since", ["", "yesterday", "2026-01-08", "2026-02-30T00:00:00Z", "-1h", "0", "24"])
def test_a_wrong_time_is_refused(ask, server, since):
    assert refused(ask("outbox", "resend", f"--since={since}"), "--since must be a time such as", f'"{since}"')
    assert server.requests == []


def test_resend_without_an_outbox(ask, server):
    del server.letters["outbox"]
    failed(ask("outbox", "resend", "--since", "1h"), f"the server at {server.url} runs no role with the requested outbox")


# ---- how they are used


@pytest.mark.parametrize("arguments, words", [
    (["dlq"], ["quipu dlq list|show|replay|discard"]),
    (["dlq", "burn"], ["quipu dlq list|show|replay|discard"]),
    (["outbox"], ["resend"]),
    (["outbox", "list"], ["resend"]),
    (["dlq", "list", "outbox/1"], ["quipu dlq list [--limit N]"]),
    (["dlq", "list", "--why", "x"], ["quipu dlq list [--limit N]"]),
    (["dlq", "show"], ["quipu dlq show KIND/ID"]),
    (["dlq", "show", "outbox/1", "outbox/2"], ["quipu dlq show KIND/ID"]),
    (["dlq", "replay"], ["quipu dlq replay KIND/ID..."]),
    (["dlq", "replay", "outbox/1", "--limit", "1"], ["quipu dlq replay KIND/ID..."]),
    (["dlq", "discard", "--why", "x"], ["quipu dlq discard KIND/ID... --why TEXT"]),
    (["outbox", "resend"], ["quipu outbox resend [dialog-outbox] --since TIME"]),
    (["outbox", "resend", "--since", "1h", "now"], ['name the outbox as "outbox" (entitlements) or "dialog-outbox" (dialogs)', 'not "now"']),
    (["outbox", "resend", "--since", "1h", "outbox", "now"], ["quipu outbox resend [dialog-outbox] --since TIME"]),
    (["dlq", "list", "--since", "1h"], ["there is no option --since"]),
    (["dlq", "list", "--loud"], ["there is no option --loud"]),
    (["serve", "dlq"], ['"dlq" is not understood']),
])
def test_a_wrong_use_is_refused_with_the_right_one(ask, server, arguments, words):
    assert refused(ask(*arguments), *words)
    assert server.requests == []


def test_help_shows_the_commands(run):
    text = run("help").stdout
    for words in ["dlq list [--limit N]", "dlq show KIND/ID", "dlq replay KIND/ID...", "dlq discard", "outbox resend",
                  "--server URL"]:
        assert words in text


# ---- replay all, and JSON


def test_replay_all_takes_every_page_of_one_kind_and_says_how_many(ask, server):
    server.page = 2
    server.letters["outbox"] = [letter("outbox", number) for number in range(7)]
    server.letters["poison"] = [letter("poison", 9)]
    done = ask("dlq", "replay", "outbox", "--all")
    assert (done.returncode, done.stdout, done.stderr) == (0, "outbox: 7 replayed, 0 refused\n", "")
    assert [name for _, name, _, _ in server.settled] == [f"id-{number}" for number in range(7)]
    assert len(server.letters["poison"]) == 1


def test_replay_all_goes_on_after_a_letter_that_is_refused_and_tries_none_twice(ask, server):
    server.page = 2
    server.letters["poison"] = [letter("poison", number, event_type=None if number < 3 else "x") for number in range(5)]
    done = ask("dlq", "replay", "poison", "--all", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"kind": "poison", "replayed": 2, "refused": 3}
    assert done.stderr.count("cannot be read") == 3
    assert len([path for method, path, *_ in server.requests if method == "POST"]) == 5


def test_replay_all_of_nothing_is_fine_and_needs_one_kind(ask, server):
    assert ask("dlq", "replay", "outbox", "--all").stdout == "outbox: 0 replayed, 0 refused\n"
    for words in (["nonsense"], ["outbox", "poison"], ["outbox/id-1"]):
        refused(ask("dlq", "replay", *words, "--all"),
                "--all needs one kind: outbox, dialog-outbox, notification, poison or sms")
    refused(ask("dlq", "show", "nonsense"), "outbox/ID, dialog-outbox/ID, notification/ID, poison/ID or sms/ID")
    refused(ask("dlq", "list", "--all"), "usage: quipu dlq list")
    del server.letters["outbox"]
    assert ask("dlq", "replay", "outbox", "--all").returncode == 1


def test_json_of_every_verb_is_one_object_per_line(ask, server):
    server.letters["outbox"] = [letter("outbox", number) for number in range(3)]
    listed = [json.loads(line) for line in ask("dlq", "list", "--json", "--limit", 2).stdout.splitlines()]
    assert listed == server.letters["outbox"][:2]
    assert ask("dlq", "list", "--json", "--limit", 5).stdout.count("\n") == 3
    assert json.loads(ask("dlq", "show", "outbox/id-1", "--json").stdout)["id"] == "id-1"
    told = ask("dlq", "replay", "outbox/id-0", "outbox/id-1", "--json").stdout.splitlines()
    assert [json.loads(line) for line in told] == [
        {"letter": f"outbox/id-{number}", "result": "replayed"} for number in range(2)]
    told = ask("dlq", "discard", "outbox/id-2", "--why", "a test", "--json").stdout
    assert json.loads(told) == {"letter": "outbox/id-2", "result": "discarded"}
    assert ask("dlq", "list", "--json").stdout == ""
    assert json.loads(ask("outbox", "resend", "--since", "24h", "--json").stdout) == {"resent": 0}
