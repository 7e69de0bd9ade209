/*
 * Opens one connection to Redis, makes round trips with a deadline, and explains failures.
 *
 * hiredis has a timeout for each read, but none for a whole round trip, so this file checks the
 * deadline before it waits for each reply. After any failure the connection is closed, because
 * replies that arrive later could not be matched to their commands. Invariant: a function that
 * returns a failure has closed the connection and set `why`, which never contains a secret. The
 * only exception is redis_connection_address().
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "adapters/cache/redis/redis_internal.h"
#include "base/clock.h"

static struct timeval timeval_of(int ms)
{
	return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

void redis_connection_close(struct redis_connection *connection)
{
	if (connection->context)
		redisFree(connection->context);
	connection->context = NULL;
}

/*
 * Closes the connection and sets `why` to the error text of hiredis. If hiredis has no error text,
 * or calls a timeout "Resource temporarily unavailable", sets `why` to `fallback` instead.
 */
static void break_off(struct redis_connection *connection, const char *fallback)
{
	const redisContext *context = connection->context;
	bool is_silence = !context || (context->err == REDIS_ERR_IO && errno == EAGAIN);
	const char *words = !is_silence && context->errstr[0] ? context->errstr : fallback;

	snprintf(connection->why, sizeof(connection->why), "%s", words);
	redis_connection_close(connection);
}

/* ---- one round trip ---------------------------------------------------------------------- */

void redis_begin(struct redis_connection *connection)
{
	assert(connection->context);
	connection->deadline_ns =
		clock_steady_ns(&clock_system) + connection->timeout_ms * NS_PER_MS;
}

bool redis_send(struct redis_connection *connection, const struct slice *words, size_t count)
{
	const char *data[REDIS_WORDS_MAX];
	size_t lens[REDIS_WORDS_MAX];

	assert(count > 0 && count <= REDIS_WORDS_MAX);
	for (size_t i = 0; i < count; i++) {
		data[i] = words[i].data;
		lens[i] = words[i].len;
	}
	if (redisAppendCommandArgv(connection->context, (int)count, data, lens) == REDIS_OK)
		return true;
	break_off(connection, "out of memory");
	return false;
}

/*
 * Writes some of the bytes that redis_send() has queued. If all of them are already written, reads
 * some bytes instead. Returns false if the connection has failed. The socket's timeout ends a write
 * or read that makes no progress.
 */
static bool exchange_some(redisContext *context, int *written)
{
	return (*written ? redisBufferRead(context) : redisBufferWrite(context, written)) ==
	       REDIS_OK;
}

/*
 * redisGetReply() is not used, because it has no deadline: a reply that arrives byte by byte would
 * occupy the thread for as long as the bytes keep coming. A reply that hiredis has already read
 * completely is accepted even after the deadline.
 */
redisReply *redis_receive(struct redis_connection *connection)
{
	redisContext *context = connection->context;
	void *reply = NULL;
	int written = 0;

	while (redisGetReplyFromReader(context, &reply) == REDIS_OK) {
		if (reply)
			return reply;
		if (clock_steady_ns(&clock_system) > connection->deadline_ns ||
			!exchange_some(context, &written)) {
			break_off(connection, "no reply in time");
			return NULL;
		}
	}
	break_off(connection, "the reply is not in Redis's protocol");
	return NULL;
}

bool redis_is_error(const redisReply *reply, const char *code)
{
	size_t len = strlen(code);

	return reply->type == REDIS_REPLY_ERROR && reply->len >= len &&
	       memcmp(reply->str, code, len) == 0 && (reply->len == len || reply->str[len] == ' ');
}

/* Copies only the code of an error to `why`, because the error's text may repeat the command with
 * the password. */
void redis_connection_refuse(
	struct redis_connection *connection, const char *what, const redisReply *reply)
{
	struct slice text = SLICE("an unexpected reply");

	if (reply->type == REDIS_REPLY_ERROR) {
		text = slice_make(reply->str, reply->len);
		text = slice_cut(&text, ' ');
	}
	snprintf(connection->why, sizeof(connection->why), "%s: %.*s", what, (int)text.len,
		text.data);
	redis_connection_close(connection);
}

bool redis_receive_ok(struct redis_connection *connection, const char *what, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		redisReply *reply = redis_receive(connection);
		bool ok = reply && reply->type != REDIS_REPLY_ERROR;

		if (reply && !ok)
			redis_connection_refuse(connection, what, reply);
		freeReplyObject(reply);
		if (!ok)
			return false;
	}
	return true;
}

/* ---- connecting -------------------------------------------------------------------------- */

bool redis_send_login(struct redis_connection *connection, const struct redis_url *url)
{
	const struct slice user = slice_of(url->user), password = slice_of(url->password);
	const struct slice auth[] = {SLICE("AUTH"), user.len > 0 ? user : password, password};

	return redis_send(connection, auth, user.len > 0 ? 3 : 2);
}

static bool send_introduction(struct redis_connection *connection, const struct redis_url *url)
{
	const struct slice select[] = {SLICE("SELECT"), slice_of(url->db)};

	if (url->password[0] != '\0' && !redis_send_login(connection, url))
		return false;
	return url->db[0] == '\0' || redis_send(connection, select, 2);
}

static bool receive_introduction(struct redis_connection *connection, const struct redis_url *url)
{
	if (url->password[0] != '\0' && !redis_receive_ok(connection, "AUTH", 1))
		return false;
	return url->db[0] == '\0' || redis_receive_ok(connection, "SELECT", 1);
}

static bool send_scripts(struct redis_connection *connection)
{
	for (int i = 0; i < REDIS_SCRIPTS; i++) {
		const struct slice words[] = {
			SLICE("SCRIPT"), SLICE("LOAD"), slice_of(redis_script_texts[i])};

		if (!redis_send(connection, words, 3))
			return false;
	}
	return true;
}

static bool receive_script(struct redis_connection *connection, char sha[REDIS_SHA_LEN])
{
	redisReply *reply = redis_receive(connection);
	bool ok = reply && reply->type == REDIS_REPLY_STRING && reply->len == REDIS_SHA_LEN;

	if (ok)
		memcpy(sha, reply->str, REDIS_SHA_LEN);
	else if (reply)
		redis_connection_refuse(connection, "SCRIPT LOAD", reply);
	freeReplyObject(reply);
	return ok;
}

static bool receive_scripts(struct redis_connection *connection)
{
	for (int i = 0; i < REDIS_SCRIPTS; i++) {
		if (!receive_script(connection, connection->shas[i]))
			return false;
	}
	return true;
}

/*
 * Checks that the server accepts writes. Without this check, the cache would start to use a server
 * that replies to PING but refuses writes (out of memory, read-only replica, disk error), and every
 * request would fail.
 *
 * The trial write is a SETRANGE with no bytes. The server checks this command like any other write,
 * but the command changes nothing. The key is the name of the limit of an empty user id: no user
 * has this limit, but the name has the usual prefix, so that ACLs allow the command. The check
 * passes despite an ACL error, or an error about the type of an existing value, because neither
 * means that the server refuses all writes.
 */
static bool send_trial_write(struct redis_connection *connection)
{
	char space[REDIS_NAME_SIZE];
	const struct slice nobody = SLICE("");
	const struct slice words[] = {SLICE("SETRANGE"),
		redis_name(REDIS_NAME_LIMIT, nobody, space), SLICE("0"), SLICE("")};

	return redis_send(connection, words, 4);
}

static bool receive_trial_write(struct redis_connection *connection)
{
	redisReply *reply = redis_receive(connection);
	bool ok = reply && (reply->type == REDIS_REPLY_INTEGER || redis_is_error(reply, "NOPERM") ||
				   redis_is_error(reply, "WRONGTYPE"));

	if (reply && !ok)
		redis_connection_refuse(connection, "a trial write", reply);
	freeReplyObject(reply);
	return ok;
}

/* Authenticates, selects the database, loads the scripts and tries a write, in one round trip. */
static bool shake_hands(struct redis_connection *connection, const struct redis_url *url)
{
	redis_begin(connection);
	return send_introduction(connection, url) && send_scripts(connection) &&
	       send_trial_write(connection) && receive_introduction(connection, url) &&
	       receive_scripts(connection) && receive_trial_write(connection);
}

bool redis_connection_dial(struct redis_connection *connection, const struct redis_place *place)
{
	redisContext *context;

	assert(!connection->context);
	context = redisConnectWithTimeout(
		place->host, place->port, timeval_of(connection->timeout_ms));
	connection->context = context;
	if (context && !context->err &&
		redisSetTimeout(context, timeval_of(connection->timeout_ms)) == REDIS_OK)
		return true;
	break_off(connection, "cannot connect");
	return false;
}

bool redis_connection_open(struct redis_connection *connection, const struct redis_place *place,
	const struct redis_url *url)
{
	return redis_connection_dial(connection, place) && shake_hands(connection, url);
}

/*
 * If the server has restarted or closed an idle connection, the socket is readable. This check
 * costs one system call. Without it, the next command would get no reply, and the whole cache would
 * count as away.
 */
bool redis_connection_is_quiet(const struct redis_connection *connection)
{
	char byte;

	return connection->context &&
	       recv(connection->context->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
	       errno == EAGAIN;
}

bool redis_connection_address(
	const struct redis_connection *connection, char address[REDIS_HOST_SIZE])
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return getpeername(connection->context->fd, (struct sockaddr *)&peer, &len) == 0 &&
	       getnameinfo((struct sockaddr *)&peer, len, address, REDIS_HOST_SIZE, NULL, 0,
		       NI_NUMERICHOST) == 0;
}
