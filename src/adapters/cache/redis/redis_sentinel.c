/*
 * Queries Redis Sentinel for the address of the master.
 *
 * Quipu does not look for the master by trying the servers. An old master that comes back accepts
 * writes until the Sentinels have turned it into a replica; until then, some processes would use
 * the old master and others the new one, and they would disagree about cached values.
 */
#include <stdio.h>

#include "adapters/cache/redis/redis_internal.h"
#include "base/text.h"

static bool read_place(const redisReply *reply, struct redis_place *place)
{
	const redisReply *host, *port;
	int64_t number;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		return false;
	host = reply->element[0];
	port = reply->element[1];
	if (host->type != REDIS_REPLY_STRING || host->len >= sizeof(place->host) ||
		port->type != REDIS_REPLY_STRING ||
		!text_to_int(slice_make(port->str, port->len), &number) || number < 1 ||
		number > 65535)
		return false;
	snprintf(place->host, sizeof(place->host), "%s", host->str);
	place->port = (int)number;
	return true;
}

/* Queries the connected Sentinel for the master's address. Closes the connection on failure. */
static bool ask(struct redis_connection *connection, const struct redis_url *url,
	struct redis_place *master)
{
	const struct slice words[] = {
		SLICE("SENTINEL"), SLICE("GET-MASTER-ADDR-BY-NAME"), slice_of(url->master)};
	redisReply *reply;
	bool ok;

	redis_begin(connection);
	if (!redis_send(connection, words, 3))
		return false;
	reply = redis_receive(connection);
	ok = reply && read_place(reply, master);
	if (reply && !ok)
		redis_connection_refuse(connection, "asking Sentinel for the master", reply);
	freeReplyObject(reply);
	return ok;
}

/*
 * Logs in with the password of Redis, because Sentinels often have the same password. A Sentinel
 * without a password refuses the login, which does not matter; a Sentinel with another password
 * refuses the next request.
 */
static bool log_in(struct redis_connection *connection, const struct redis_url *url)
{
	redisReply *reply;
	bool ok;

	if (url->password[0] == '\0')
		return true;
	redis_begin(connection);
	if (!redis_send_login(connection, url))
		return false;
	reply = redis_receive(connection);
	ok = reply != NULL;
	freeReplyObject(reply);
	return ok;
}

bool redis_sentinel_find(struct redis_connection *connection, const struct redis_url *url,
	struct redis_place *master)
{
	if (redis_connection_is_quiet(connection) && ask(connection, url, master))
		return true;
	for (size_t i = 0; i < url->place_count; i++) {
		redis_connection_close(connection);
		if (redis_connection_dial(connection, &url->places[i]) && log_in(connection, url) &&
			ask(connection, url, master))
			return true;
	}
	return false;
}
