/*
 * A request waits for at most one command at a time. If the client leaves while the request waits,
 * the request loses its connection; when the command is back, the request is freed without an
 * answer.
 *
 * request_charge() charges the memory of a request to its connection. Because the arena grows,
 * request_count_bytes() charges the growth later. Requests are pooled per worker together with the
 * first chunk of their arenas, so that an ordinary request needs no malloc().
 */
#include "http/request.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "http/access_log.h"
#include "http/connection.h"
#include "http/negotiation.h"
#include "http/stream_internal.h"

#define POOL_MAX 1024
#define ARENA_SIZE 3072

struct request *request_new(void *context)
{
	struct connection *connection = context;
	struct http_worker *worker = connection->worker;
	struct request *request = worker->pool;
	struct arena arena;

	if (request) {
		worker->pool = request->next;
		worker->pool_count--;
		arena = request->arena;
	} else {
		request = qp_malloc(sizeof(*request));
		arena_init(&arena, ARENA_SIZE);
	}
	memset(request, 0, sizeof(*request));
	request->arena = arena;
	request->worker = worker;
	request->connection = connection;
	request->address = connection->address;
	request->started_ns = clock_steady_ns(worker->clock);
	tally_add(&worker->in_flight, 1);
	return request;
}

void request_free(struct request *request)
{
	struct http_worker *worker = request->worker;

	assert(!request->command);
	tally_add(&worker->in_flight, -1);
	arena_reset(&request->arena);
	if (worker->pool_count < POOL_MAX) {
		request->next = worker->pool;
		worker->pool = request;
		worker->pool_count++;
		return;
	}
	arena_release(&request->arena);
	free(request);
}

size_t request_bytes(const struct request *request)
{
	return sizeof(*request) + request->arena.held;
}

void request_start(struct request *request)
{
	request->deadline_ns =
		clock_steady_ns(request->worker->clock) + request->worker->limits->deadline_ns;
	if (request->answer.http_status == 0)
		request->route->handle(request->route->context, request);
}

/* Logs the route and not the path, because the path may contain ids of persons. */
static void log_failure(const struct request *request)
{
	const struct log_field fields[] = {
		{.name = "method", .value = request->method},
		{.name = "route", .value = slice_of(request->route ? request->route->path : "")},
		{.name = "request_id", .value = request->id},
		{.name = "traceparent", .value = request->traceparent},
	};

	log_line_with(LOG_ERROR, "http", fields, 4,
		"a request failed with 500; the cause is a bug or a store that was changed by "
		"hand");
}

static void log_request(const struct request *request, int64_t duration_ns)
{
	struct log_field fields[] = {
		{.name = "request_id", .value = request->id},
		{.name = "traceparent", .value = request->traceparent},
		{.name = "protocol", .value = slice_of(request->connection->protocol->name)},
	};

	if (request->answer.http_status == 500)
		log_failure(request);
	if (!log_enabled(LOG_DEBUG))
		return;
	log_line_with(LOG_DEBUG, "http", fields, 3, "%.*s %.*s %d in %lld us",
		(int)request->method.len, request->method.data,
		request->path.raw.len < 200 ? (int)request->path.raw.len : 200,
		request->path.raw.data ? request->path.raw.data : "", request->answer.http_status,
		(long long)(duration_ns / 1000));
}

void request_finish(struct request *request)
{
	struct http_worker *worker = request->worker;
	int64_t duration_ns = clock_steady_ns(worker->clock) - request->started_ns;

	if (request->id.len == 0) {
		char *id = arena_alloc(&request->arena, 33);

		dice_hex_id(&worker->dice, id);
		request->id = slice_make(id, 32);
	}
	router_apply_style(worker->router, request);
	if (request->stream)
		stream_begin(request->stream);
	negotiation_finish(request);
	tally_add(request->exchange ? &worker->http2_answers : &worker->http1_answers, 1);
	router_count_answer(
		worker->router, request->route, request->answer.http_status, duration_ns);
	log_request(request, duration_ns);
	if (worker->logs_access)
		access_log(request, duration_ns);
}

void request_drop(struct request *request)
{
	request->connection = NULL;
	if (request->stream)
		stream_end(request->stream);
	if (request->lane) /* the command was deferred, so it never entered the lane */
		request->command = NULL;
	if (request->command)
		atomic_store_explicit(&request->command->client_gone, true, memory_order_relaxed);
	else
		request_free(request);
}

struct slice request_header(const struct request *request, const char *name)
{
	for (size_t i = 0; i < request->header_count; i++) {
		if (slice_is_nocase(request->headers[i].name, name)) {
			struct slice value = request->headers[i].value;

			return value.data ? value : slice_of("");
		}
	}
	return (struct slice){0};
}

size_t request_header_count(const struct request *request, const char *name)
{
	size_t count = 0;

	for (size_t i = 0; i < request->header_count; i++)
		count += slice_is_nocase(request->headers[i].name, name);
	return count;
}

bool request_has_json(const struct request *request)
{
	struct slice type = request_header(request, "Content-Type");
	struct slice rest = type;

	return !type.data || slice_is_nocase(slice_trim(slice_cut(&rest, ';')), "application/json");
}

void request_charge(struct request *request)
{
	request->queued_bytes = request_bytes(request);
	request->connection->queued_bytes += request->queued_bytes;
}

void request_count_bytes(struct request *request)
{
	size_t bytes = request_bytes(request);

	if (request->queued_bytes == 0)
		return; /* request_charge() was not called yet */
	request->connection->queued_bytes += bytes - request->queued_bytes;
	request->queued_bytes = bytes;
}

void request_answer(struct request *request, struct answer answer)
{
	assert(request->answer.http_status == 0);
	assert(answer.http_status != 0);
	if (request->stream)
		stream_end(request->stream);
	request->answer = answer;
	request->is_large = false;
	if (!request->connection)
		return;
	request_count_bytes(request);
	request->connection->protocol->answered(request->connection, request);
}

static void on_command_answered(struct loop_task *task)
{
	struct command *command = CONTAINER_OF(task, struct command, task);
	struct request *request = CONTAINER_OF(command->arena, struct request, arena);

	assert(request->command == command);
	command_sign(command);
	request->command = NULL;
	if (!request->connection)
		request_free(request);
	else if (request->is_abandoned)
		request->connection->protocol->answered(request->connection, request);
	else if (request->answered)
		request->answered(request, command);
	else
		request_answer(request, command->answer);
}

/* Prepares `command` to carry the request's answer back. */
static void set_command(struct request *request, struct command *command)
{
	command->task.run = on_command_answered;
	command->loop = request->worker->loop;
	command->arena = &request->arena;
	command->deadline_ns = request->deadline_ns;
	command->bytes = request_bytes(request);
	atomic_init(&command->client_gone, false);
	request->command = command;
	request->is_large = command_is_large(command);
}

static void refuse_overloaded(struct request *request)
{
	request->command = NULL;
	request_answer(request, answer_failure(&request->arena, STATUS_OVERLOADED));
}

static bool has_memory(const struct request *request)
{
	return !request->is_large || !worker_is_full(request->worker);
}

void request_submit_now(struct request *request)
{
	struct lane *lane = request->lane;

	request->lane = NULL;
	if (!has_memory(request) || lane_submit(lane, request->command) != STATUS_OK)
		refuse_overloaded(request);
}

void request_submit(struct request *request, struct lane *lane, struct command *command)
{
	set_command(request, command);
	request->lane = lane;
	if (!request->is_large || !request->connection ||
		!request->connection->protocol->defers(request->connection, request))
		request_submit_now(request);
}

bool request_expect(struct request *request, struct command *command)
{
	set_command(request, command);
	if (has_memory(request))
		return true;
	refuse_overloaded(request);
	return false;
}

void request_submit_then(struct request *request, struct lane *lane, struct command *command,
	void (*answered)(struct request *request, struct command *command))
{
	request->answered = answered;
	request_submit(request, lane, command);
}
