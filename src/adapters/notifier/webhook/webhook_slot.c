/*
 * Handles one notice in transit: its request, its response and its result.
 *
 * A response decides the fate as soon as its header is complete, whatever happens to its body. This
 * file writes its own error texts, because libcurl's error buffer contains the host and the URL.
 * Invariant: a slot that is free or settled has no `headers`.
 */
#include "adapters/notifier/webhook/webhook_slot.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "adapters/notifier/webhook/webhook_notifier.h"
#include "base/arena.h"
#include "base/clock.h"

#define HEADER_VALUE_MAX 512
#define RETRY_AFTER_MAX_S (24 * 3600)

/* ---- the response ------------------------------------------------------------------------ */

/*
 * libcurl calls this for each header line of each response, and for trailers. Sets the status at
 * the empty line that follows the header lines. Ignores responses with status 1xx, because another
 * response follows.
 */
static size_t on_header(char *line, size_t size, size_t count, void *context)
{
	struct webhook_slot *slot = context;
	long status = 0;

	if (count == 0 || (line[0] != '\r' && line[0] != '\n'))
		return size * count;
	curl_easy_getinfo(slot->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status >= 200)
		slot->status = status;
	return size * count;
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
	struct webhook_slot *slot = context;

	(void)data;
	slot->received += size * count;
	return slot->received <= WEBHOOK_BODY_MAX ? size * count : CURL_WRITEFUNC_ERROR;
}

/* ---- the address ------------------------------------------------------------------------- */

static bool is_link_local_v4(const unsigned char address[4])
{
	return address[0] == 169 && address[1] == 254;
}

/*
 * Returns true if webhooks must not use this address. Cloud providers serve metadata at link-local
 * addresses, and any program on this machine can read credentials there; Amazon also uses
 * fd00:ec2::254. The check runs after name resolution, so no host name can bypass it.
 */
static bool is_forbidden(const struct curl_sockaddr *resolved)
{
	static const unsigned char metadata_v6[16] = {
		0xfd, 0, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54};
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} address;
	const unsigned char *v6 = address.v6.sin6_addr.s6_addr;

	if (resolved->addrlen > sizeof(address))
		return true;
	memcpy(&address, &resolved->addr, resolved->addrlen);
	if (resolved->family == AF_INET)
		return is_link_local_v4((const unsigned char *)&address.v4.sin_addr);
	if (resolved->family != AF_INET6)
		return true;
	if (memcmp(v6, mapped, sizeof(mapped)) == 0)
		return is_link_local_v4(v6 + sizeof(mapped));
	return (v6[0] == 0xfe && (v6[1] & 0xc0) == 0x80) ||
	       memcmp(v6, metadata_v6, sizeof(metadata_v6)) == 0;
}

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct webhook_slot *slot = context;

	(void)purpose;
	if (!is_forbidden(address))
		return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	slot->is_forbidden = true;
	return CURL_SOCKET_BAD;
}

/* ---- the handle -------------------------------------------------------------------------- */

#define SET(slot, option, value)                                                                   \
	do {                                                                                       \
		CURLcode set_code = curl_easy_setopt((slot)->easy, (option), (value));             \
		assert(set_code == CURLE_OK);                                                      \
		(void)set_code;                                                                    \
	} while (0)

static void set_limits(struct webhook_slot *slot)
{
	SET(slot, CURLOPT_TIMEOUT_MS, slot->settings->total_ms);
	SET(slot, CURLOPT_CONNECTTIMEOUT_MS, slot->settings->connect_ms);
	SET(slot, CURLOPT_PROTOCOLS_STR, "http,https");
	SET(slot, CURLOPT_FOLLOWLOCATION, 0L);
	SET(slot, CURLOPT_PROXY, ""); /* no proxy, not even http_proxy from the environment */
	SET(slot, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(slot, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	SET(slot, CURLOPT_NOSIGNAL, 1L);
	/*
	 * Without this option, libcurl would continue to wait for a silent name server even after
	 * the timeout. It would do so inside curl_multi_perform() and thus delay all other notices.
	 */
	SET(slot, CURLOPT_QUICK_EXIT, 1L);
}

void slot_init(struct webhook_slot *slot, const struct slot_settings *settings)
{
	slot->settings = settings;
	slot->easy = curl_easy_init();
	assert(slot->easy);
	SET(slot, CURLOPT_PRIVATE, (void *)slot);
	SET(slot, CURLOPT_URL, settings->url);
	SET(slot, CURLOPT_USERAGENT, "quipu/" QUIPU_VERSION);
	SET(slot, CURLOPT_POST, 1L);
	SET(slot, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	SET(slot, CURLOPT_OPENSOCKETDATA, (void *)slot);
	SET(slot, CURLOPT_HEADERFUNCTION, on_header);
	SET(slot, CURLOPT_HEADERDATA, (void *)slot);
	SET(slot, CURLOPT_WRITEFUNCTION, on_body);
	SET(slot, CURLOPT_WRITEDATA, (void *)slot);
	set_limits(slot);
}

static void free_headers(struct webhook_slot *slot)
{
	SET(slot, CURLOPT_HTTPHEADER, NULL);
	curl_slist_free_all(slot->headers);
	slot->headers = NULL;
}

void slot_release(struct webhook_slot *slot)
{
	free_headers(slot);
	curl_easy_cleanup(slot->easy);
}

struct webhook_slot *slot_of(CURL *easy)
{
	char *slot = NULL;

	curl_easy_getinfo(easy, CURLINFO_PRIVATE, &slot);
	assert(slot && ((struct webhook_slot *)(void *)slot)->easy == easy);
	return (struct webhook_slot *)(void *)slot;
}

/* ---- the request ------------------------------------------------------------------------- */

/* Returns true if the value can be sent in a header unchanged. */
static bool fits_header(struct slice value)
{
	for (size_t i = 0; i < value.len; i++) {
		if (value.data[i] <= ' ' || value.data[i] > '~')
			return false;
	}
	return value.len > 0 && value.len <= HEADER_VALUE_MAX;
}

static void add_header(struct webhook_slot *slot, const char *name, struct slice value)
{
	char line[HEADER_VALUE_MAX + 64];
	struct curl_slist *longer;

	snprintf(line, sizeof(line), "%s: %.*s", name, (int)value.len, value.data);
	longer = curl_slist_append(slot->headers, line);
	assert(longer);
	slot->headers = longer;
}

/* Adds the headers of Standard Webhooks, with a signature if there are secrets. */
static void add_signature(struct webhook_slot *slot, const struct notice *notice)
{
	const struct webhook_content content = {
		.id = notice->id,
		.timestamp_s = clock_wall_us(&clock_system) / 1000000,
		.body = notice->body,
	};
	char text[WEBHOOK_SIGNATURES_SIZE];

	add_header(slot, "webhook-id", notice->id);
	snprintf(text, sizeof(text), "%lld", (long long)content.timestamp_s);
	add_header(slot, "webhook-timestamp", slice_of(text));
	if (!slot->settings->secrets)
		return;
	webhook_secrets_sign(slot->settings->secrets, &content, text);
	add_header(slot, "webhook-signature", slice_of(text));
}

bool slot_load(struct webhook_slot *slot, const struct notice *notice)
{
	assert(!slot->headers);
	slot->result = (struct notice_result){.tag = notice->tag};
	slot->is_forbidden = false;
	slot->status = 0;
	slot->received = 0;
	if (!fits_header(notice->id)) {
		slot_refuse(slot, NOTICE_REFUSED, "the id cannot be sent in a header");
		return false;
	}
	add_header(slot, "Content-Type", slice_of("application/json"));
	add_header(slot, "Idempotency-Key", notice->id);
	add_signature(slot, notice);
	if (fits_header(notice->trace))
		add_header(slot, "traceparent", notice->trace);
	/* An empty value makes libcurl omit the header. With "Expect: 100-continue", libcurl would
	 * wait a second for receivers that do not support it. */
	add_header(slot, "Expect", slice_of(""));
	SET(slot, CURLOPT_HTTPHEADER, slot->headers);
	SET(slot, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)notice->body.len);
	SET(slot, CURLOPT_COPYPOSTFIELDS, notice->body.len > 0 ? notice->body.data : "");
	return true;
}

/* ---- the result -------------------------------------------------------------------------- */

static enum notice_fate fate_of(long status)
{
	if (status >= 200 && status <= 299)
		return NOTICE_SENT;
	if (status < 400 || status > 499 || status == 408 || status == 425 || status == 429)
		return NOTICE_FAILED;
	return NOTICE_REFUSED;
}

/* Returns true if no connection was established and the receiver has therefore received no part of
 * the notice. */
static bool was_unconnected(const struct webhook_slot *slot)
{
	curl_off_t ready_us = 0;

	curl_easy_getinfo(slot->easy, CURLINFO_PRETRANSFER_TIME_T, &ready_us);
	return ready_us == 0;
}

static void write_timeout(const struct webhook_slot *slot, char *error)
{
	bool is_connected = !was_unconnected(slot);
	long limit_ms = is_connected ? slot->settings->total_ms : slot->settings->connect_ms;

	snprintf(error, NOTICE_ERROR_SIZE, "no %s within %ld%s",
		is_connected ? "answer" : "connection",
		limit_ms % 1000 == 0 ? limit_ms / 1000 : limit_ms,
		limit_ms % 1000 == 0 ? " s" : " ms");
}

static void write_unconnected(const struct webhook_slot *slot, char *error)
{
	long number = 0;

	curl_easy_getinfo(slot->easy, CURLINFO_OS_ERRNO, &number);
	if (slot->is_forbidden)
		snprintf(error, NOTICE_ERROR_SIZE,
			"the host has a link-local address, which webhooks may not use");
	else if (number == ECONNREFUSED)
		snprintf(error, NOTICE_ERROR_SIZE, "connection refused");
	else
		snprintf(error, NOTICE_ERROR_SIZE, "no connection: %s",
			number ? strerror((int)number) : "unknown reason");
}

static void write_error(const struct webhook_slot *slot, CURLcode code, char *error)
{
	switch (code) {
	case CURLE_OPERATION_TIMEDOUT:
		write_timeout(slot, error);
		break;
	case CURLE_COULDNT_CONNECT:
		write_unconnected(slot, error);
		break;
	case CURLE_COULDNT_RESOLVE_HOST:
		snprintf(error, NOTICE_ERROR_SIZE, "the name of the host is not known");
		break;
	case CURLE_PEER_FAILED_VERIFICATION:
		snprintf(error, NOTICE_ERROR_SIZE, "the certificate is not trusted");
		break;
	case CURLE_OK:
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
		snprintf(error, NOTICE_ERROR_SIZE, "the connection was lost before the answer");
		break;
	default:
		snprintf(error, NOTICE_ERROR_SIZE, "%s", curl_easy_strerror(code));
	}
}

/* Returns how long to wait according to Retry-After, which contains seconds or a date. */
static int64_t retry_after_us(const struct webhook_slot *slot)
{
	curl_off_t seconds = 0;

	curl_easy_getinfo(slot->easy, CURLINFO_RETRY_AFTER, &seconds);
	if (seconds > RETRY_AFTER_MAX_S)
		seconds = RETRY_AFTER_MAX_S;
	return seconds * 1000000;
}

void slot_settle(struct webhook_slot *slot, CURLcode code)
{
	struct notice_result *result = &slot->result;

	free_headers(slot);
	result->fate = fate_of(slot->status);
	if (slot->status == 0) {
		write_error(slot, code, result->error);
		result->is_unreachable = was_unconnected(slot);
	}
	if (slot->status != 0 && result->fate != NOTICE_SENT)
		snprintf(result->error, sizeof(result->error), "HTTP %ld", slot->status);
	if (slot->status == 429 || slot->status == 503)
		result->retry_after_us = retry_after_us(slot);
}

void slot_refuse(struct webhook_slot *slot, enum notice_fate fate, const char *error)
{
	free_headers(slot);
	slot->result.fate = fate;
	snprintf(slot->result.error, sizeof(slot->result.error), "%s", error);
}
