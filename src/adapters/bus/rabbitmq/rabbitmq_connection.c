/*
 * Handles the connection of a link: logs in, disconnects, waits for frames, and explains failures.
 * Only the link's thread calls these functions, because rabbitmq-c is not thread-safe.
 *
 * rabbitmq-c cannot interrupt a blocking call. Therefore other threads end such a call by shutting
 * down the socket through cut_fd, a duplicate of the socket's descriptor. To be woken without
 * losing the connection, the link's thread does not wait for frames in rabbitmq-c, but polls the
 * socket together with wake_fd.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "adapters/bus/rabbitmq/rabbitmq_internal.h"
#include "base/random.h"

#define CONNECT_TIMEOUT_S 5
#define HANDSHAKE_TIMEOUT_S 5
#define SET_UP_TIMEOUT_S 10 /* for each request while connecting; declaring may be slow */
#define REQUEST_TIMEOUT_S 3
#define GOODBYE_TIMEOUT_S 1

/* ---- words ------------------------------------------------------------------------------- */

void rabbitmq_link_explain(struct rabbitmq_link *link, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(link->words, sizeof(link->words), format, arguments);
	va_end(arguments);
}

static void explain_close(struct rabbitmq_link *link, const amqp_method_t *method)
{
	const amqp_channel_close_t *amqp_channel = method->decoded;
	const amqp_connection_close_t *connection = method->decoded;
	bool is_amqp_channel = method->id == AMQP_CHANNEL_CLOSE_METHOD;
	amqp_bytes_t text = is_amqp_channel ? amqp_channel->reply_text : connection->reply_text;

	rabbitmq_link_explain(link, "%.*s", (int)text.len, (const char *)text.bytes);
}

static bool is_close(const amqp_method_t *method)
{
	return method->id == AMQP_CHANNEL_CLOSE_METHOD ||
	       method->id == AMQP_CONNECTION_CLOSE_METHOD;
}

bool rabbitmq_link_check_reply(
	struct rabbitmq_link *link, amqp_rpc_reply_t reply, const char *what, const char *name)
{
	char reason[RABBITMQ_WORDS_SIZE] = "";

	if (reply.reply_type == AMQP_RESPONSE_NORMAL)
		return true;
	if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && is_close(&reply.reply)) {
		explain_close(link, &reply.reply);
		snprintf(reason, sizeof(reason), "%s", link->words);
	} else if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) {
		snprintf(reason, sizeof(reason), "%s", amqp_error_string2(reply.library_error));
	}
	rabbitmq_link_explain(link, "%s%s: %s", what, name, *reason ? reason : "no reply");
	return false;
}

bool rabbitmq_link_check_code(struct rabbitmq_link *link, int code, const char *what)
{
	if (code == AMQP_STATUS_OK)
		return true;
	rabbitmq_link_explain(link, "%s: %s", what, amqp_error_string2(code));
	return false;
}

/* ---- connecting -------------------------------------------------------------------------- */

static void set_timeouts(struct rabbitmq_link *link, time_t handshake_s, time_t request_s)
{
	const struct timeval handshake = {.tv_sec = handshake_s};
	const struct timeval request = {.tv_sec = request_s};

	amqp_set_handshake_timeout(link->state, &handshake);
	amqp_set_rpc_timeout(link->state, &request);
}

static bool open_socket(struct rabbitmq_link *link)
{
	const struct rabbitmq_url *url = &link->bus->url;
	const struct rabbitmq_place *place = rabbitmq_link_place(link);
	const struct timeval timeout = {.tv_sec = CONNECT_TIMEOUT_S};
	amqp_socket_t *socket =
		rabbitmq_socket_new(link->state, url, link->words, sizeof(link->words));
	int code;

	if (!socket)
		return false;
	code = amqp_socket_open_noblock(socket, place->host, place->port, &timeout);
	if (code == AMQP_STATUS_OK)
		return true;
	rabbitmq_link_explain(link, RABBITMQ_NO_ANSWER ": %s", amqp_error_string2(code));
	return false;
}

/*
 * Lets other threads cut the link from now on. They use a duplicate of the socket's descriptor,
 * because rabbitmq-c may close the original descriptor at any time. Returns false if the descriptor
 * cannot be duplicated or the link was stopped.
 */
static bool allow_cutting(struct rabbitmq_link *link)
{
	pthread_mutex_lock(&link->lock);
	link->cut_fd = fcntl(amqp_get_sockfd(link->state), F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&link->lock);
	if (link->cut_fd < 0)
		rabbitmq_link_explain(link, "%s", strerror(errno));
	return link->cut_fd >= 0 && !rabbitmq_link_is_stopped(link);
}

static amqp_table_entry_t can(const char *capability)
{
	return (amqp_table_entry_t){.key = amqp_cstring_bytes(capability),
		.value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1}};
}

/* Logs in. Declares capabilities, because the broker reports deleted queues and alarms only to
 * clients that support these reports. */
static bool login(struct rabbitmq_link *link)
{
	const struct rabbitmq_url *url = &link->bus->url;
	amqp_table_entry_t capabilities[] = {can("consumer_cancel_notify"),
		can("connection.blocked"), can("basic.nack"), can("publisher_confirms")};
	amqp_table_entry_t properties[] = {
		{.key = amqp_cstring_bytes("connection_name"),
			.value = {.kind = AMQP_FIELD_KIND_UTF8,
				.value.bytes = amqp_cstring_bytes(link->who)}},
		{.key = amqp_cstring_bytes("capabilities"),
			.value = {.kind = AMQP_FIELD_KIND_TABLE,
				.value.table = {sizeof(capabilities) / sizeof(capabilities[0]),
					capabilities}}},
	};
	amqp_table_t table = {sizeof(properties) / sizeof(properties[0]), properties};

	return rabbitmq_link_check_reply(link,
		amqp_login_with_properties(link->state, url->vhost, RABBITMQ_AMQP_CHANNEL,
			AMQP_DEFAULT_FRAME_SIZE, url->heartbeat_s, &table, AMQP_SASL_METHOD_PLAIN,
			url->user, url->password),
		"login", "");
}

static bool open_amqp_channel(struct rabbitmq_link *link)
{
	amqp_channel_open(link->state, RABBITMQ_AMQP_CHANNEL);
	return rabbitmq_link_check_reply(link, amqp_get_rpc_reply(link->state), "AMQP channel", "");
}

static void set_served(struct rabbitmq_link *link, bool is_served)
{
	pthread_mutex_lock(&link->lock);
	link->is_served = is_served;
	pthread_mutex_unlock(&link->lock);
}

bool rabbitmq_link_connect(struct rabbitmq_link *link)
{
	link->state = amqp_new_connection();
	assert(link->state);
	random_bytes(&link->serial, sizeof(link->serial));
	link->serial |= 1; /* 0 means that there is no connection */
	set_timeouts(link, HANDSHAKE_TIMEOUT_S, SET_UP_TIMEOUT_S);
	if (!open_socket(link) || !allow_cutting(link) || !login(link) ||
		!open_amqp_channel(link) || !link->duty->set_up(link))
		return false;
	set_timeouts(link, HANDSHAKE_TIMEOUT_S, REQUEST_TIMEOUT_S);
	atomic_store(&link->bus->frame_max, amqp_get_frame_max(link->state));
	set_served(link, true);
	return true;
}

void rabbitmq_link_disconnect(struct rabbitmq_link *link, bool in_order)
{
	set_timeouts(link, GOODBYE_TIMEOUT_S, GOODBYE_TIMEOUT_S);
	if (in_order)
		amqp_connection_close(link->state, AMQP_REPLY_SUCCESS);
	pthread_mutex_lock(&link->lock);
	if (link->cut_fd >= 0)
		close(link->cut_fd);
	link->cut_fd = -1;
	link->is_served = false;
	pthread_mutex_unlock(&link->lock);
	amqp_destroy_connection(link->state);
	link->state = NULL;
}

/* ---- waiting ----------------------------------------------------------------------------- */

static bool take_wake(struct rabbitmq_link *link)
{
	uint64_t times;

	return read(link->wake_fd, &times, sizeof(times)) == sizeof(times);
}

/* Waits until there is something to read, the link is woken, or a heartbeat may be due, but not
 * beyond monotonic time `until_ns`. */
static void sleep_until(struct rabbitmq_link *link, int64_t until_ns)
{
	struct pollfd fds[] = {
		{.fd = amqp_get_sockfd(link->state), .events = POLLIN},
		{.fd = link->wake_fd, .events = POLLIN},
	};
	int most_ms = link->bus->url.heartbeat_s * 250;

	poll(fds, 2, steady_ms_until(until_ns, most_ms));
}

enum rabbitmq_event rabbitmq_link_wait(
	struct rabbitmq_link *link, amqp_frame_t *frame, int64_t until_ns)
{
	const struct timeval at_once = {0};

	amqp_maybe_release_buffers(link->state);
	for (;;) {
		int code = amqp_simple_wait_frame_noblock(link->state, frame, &at_once);

		if (code == AMQP_STATUS_OK) {
			if (frame->frame_type != AMQP_FRAME_METHOD ||
				!is_close(&frame->payload.method))
				return RABBITMQ_FRAME;
			explain_close(link, &frame->payload.method);
			return RABBITMQ_GONE;
		}
		if (code != AMQP_STATUS_TIMEOUT) {
			rabbitmq_link_explain(link, "%s", amqp_error_string2(code));
			return RABBITMQ_GONE;
		}
		if (take_wake(link))
			return RABBITMQ_WOKEN;
		if (clock_steady_ns(&clock_system) >= until_ns)
			return RABBITMQ_QUIET;
		sleep_until(link, until_ns);
	}
}

void rabbitmq_link_pause(struct rabbitmq_link *link, int ms)
{
	struct pollfd fd = {.fd = link->wake_fd, .events = POLLIN};

	poll(&fd, 1, ms);
	take_wake(link);
}
