"""What every refusal has in common."""

REASONS = {
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 413: None, 414: "URI Too Long", 415: "Unsupported Media Type", 417: "Expectation Failed",
    429: "Too Many Requests", 431: "Request Header Fields Too Large", 503: "Service Unavailable",
}  # 413 has had a different name in each of three RFCs


def assert_problem(answer, status, code, field=None):
    """Checks that the answer is an RFC 9457 problem with this status and code; with `field`, that one of its errors is
    about that field."""
    assert answer.status == status, answer
    assert answer.header("content-type") == "application/problem+json", answer
    problem = answer.json()
    assert problem["type"] == "about:blank", problem
    assert problem["status"] == status, problem
    assert problem["code"] == code, problem
    assert problem["title"] == (REASONS[status] or problem["title"]), problem
    assert problem["title"] and problem["detail"], problem
    if status == 503:
        assert (answer.header("retry-after") or "").isdigit(), answer
    if field is not None:
        errors = problem["errors"]
        assert field in [error["field"] for error in errors], problem
        assert all(error["message"] for error in errors), problem
    return problem


def assert_bad_request(answer, field=None):
    return assert_problem(answer, 400, "BAD_REQUEST", field)
