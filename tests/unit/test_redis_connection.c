/* A round trip to Redis ends at its deadline, even if a reply keeps arriving byte by byte. */
#include "check.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapters/cache/redis/redis_internal.h"
#include "base/clock.h"
#include "base/slice.h"
#include "waiting.h"

#define REPLY "$500\r\n"
#define REPLY_LEN 500

/* A server that answers the first command with one reply, one byte at a time. */
struct trickler {
	int listener;
	pthread_t thread;
	int64_t pause_ms;
	size_t sent; /* bytes of the reply; valid after the thread has ended */
};

static bool send_text(int socket, const char *text, size_t len)
{
	return send(socket, text, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static void *trickle(void *context)
{
	struct trickler *trickler = context;
	char command[256];
	int client = accept(trickler->listener, NULL, NULL);

	assert_true(client >= 0);
	assert_true(recv(client, command, sizeof(command), 0) > 0);
	assert_true(send_text(client, REPLY, strlen(REPLY)));
	while (trickler->sent < REPLY_LEN && send_text(client, "x", 1)) {
		trickler->sent++;
		nap_ms(trickler->pause_ms);
	}
	send_text(client, "\r\n", 2);
	close(client);
	return NULL;
}

static struct redis_place trickler_start(struct trickler *trickler)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	struct redis_place place = {.host = "127.0.0.1"};

	trickler->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(trickler->listener >= 0);
	assert_int_equal(bind(trickler->listener, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(trickler->listener, 1), 0);
	assert_int_equal(getsockname(trickler->listener, (struct sockaddr *)&address, &len), 0);
	assert_int_equal(pthread_create(&trickler->thread, NULL, trickle, trickler), 0);
	place.port = ntohs(address.sin_port);
	return place;
}

static void trickler_wait(struct trickler *trickler)
{
	assert_int_equal(pthread_join(trickler->thread, NULL), 0);
	close(trickler->listener);
}

static redisReply *ping(struct redis_connection *connection, struct redis_place place)
{
	const struct slice words[] = {SLICE("PING")};

	assert_true(redis_connection_dial(connection, &place));
	redis_begin(connection);
	assert_true(redis_send(connection, words, 1));
	return redis_receive(connection);
}

static void a_trickling_reply_ends_at_the_deadline(void **state)
{
	struct trickler trickler = {.pause_ms = 10};
	struct redis_connection connection = {.timeout_ms = 200};

	(void)state;
	assert_null(ping(&connection, trickler_start(&trickler)));
	assert_string_equal(connection.why, "no reply in time");
	assert_null(connection.context);
	trickler_wait(&trickler);
	assert_true(
		trickler.sent < REPLY_LEN); /* the connection was closed before the reply ended */
}

static void a_slow_reply_within_the_deadline_is_received(void **state)
{
	struct trickler trickler = {.pause_ms = 0};
	struct redis_connection connection = {.timeout_ms = HANG_MS};
	redisReply *reply;

	(void)state;
	reply = ping(&connection, trickler_start(&trickler));
	assert_non_null(reply);
	assert_int_equal(reply->type, REDIS_REPLY_STRING);
	assert_int_equal(reply->len, REPLY_LEN);
	freeReplyObject(reply);
	trickler_wait(&trickler);
	redis_connection_close(&connection);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_trickling_reply_ends_at_the_deadline),
		cmocka_unit_test(a_slow_reply_within_the_deadline_is_received),
	};

	return cmocka_run_group_tests_name("connections to redis", tests, NULL, NULL);
}
