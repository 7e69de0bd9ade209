"""Counts page by page: in the order of their ids, each once, on both stores, and never more than was asked for."""

import pytest

from harness.counts import COLLECTION, new_id, record
from harness.http import ask_all, render
from harness.problems import assert_bad_request


def create_all(counts, items):
    answers = ask_all((counts.port, render("POST", COLLECTION, {"itemId": item})) for item in items)
    assert {answer.status for answer in answers} <= {201}


def pages(counts, query):
    """The ids of each page, following the links."""
    target, found = f"{COLLECTION}?{query}", []
    while target:
        answer = counts.ask("GET", target)
        assert answer.status == 200, answer
        found.append([entry["itemId"] for entry in answer.json()])
        target = answer.next_page()
    return found


def test_pages_have_every_count_with_the_prefix_once_in_byte_order(counts):
    prefix = new_id("list")
    items = [prefix + rest for rest in ("-B", "-a", "-Ä", "-ä", "-10", "-9", "-日本", "-\U0001F600", "-\uFFFD", "- ", "-~", "")]
    create_all(counts, items + [prefix[:-1], new_id("lisu")])
    expected = sorted(items, key=lambda item: item.encode())
    for limit in (1, 5, 11, 12, 13, 1000):
        found = pages(counts, f"prefix={prefix}&limit={limit}")
        assert sum(found, []) == expected
        assert {len(page) for page in found[:-1]} <= {limit}
        assert 0 < len(found[-1]) <= limit


def test_a_page_has_the_shape_of_a_single_read_bounds_included(counts):
    item = counts.new_bounded(3, min_value=0)
    assert counts.ask("GET", f"{COLLECTION}?prefix={item}&limit=1").json()[0] == counts.get(item).json()


def test_without_parameters_the_first_hundred_counts_are_listed(counts):
    create_all(counts, [new_id("!first") for _ in range(101)])
    answer = counts.ask("GET", COLLECTION)
    ids = [entry["itemId"] for entry in answer.json()]
    assert len(ids) == 100 and ids == sorted(ids, key=lambda item: item.encode())
    assert counts.ask("GET", answer.next_page()).json()[0]["itemId"] > ids[-1]


@pytest.mark.parametrize("rest", ["ä", "\u07FF", "\uD7FF", "\uFFFF", "\U0010FFFF", "%", "+&="])
def test_any_text_can_be_a_prefix(counts, rest):
    prefix = new_id("any") + rest
    create_all(counts, [prefix, prefix + "x", prefix + "\U0010FFFF"])
    query = "prefix=" + "".join(f"%{byte:02X}" for byte in prefix.encode())
    assert pages(counts, query + "&limit=2") == [[prefix, prefix + "x"], [prefix + "\U0010FFFF"]]


def test_a_cursor_needs_no_count_and_may_lie_outside_the_prefix(counts):
    prefix = new_id("cursor")
    create_all(counts, [prefix + "-b", prefix + "-d"])
    for after, expected in (("-a", ["-b", "-d"]), ("-b", ["-d"]), ("-c", ["-d"]), ("-d", [])):
        assert sum(pages(counts, f"prefix={prefix}&after={prefix}{after}"), []) == [prefix + rest for rest in expected]
    assert len(sum(pages(counts, f"prefix={prefix}&after=%20"), [])) == 2
    assert pages(counts, f"prefix={prefix}&after=~") == [[]]


def test_a_count_that_stays_is_on_one_page_whatever_comes_and_goes(counts):
    prefix = new_id("moving")
    create_all(counts, [f"{prefix}-{number}" for number in (1, 3, 5, 7)])
    first = counts.ask("GET", f"{COLLECTION}?prefix={prefix}&limit=2")
    assert counts.ask("DELETE", record(f"{prefix}-3")).status == 204
    create_all(counts, [f"{prefix}-2", f"{prefix}-6"])
    rest = counts.ask("GET", first.next_page()), counts.ask("GET", f"{COLLECTION}?prefix={prefix}&after={prefix}-6")
    assert [[entry["itemId"][-1] for entry in page.json()] for page in (first, *rest)] == [["1", "3"], ["5", "6"], ["7"]]


@pytest.mark.parametrize("query, field", [
    ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("limit=", "limit"),
    ("prefix=" + "x" * 129, "prefix"), ("prefix=a%0Ab", "prefix"),
    ("after=" + "x" * 129, "after"), ("after=%7F", "after"),
])
def test_a_page_that_is_not_described_properly_is_refused(counts, query, field):
    assert_bad_request(counts.ask("GET", f"{COLLECTION}?{query}"), field=field)


@pytest.mark.parametrize("more", ["prefix=a", "after=a", "limit=5"])
def test_ids_and_a_page_at_once_are_refused(counts, more):
    assert_bad_request(counts.ask("GET", f"{COLLECTION}?itemIds=a&{more}"), field="itemIds")


def test_ids_joined_with_commas_are_refused_and_an_encoded_comma_is_part_of_an_id(counts):
    first, second, both = counts.new_item(), counts.new_item(), new_id("a,b")
    counts.create(both)
    for query in (f"itemIds={first},{second}", f"itemIds[]={both}", f"itemIds={first}&itemIds=a,b"):
        assert_bad_request(counts.ask("GET", f"{COLLECTION}?{query}"), field="itemIds")
    assert [entry["itemId"] for entry in counts.list(both).json()] == [both]
