"""The planner reaches count_values by its index, whatever the table's size: on a small table a sequential scan looks
cheaper, locks rows in table order, and deadlocks with other processes."""

import pytest

from harness.counts import increase_request, new_key
from harness.http import ask_all, render
from harness.plans import explained, scans_of


def fill(database, rows):
    database.query(
        "INSERT INTO count_values (item_id) SELECT 'item-' || n FROM generate_series(1, %s) n", (rows,)
    )


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "never-analyzed"])
@pytest.mark.parametrize("rows", [10, 10_000, pytest.param(200_000, marks=pytest.mark.full)])
def test_batches_use_the_index_whatever_the_size_of_the_table(serve, database, postgres_store, rows, analyzed):
    server = serve(postgres_store)
    server.stop()
    fill(database, rows)
    if analyzed:
        database.query("ANALYZE count_values")
    with explained(database, "count_values") as plans:
        server = serve(postgres_store)
        items = [f"item-{1 + number * 7 % rows}" for number in range(60)]
        for requests in (
            [increase_request(item) for item in items],
            [increase_request(item, key=new_key()) for item in items],
            [render("POST", f"/api/v1/counts/{item}/reset") for item in items],
            [render("GET", f"/api/v1/internal/counts/{item}") for item in items],
            [render("GET", f"/api/v1/internal/counts?{query}") for query in ("", "prefix=item-1&after=item-1", "limit=1000")],
            [render("DELETE", f"/api/v1/internal/counts/{item}") for item in sorted(set(items))[:5]],
        ):
            answers = ask_all((server.port, request) for request in requests)
            assert {answer.status for answer in answers} <= {200, 204}
        server.stop()

    assert any("Update on" in plan for plan in plans), "the plan of no UPDATE was logged"
    assert scans_of(plans, "count_values", r"Index (Only )?Scan")
    assert scans_of(plans, "count_values", r"(Seq Scan|Bitmap Heap Scan)") == []
