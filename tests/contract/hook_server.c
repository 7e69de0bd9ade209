/*
 * A small HTTP server that misbehaves on demand. Each connection has a thread, so that a request
 * that hangs does not delay the others. The Idempotency-Key of a request decides what happens to
 * it; hook_server.h lists the ways.
 */
#include "hook_server.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"

#include "waiting.h"

#define REQUESTS_MAX 1024
#define CONNECTIONS_MAX 1024
#define REQUEST_SIZE (256 * 1024)
#define PACE_MS 20

struct connection {
	struct hook_server *server;
	pthread_t thread;
	int number;
	int fd;
};

struct hook_server {
	SSL_CTX *tls; /* NULL: plain HTTP */
	pthread_t thread;
	int fd;
	int port;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	bool stopping;
	struct connection connections[CONNECTIONS_MAX];
	int connection_count;
	struct hook_request requests[REQUESTS_MAX];
	size_t request_count;
};

/* ---- answers ----------------------------------------------------------------------------- */

static bool put(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t sent = send(fd, data, len, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		data += sent;
		len -= (size_t)sent;
	}
	return true;
}

static bool put_text(int fd, const char *text)
{
	return put(fd, text, strlen(text));
}

static bool put_status(int fd, const char *status)
{
	bool empty = strcmp(status, "204") == 0 || strcmp(status, "304") == 0;
	char answer[256];

	snprintf(answer, sizeof(answer), "HTTP/1.1 %s Whatever\r\n%s", status,
		empty ? "\r\n" : "Content-Length: 2\r\n\r\n{}");
	return put_text(fd, answer);
}

static bool put_body(int fd, size_t len)
{
	char *body = qp_calloc(1, len), head[64];
	bool ok;

	snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", len);
	ok = put_text(fd, head) && put(fd, body, len);
	free(body);
	return ok;
}

/* What follows the text of an odd answer. */
enum sequel { GO_ON, HANG_UP, SAY_NOTHING, BYTE_BY_BYTE, FOR_EVER };

#define OK_HEAD "HTTP/1.1 200 OK\r\n"

static const struct {
	const char *name;
	const char *text;
	enum sequel then;
	const char *piece; /* that is repeated for ever */
} odd_answers[] = {
	{"hang", "", SAY_NOTHING, NULL},
	{"close", "", HANG_UP, NULL},
	{"cuthead", OK_HEAD "Content-Le", HANG_UP, NULL},
	{"cutbody", OK_HEAD "Content-Length: 100\r\n\r\n{", HANG_UP, NULL},
	{"trickle", OK_HEAD "X-Long: ", BYTE_BY_BYTE, NULL},
	{"dribble", OK_HEAD "Content-Length: 60000\r\n\r\n", BYTE_BY_BYTE, NULL},
	{"headers", OK_HEAD, FOR_EVER, "X-More: and more\r\n"},
	{"endless", OK_HEAD "Transfer-Encoding: chunked\r\n\r\n", FOR_EVER, "8\r\nand more\r\n"},
	{"early",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		GO_ON, NULL},
	{"earlycut", "HTTP/1.1 100 Continue\r\n\r\n", HANG_UP, NULL},
	{"garbage", "220 mail.example ESMTP\r\n\r\n", HANG_UP, NULL},
	{"later", "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n",
		GO_ON, NULL},
	{"never", "HTTP/1.1 503 No\r\nRetry-After: 99999999\r\nContent-Length: 0\r\n\r\n", GO_ON,
		NULL},
	{"moved", "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", GO_ON,
		NULL},
};

/* Returns when the other side has enough, or the server stops. */
static void go_on(int fd, enum sequel then, const char *piece)
{
	struct pollfd gone = {.fd = fd, .events = POLLIN};

	if (then == SAY_NOTHING)
		poll(&gone, 1, -1);
	while (then == BYTE_BY_BYTE && poll(&gone, 1, PACE_MS) == 0 && put_text(fd, "x"))
		;
	while (then == FOR_EVER && put_text(fd, piece))
		;
}

/* Whether the connection is kept. */
static bool answer(int fd, const char *what)
{
	for (size_t i = 0; i < sizeof(odd_answers) / sizeof(odd_answers[0]); i++) {
		if (strcmp(what, odd_answers[i].name) != 0)
			continue;
		if (put_text(fd, odd_answers[i].text))
			go_on(fd, odd_answers[i].then, odd_answers[i].piece);
		return odd_answers[i].then == GO_ON;
	}
	if (strcmp(what, "full") == 0 || strcmp(what, "over") == 0)
		return put_body(fd, strcmp(what, "full") == 0 ? 65536 : 65537);
	return put_status(fd, what);
}

/* ---- requests ---------------------------------------------------------------------------- */

bool hook_request_header(
	const struct hook_request *request, const char *name, char *value, size_t size)
{
	size_t len = strlen(name);

	for (const char *line = strchr(request->head, '\n'); line; line = strchr(line + 1, '\n')) {
		const char *start = line + 1;

		if (strncasecmp(start, name, len) != 0 || start[len] != ':')
			continue;
		start += len + 1 + strspn(start + len + 1, " ");
		snprintf(value, size, "%.*s", (int)strcspn(start, "\r\n"), start);
		return true;
	}
	return false;
}

/* Reads one request; false: there is none. */
static bool read_request(int fd, struct hook_request *request)
{
	char *data = qp_calloc(1, REQUEST_SIZE + 1), value[32];
	size_t len = 0, head_len = 0, body_len = 0;
	ssize_t got;

	while (head_len == 0 || len < head_len + body_len) {
		char *end;

		got = recv(fd, data + len, REQUEST_SIZE - len, 0);
		if (got <= 0) {
			free(data);
			return false;
		}
		len += (size_t)got;
		end = head_len == 0 ? strstr(data, "\r\n\r\n") : NULL;
		if (!end)
			continue;
		head_len = (size_t)(end - data) + 4;
		request->head = strndup(data, head_len);
		body_len = hook_request_header(request, "content-length", value, sizeof(value))
				   ? strtoul(value, NULL, 10)
				   : 0;
	}
	request->body = strndup(data + head_len, body_len);
	request->body_len = body_len;
	free(data);
	return true;
}

static void record(struct connection *connection, struct hook_request *request)
{
	struct hook_server *server = connection->server;

	request->connection = connection->number;
	pthread_mutex_lock(&server->lock);
	assert(server->request_count < REQUESTS_MAX);
	server->requests[server->request_count++] = *request;
	pthread_cond_broadcast(&server->changed);
	pthread_mutex_unlock(&server->lock);
}

static void *serve(void *argument)
{
	struct connection *connection = argument;
	struct hook_request request = {0};
	char what[128];
	bool goes_on = true;

	while (goes_on && read_request(connection->fd, &request)) {
		if (!hook_request_header(&request, "idempotency-key", what, sizeof(what)))
			what[0] = '\0';
		what[strcspn(what, ".")] = '\0';
		record(connection, &request);
		goes_on = answer(connection->fd, what);
	}
	shutdown(connection->fd, SHUT_RDWR);
	return NULL;
}

/* The other side hangs up in the handshake, because it does not trust us. */
static void *serve_tls(void *argument)
{
	struct connection *connection = argument;
	SSL *ssl = SSL_new(connection->server->tls);

	SSL_set_fd(ssl, connection->fd);
	SSL_accept(ssl);
	SSL_free(ssl);
	shutdown(connection->fd, SHUT_RDWR);
	return NULL;
}

/* ---- the server -------------------------------------------------------------------------- */

static void take_connection(struct hook_server *server, int fd)
{
	struct connection *connection = &server->connections[server->connection_count];

	assert(server->connection_count < CONNECTIONS_MAX);
	server->connection_count++;
	connection->server = server;
	connection->number = server->connection_count;
	connection->fd = fd;
	pthread_create(&connection->thread, NULL, server->tls ? serve_tls : serve, connection);
}

static void *accept_all(void *argument)
{
	struct hook_server *server = argument;
	int fd;

	while ((fd = accept(server->fd, NULL, NULL)) >= 0) {
		pthread_mutex_lock(&server->lock);
		if (server->stopping)
			close(fd);
		else
			take_connection(server, fd);
		pthread_mutex_unlock(&server->lock);
	}
	return NULL;
}

static void listen_on_loopback(struct hook_server *server)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);

	server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(server->fd, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(server->fd, 256), 0);
	assert_int_equal(getsockname(server->fd, (struct sockaddr *)&address, &len), 0);
	server->port = ntohs(address.sin_port);
}

/* A certificate for 127.0.0.1, signed by itself. */
static SSL_CTX *make_tls(void)
{
	SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
	EVP_PKEY *key = EVP_RSA_gen(2048);
	X509 *certificate = X509_new();
	X509_NAME *name = X509_get_subject_name(certificate);

	ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
	X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
	X509_NAME_add_entry_by_txt(
		name, "CN", MBSTRING_ASC, (const unsigned char *)"127.0.0.1", -1, -1, 0);
	X509_set_issuer_name(certificate, name);
	X509_set_pubkey(certificate, key);
	assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
	assert_int_equal(SSL_CTX_use_certificate(tls, certificate), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(tls, key), 1);
	X509_free(certificate);
	EVP_PKEY_free(key);
	return tls;
}

struct hook_server *hook_server_start(bool tls)
{
	struct hook_server *server = qp_calloc(1, sizeof(*server));

	pthread_mutex_init(&server->lock, NULL);
	pthread_cond_init(&server->changed, NULL);
	server->tls = tls ? make_tls() : NULL;
	listen_on_loopback(server);
	pthread_create(&server->thread, NULL, accept_all, server);
	return server;
}

void hook_server_stop(struct hook_server *server)
{
	pthread_mutex_lock(&server->lock);
	server->stopping = true;
	for (int i = 0; i < server->connection_count; i++)
		shutdown(server->connections[i].fd, SHUT_RDWR);
	pthread_mutex_unlock(&server->lock);
	shutdown(server->fd, SHUT_RDWR);
	pthread_join(server->thread, NULL);
	for (int i = 0; i < server->connection_count; i++) {
		pthread_join(server->connections[i].thread, NULL);
		close(server->connections[i].fd);
	}
	for (size_t i = 0; i < server->request_count; i++) {
		free(server->requests[i].head);
		free(server->requests[i].body);
	}
	SSL_CTX_free(server->tls);
	close(server->fd);
	pthread_cond_destroy(&server->changed);
	pthread_mutex_destroy(&server->lock);
	free(server);
}

int hook_server_port(const struct hook_server *server)
{
	return server->port;
}

size_t hook_server_count(struct hook_server *server)
{
	size_t count;

	pthread_mutex_lock(&server->lock);
	count = server->request_count;
	pthread_mutex_unlock(&server->lock);
	return count;
}

void hook_server_wait(struct hook_server *server, size_t count)
{
	struct timespec until;
	int failed = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += HANG_S;
	pthread_mutex_lock(&server->lock);
	while (server->request_count < count && failed == 0)
		failed = pthread_cond_timedwait(&server->changed, &server->lock, &until);
	pthread_mutex_unlock(&server->lock);
	assert_int_equal(failed, 0);
}

struct hook_request hook_server_request(struct hook_server *server, size_t index)
{
	struct hook_request request;

	pthread_mutex_lock(&server->lock);
	assert_true(index < server->request_count);
	request = server->requests[index];
	pthread_mutex_unlock(&server->lock);
	return request;
}
