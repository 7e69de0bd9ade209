/* Builds answers, in particular refusals in the format problem+json. A refusal is rendered at once.
 * Its content (struct problem) is kept beside the body, so that the connection can later render the
 * refusal in another format. */
#include "ports/answer.h"

#include <stdarg.h>
#include <stdio.h>

#define RETRY_AFTER_S 1

struct answer answer_json(int http_status, struct slice body)
{
	return (struct answer){
		.http_status = http_status,
		.content_type = SLICE("application/json"),
		.body = body,
	};
}

struct answer answer_empty(void)
{
	return (struct answer){.http_status = 204};
}

static struct slice render_problem(struct arena *arena, const struct problem *problem)
{
	enum status status = problem->status;
	struct buffer body = buffer_make(arena, 192 + problem->detail.len + problem->members.len);

	buffer_text(&body, "{\"type\":\"about:blank\",\"title\":\"");
	buffer_text(&body, status_title(status));
	buffer_text(&body, "\",\"status\":");
	buffer_int(&body, status_http(status));
	buffer_text(&body, ",\"code\":\"");
	buffer_text(&body, status_code(status));
	buffer_text(&body, "\",\"detail\":");
	buffer_json_string(&body, problem->detail);
	for (size_t i = 0; i < problem->error_count; i++) {
		buffer_text(&body, i == 0 ? ",\"errors\":[{\"field\":" : ",{\"field\":");
		buffer_json_string(&body, slice_of(problem->errors[i].field));
		buffer_text(&body, ",\"message\":");
		buffer_json_string(&body, slice_of(problem->errors[i].message));
		buffer_char(&body, '}');
	}
	if (problem->error_count > 0)
		buffer_char(&body, ']');
	buffer_add(&body, problem->members);
	buffer_char(&body, '}');
	return buffer_slice(&body);
}

static const struct problem *keep_problem(struct arena *arena, struct problem problem)
{
	struct problem *kept = arena_new(arena, struct problem);
	struct field_error *errors = arena_array(arena, struct field_error, problem.error_count);

	if (problem.error_count > 0)
		memcpy(errors, problem.errors, problem.error_count * sizeof(*errors));
	problem.detail = arena_copy(arena, problem.detail);
	problem.members = arena_copy(arena, problem.members);
	problem.errors = errors;
	*kept = problem;
	return kept;
}

static struct answer make_problem(struct arena *arena, struct problem problem)
{
	struct answer answer = {
		.http_status = status_http(problem.status),
		.content_type = SLICE("application/problem+json"),
		.problem = keep_problem(arena, problem),
	};

	answer.body = render_problem(arena, answer.problem);
	if (answer.http_status == 503) {
		struct buffer headers = buffer_make(arena, 32);

		buffer_format(&headers, "Retry-After: %d\r\n", RETRY_AFTER_S);
		answer.headers = buffer_slice(&headers);
	}
	return answer;
}

struct answer answer_problem(struct arena *arena, enum status status, const char *detail, ...)
{
	char text[1024];
	va_list args;

	va_start(args, detail);
	vsnprintf(text, sizeof(text), detail, args);
	va_end(args);
	return make_problem(arena, (struct problem){.status = status, .detail = slice_of(text)});
}

struct answer answer_problem_with(
	struct arena *arena, enum status status, struct slice members, const char *detail)
{
	return make_problem(arena,
		(struct problem){.status = status, .detail = slice_of(detail), .members = members});
}

struct answer answer_invalid(
	struct arena *arena, const struct field_error *errors, size_t error_count)
{
	return answer_invalid_as(arena, STATUS_BAD_REQUEST,
		slice_of("the request is not valid; \"errors\" lists what is wrong"), errors,
		error_count);
}

struct answer answer_invalid_as(struct arena *arena, enum status status, struct slice detail,
	const struct field_error *errors, size_t error_count)
{
	struct problem problem = {
		.status = status,
		.detail = detail,
		.errors = errors,
		.error_count = error_count,
	};

	return make_problem(arena, problem);
}

static const char *failure_text(enum status status)
{
	switch (status) {
	case STATUS_OVERLOADED:
		return "too many requests are waiting; nothing was changed, try again shortly";
	case STATUS_STORE_UNAVAILABLE:
		return "the store cannot be reached or cannot write; nothing was changed, "
		       "try again shortly";
	case STATUS_BUS_UNAVAILABLE:
		return "the message bus cannot be reached; nothing was changed, try again shortly";
	case STATUS_OUTCOME_UNKNOWN:
		return "the connection was lost before the outcome was known: the change may or "
		       "may not have been applied; send the same request with the same "
		       "Idempotency-Key to find out";
	default:
		return "the request could not be carried out; nothing was changed";
	}
}

struct answer answer_failure(struct arena *arena, enum status status)
{
	struct slice detail = slice_of(failure_text(status));

	return make_problem(arena, (struct problem){.status = status, .detail = detail});
}

size_t answer_list_max(size_t limit, size_t element_max)
{
	return limit < ANSWER_LIST_MAX / element_max ? limit * element_max : ANSWER_LIST_MAX;
}

void answer_link_next(struct answer *answer, struct arena *arena, struct slice target)
{
	struct buffer headers = buffer_make(arena, answer->headers.len + target.len + 32);

	buffer_add(&headers, answer->headers);
	buffer_text(&headers, "Link: <");
	buffer_add(&headers, target);
	buffer_text(&headers, ">; rel=\"next\"\r\n");
	answer->headers = buffer_slice(&headers);
}

void answer_add_next(struct answer *answer, struct arena *arena, struct slice path, size_t limit,
	struct slice after)
{
	struct buffer target = buffer_make(arena, path.len + 3 * after.len + 32);

	buffer_add(&target, path);
	buffer_format(&target, "?limit=%zu&after=", limit);
	buffer_percent(&target, after);
	answer_link_next(answer, arena, buffer_slice(&target));
}
