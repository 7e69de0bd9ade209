/*
 * Every client has one libcurl handle, which sends one request after another. Clients that send at
 * the same time share a multi handle, which keeps their connections. The server is not trusted: an
 * answer must be a JSON object of limited length, and a link to the next page is followed only if
 * its target is a path on the same server. Error messages never contain passwords or API keys. They
 * name the server by `shown`, which is its address without user and password.
 */
#include "cli/client.h"

#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/uuid.h"

#define TOTAL_S 10
#define CONNECT_S 5
#define BODY_MAX (16 * 1024 * 1024)
#define KEY_MAX 512
#define KEY_VARIABLE "QUIPU_API_KEY"

struct client {
	CURL *easy;
	char *origin;                    /* http://user:password@host:port */
	char *shown;                     /* http://host:port */
	struct curl_slist *headers;      /* headers of every request, e.g. the API key */
	struct curl_slist *post_headers; /* all headers of the current POST, or NULL */
	CURLcode end;                    /* how the last transfer of client_group_post() ended */
	const char *ca_file;
	char detail[CURL_ERROR_SIZE]; /* libcurl's text for the last failure */

	struct arena arena; /* memory for the current answer */
	struct buffer body;
};

/* ---- finding the server ------------------------------------------------------------------ */

/* Writes a host in the form that a URL requires, with brackets around IPv6. If the host is an
 * address that means all interfaces, writes the loopback address instead. */
static void write_host(struct slice host, char *out, size_t size)
{
	if (slice_starts_with(host, "[") && host.len > 1)
		host = slice_make(host.data + 1, host.len - 2);
	if (slice_is(host, "0.0.0.0"))
		host = slice_of("127.0.0.1");
	if (slice_is(host, "::"))
		host = slice_of("::1");
	snprintf(out, size, memchr(host.data, ':', host.len) ? "[%.*s]" : "%.*s", (int)host.len,
		host.data);
}

static bool find_server(const struct settings *settings, char url[CLIENT_TARGET_SIZE], char *why)
{
	const char *listen = settings->listen;
	const char *colon = strrchr(listen, ':');
	char host[256];

	if (*settings->server) {
		snprintf(url, CLIENT_TARGET_SIZE, "%s", settings->server);
		return true;
	}
	if (!colon || colon == listen || !colon[1]) {
		snprintf(
			why, CLIENT_WHY_SIZE, "--listen must be host:port, such as 127.0.0.1:8080");
		return false;
	}
	if (strcmp(colon, ":0") == 0) {
		snprintf(why, CLIENT_WHY_SIZE,
			"--listen has port 0, which means a different port at every start; name "
			"the server with --server");
		return false;
	}
	write_host(slice_make(listen, (size_t)(colon - listen)), host, sizeof(host));
	snprintf(url, CLIENT_TARGET_SIZE, "%s://%s%s", *settings->tls_cert ? "https" : "http", host,
		colon);
	return true;
}

/* ---- finding the API key ----------------------------------------------------------------- */

/* Copies an API key, without trailing white space. Returns false if the key is empty, too long, or
 * has characters that an API key or a header must not contain. */
static bool take_key(struct slice text, char key[KEY_MAX])
{
	while (text.len > 0 && memchr(" \t\r\n", text.data[text.len - 1], 4))
		text.len--;
	for (size_t i = 0; i < text.len; i++) {
		if (text.data[i] <= ' ' || text.data[i] >= 0x7f)
			return false;
	}
	if (text.len == 0 || text.len >= KEY_MAX)
		return false;
	memcpy(key, text.data, text.len);
	key[text.len] = '\0';
	return true;
}

/* Reads the API key into `key`, or sets `key` to "" if no API key is configured. If the API key
 * cannot be used, returns false and writes the reason, without the API key, to `why`. */
static bool find_key(const char *file, char key[KEY_MAX], char *why)
{
	const char *variable = getenv(KEY_VARIABLE);
	struct slice text = slice_of(variable ? variable : "");
	char bytes[2 * KEY_MAX];

	key[0] = '\0';
	if (*file) {
		ssize_t len = file_read_start(file, bytes, sizeof(bytes));

		if (len < 0) {
			snprintf(why, CLIENT_WHY_SIZE, "--api-key-file %s cannot be read: %s", file,
				strerror(errno));
			return false;
		}
		text = slice_make(bytes, (size_t)len);
	} else if (text.len == 0) {
		return true;
	}
	if (take_key(text, key))
		return true;
	snprintf(why, CLIENT_WHY_SIZE,
		"there is no API key in %s; an API key is a single word, as quipu keys new "
		"prints it",
		*file ? file : KEY_VARIABLE);
	return false;
}

/* ---- opening ----------------------------------------------------------------------------- */

static bool has_part(CURLU *url, CURLUPart part, const char *usual)
{
	char *text = NULL;
	bool has = curl_url_get(url, part, &text, 0) == CURLUE_OK && strcmp(text, usual) != 0;

	curl_free(text);
	return has;
}

/* Parses `server` into `url`. Returns NULL on success, or the reason why `server` is not valid. */
static const char *read_url(CURLU *url, const char *server)
{
	CURLUcode code;

	if (strncasecmp(server, "http://", 7) != 0 && strncasecmp(server, "https://", 8) != 0)
		return "the URL must begin with http:// or https://";
	code = curl_url_set(url, CURLUPART_URL, server, 0);
	if (code != CURLUE_OK)
		return curl_url_strerror(code);
	if (has_part(url, CURLUPART_PATH, "/") || has_part(url, CURLUPART_QUERY, "") ||
		has_part(url, CURLUPART_FRAGMENT, ""))
		return "the URL must have nothing after host and port";
	return NULL;
}

/* Returns the URL as text, without a slash at the end. The caller frees the text. */
static char *write_url(CURLU *url)
{
	char *text = NULL, *copy;
	CURLUcode code = curl_url_get(url, CURLUPART_URL, &text, 0);

	assert(code == CURLUE_OK);
	(void)code;
	copy = qp_strdup(text);
	curl_free(text);
	if (copy[strlen(copy) - 1] == '/')
		copy[strlen(copy) - 1] = '\0';
	return copy;
}

static size_t on_body(char *data, size_t size, size_t count, void *context)
{
	struct client *client = context;

	if (client->body.len + size * count > BODY_MAX)
		return CURL_WRITEFUNC_ERROR;
	buffer_bytes(&client->body, data, size * count);
	return size * count;
}

static CURL *make_handle(struct client *client)
{
	CURL *easy = curl_easy_init();

	assert(easy);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "quipu/" QUIPU_VERSION);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT, (long)TOTAL_S);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, client->detail);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, (void *)client);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, (void *)client);
	return easy;
}

/* Returns the header that sends the API key `key`, or NULL if `key` is "". */
static struct curl_slist *make_headers(const char *key)
{
	char line[KEY_MAX + 32];
	struct curl_slist *headers;

	if (!*key)
		return NULL;
	snprintf(line, sizeof(line), "Authorization: Bearer %s", key);
	headers = curl_slist_append(NULL, line);
	assert(headers);
	return headers;
}

static struct client *open_at(const char *server, char *why)
{
	struct client *client = NULL;
	CURLU *url = NULL;
	const char *problem;

	curl_global_init(CURL_GLOBAL_DEFAULT);
	url = curl_url();
	assert(url);
	problem = read_url(url, server);
	if (problem) {
		snprintf(why, CLIENT_WHY_SIZE, "--server cannot be used: %s", problem);
	} else {
		client = qp_calloc(1, sizeof(*client));
		client->origin = write_url(url);
		curl_url_set(url, CURLUPART_USER, NULL, 0);
		curl_url_set(url, CURLUPART_PASSWORD, NULL, 0);
		client->shown = write_url(url);
		client->easy = make_handle(client);
		arena_init(&client->arena, 64 * 1024);
	}
	curl_url_cleanup(url);
	return client;
}

struct client *client_open(const struct settings *settings, char *why)
{
	char url[CLIENT_TARGET_SIZE], key[KEY_MAX];
	struct client *client;

	if (!find_server(settings, url, why) || !find_key(settings->api_key_file, key, why))
		return NULL;
	client = open_at(url, why);
	if (!client)
		return NULL;
	client->headers = make_headers(key);
	client->ca_file = settings->ca_file;
	if (*client->ca_file)
		curl_easy_setopt(client->easy, CURLOPT_CAINFO, client->ca_file);
	return client;
}

void client_trust_anyone(struct client *client)
{
	curl_slist_free_all(client->headers);
	client->headers = NULL;
	curl_easy_setopt(client->easy, CURLOPT_SSL_VERIFYPEER, 0L);
	curl_easy_setopt(client->easy, CURLOPT_SSL_VERIFYHOST, 0L);
}

void client_add_header(struct client *client, const char *line)
{
	client->headers = curl_slist_append(client->headers, line);
	assert(client->headers);
}

void client_close(struct client *client)
{
	curl_easy_cleanup(client->easy);
	curl_slist_free_all(client->headers);
	curl_slist_free_all(client->post_headers);
	arena_release(&client->arena);
	free(client->origin);
	free(client->shown);
	free(client);
}

const char *client_server(const struct client *client)
{
	return client->shown;
}

/* ---- the answer -------------------------------------------------------------------------- */

/* Returns true if the parameters after a link's <target> include rel=next. */
static bool is_next(struct slice parameters)
{
	while (parameters.data) {
		struct slice value = slice_trim(slice_cut(&parameters, ';'));
		struct slice name = slice_trim(slice_cut(&value, '='));

		value = slice_trim(value);
		if (slice_is_nocase(name, "rel") &&
			(slice_is(value, "next") || slice_is(value, "\"next\"")))
			return true;
	}
	return false;
}

/*
 * Finds the next page in a Link header such as <target>; rel="next", <target>; rel="prev". Ignores
 * a target that is not a path on the same server.
 */
static void find_next(struct slice links, char next[CLIENT_TARGET_SIZE])
{
	while (links.data) {
		struct slice target, parameters;

		slice_cut(&links, '<');
		if (!links.data)
			return;
		target = slice_cut(&links, '>');
		parameters = slice_cut(&links, ',');
		if (is_next(parameters) && slice_starts_with(target, "/") &&
			!slice_starts_with(target, "//") && target.len < CLIENT_TARGET_SIZE)
			snprintf(next, CLIENT_TARGET_SIZE, "%.*s", (int)target.len, target.data);
	}
}

static void read_links(struct client *client, char next[CLIENT_TARGET_SIZE])
{
	struct curl_header *header;

	for (size_t i = 0;
		curl_easy_header(client->easy, "Link", i, CURLH_HEADER, -1, &header) == CURLHE_OK;
		i++)
		find_next(slice_of(header->value), next);
}

static bool read_answer(struct client *client, struct client_answer *answer, char *why)
{
	char ignored[JSON_WHY_SIZE];
	long status = 0;

	memset(answer, 0, sizeof(*answer));
	curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &status);
	answer->http_status = (int)status;
	answer->json = json_parse_object(buffer_slice(&client->body), ignored);
	if (!answer->json) {
		snprintf(why, CLIENT_WHY_SIZE, "the server at %s is not quipu (HTTP %ld)",
			client->shown, status);
		return false;
	}
	read_links(client, answer->next);
	return true;
}

void client_answer_release(struct client_answer *answer)
{
	json_decref(answer->json);
	answer->json = NULL;
}

struct slice client_text(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	if (!json_is_string(value))
		return (struct slice){0};
	return slice_make(json_string_value(value), json_string_length(value));
}

bool client_is_name(const char *name)
{
	return *name && name[strspn(name, "abcdefghijklmnopqrstuvwxyz-")] == '\0';
}

/* If the server refused the caller, writes the reason and a remedy to `why` and returns true. */
static bool read_refusal(const struct client *client, const struct client_answer *answer, char *why)
{
	struct slice code = client_text(answer->json, "code");

	if (slice_is(code, status_code(STATUS_FORBIDDEN)))
		snprintf(why, CLIENT_WHY_SIZE,
			"the server at %s refuses this API key, which needs the scope admin (HTTP "
			"403)",
			client->shown);
	else if (!slice_is(code, status_code(STATUS_UNAUTHENTICATED)))
		return false;
	else if (client->headers)
		snprintf(why, CLIENT_WHY_SIZE,
			"the server at %s does not know this API key (HTTP 401)", client->shown);
	else
		snprintf(why, CLIENT_WHY_SIZE,
			"the server at %s requires an API key (HTTP 401); name a file that "
			"contains it with --api-key-file, or set " KEY_VARIABLE,
			client->shown);
	return true;
}

void client_read_problem(
	const struct client *client, const struct client_answer *answer, char why[CLIENT_WHY_SIZE])
{
	const json_t *error = json_array_get(json_object_get(answer->json, "errors"), 0);
	struct slice field = client_text(error, "field"), message = client_text(error, "message");
	struct slice detail = client_text(answer->json, "detail");

	if (read_refusal(client, answer, why))
		return;
	if (detail.len == 0)
		detail = client_text(answer->json, "title");
	if (message.len > 0)
		snprintf(why, CLIENT_WHY_SIZE, "%.*s %.*s", (int)field.len, field.data,
			(int)message.len, message.data);
	else if (detail.len > 0)
		snprintf(why, CLIENT_WHY_SIZE, "%.*s", (int)detail.len, detail.data);
	else
		snprintf(why, CLIENT_WHY_SIZE, "HTTP %d", answer->http_status);
}

/* ---- the request ------------------------------------------------------------------------- */

static void write_failure(struct client *client, CURLcode code, char *why)
{
	curl_off_t ready_us = 0;

	curl_easy_getinfo(client->easy, CURLINFO_PRETRANSFER_TIME_T, &ready_us);
	if (code == CURLE_OPERATION_TIMEDOUT && ready_us > 0)
		snprintf(why, CLIENT_WHY_SIZE, "the server at %s did not answer within %d s",
			client->shown, TOTAL_S);
	else if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
		 code == CURLE_OPERATION_TIMEDOUT)
		snprintf(why, CLIENT_WHY_SIZE,
			"no server answers at %s; start it, or name another one with --server",
			client->shown);
	else if (code == CURLE_WRITE_ERROR)
		snprintf(why, CLIENT_WHY_SIZE, "the answer from %s is too long", client->shown);
	else if (code == CURLE_PEER_FAILED_VERIFICATION)
		snprintf(why, CLIENT_WHY_SIZE,
			"the certificate of %s is not trusted: %s; --server must name the host as "
			"the certificate does, and --ca-file must name the file with the CA that "
			"issued it",
			client->shown, client->detail);
	else if (code == CURLE_SSL_CACERT_BADFILE)
		snprintf(why, CLIENT_WHY_SIZE, "--ca-file %s has no certificates to trust",
			client->ca_file);
	else
		snprintf(why, CLIENT_WHY_SIZE, "no answer from %s: %s", client->shown,
			curl_easy_strerror(code));
}

/* Prepares the client for a request to `target`. On failure returns false and writes the reason to
 * `why`. */
static bool prepare(
	struct client *client, const char *target, struct curl_slist *headers, char *why)
{
	char url[CLIENT_TARGET_SIZE * 2];

	if (snprintf(url, sizeof(url), "%s%s", client->origin, target) >= (int)sizeof(url)) {
		snprintf(why, CLIENT_WHY_SIZE, "the URL of the request is too long");
		return false;
	}
	arena_reset(&client->arena);
	client->body = buffer_make(&client->arena, 16 * 1024);
	curl_easy_setopt(client->easy, CURLOPT_URL, url);
	curl_easy_setopt(client->easy, CURLOPT_HTTPHEADER, headers);
	return true;
}

/* Reads the answer of a request that has ended with `code`. On failure returns false and writes the
 * reason to `why`. */
static bool finish(struct client *client, CURLcode code, struct client_answer *answer, char *why)
{
	curl_easy_setopt(client->easy, CURLOPT_HTTPHEADER, NULL);
	curl_slist_free_all(client->post_headers);
	client->post_headers = NULL;
	if (code == CURLE_OK)
		return read_answer(client, answer, why);
	write_failure(client, code, why);
	return false;
}

bool client_get(struct client *client, const char *target, struct client_answer *answer, char *why)
{
	curl_easy_setopt(client->easy, CURLOPT_HTTPGET, 1L);
	return prepare(client, target, client->headers, why) &&
	       finish(client, curl_easy_perform(client->easy), answer, why);
}

static bool prepare_post(struct client *client, const char *target, struct slice body, char *why)
{
	char key[UUID_SIZE], line[UUID_SIZE + 32];
	struct curl_slist *headers = NULL;

	/* libcurl sends the request again if a connection that it kept open turns out to be dead.
	 * Therefore every POST needs an Idempotency-Key. */
	uuid_random(key);
	snprintf(line, sizeof(line), "Idempotency-Key: %s", key);
	for (const struct curl_slist *own = client->headers; own; own = own->next)
		headers = curl_slist_append(headers, own->data);
	headers = curl_slist_append(headers, line);
	headers = curl_slist_append(
		headers, body.len > 0 ? "Content-Type: application/json" : "Content-Type:");
	assert(headers);
	curl_slist_free_all(client->post_headers);
	client->post_headers = headers;
	curl_easy_setopt(client->easy, CURLOPT_POST, 1L);
	curl_easy_setopt(client->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.len);
	curl_easy_setopt(client->easy, CURLOPT_COPYPOSTFIELDS, body.len > 0 ? body.data : "");
	return prepare(client, target, headers, why);
}

bool client_post(struct client *client, const char *target, struct slice body,
	struct client_answer *answer, char *why)
{
	return prepare_post(client, target, body, why) &&
	       finish(client, curl_easy_perform(client->easy), answer, why);
}

/* ---- several requests at once ------------------------------------------------------------ */

struct client_group {
	CURLM *multi;
};

struct client_group *client_group_new(void)
{
	struct client_group *group = qp_calloc(1, sizeof(*group));

	curl_global_init(CURL_GLOBAL_DEFAULT);
	group->multi = curl_multi_init();
	assert(group->multi);
	return group;
}

void client_group_free(struct client_group *group)
{
	curl_multi_cleanup(group->multi);
	free(group);
}

/* Runs all transfers of the group until every one has ended. */
static void run_transfers(struct client_group *group)
{
	int running;

	do {
		CURLMcode code = curl_multi_perform(group->multi, &running);

		if (code == CURLM_OK && running > 0)
			code = curl_multi_poll(group->multi, NULL, 0, TOTAL_S * 1000, NULL);
		assert(code == CURLM_OK);
	} while (running > 0);
}

/* Records in each client how its transfer ended. */
static void note_ends(struct client_group *group)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(group->multi, &left))) {
		struct client *client = NULL;

		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&client);
		client->end = message->data.result;
	}
}

bool client_group_post(
	struct client_group *group, struct client_post *posts, size_t count, char *why)
{
	bool ok = true;

	for (size_t i = 0; i < count; i++) {
		posts[i].answer = (struct client_answer){0};
		ok = ok && prepare_post(posts[i].client, posts[i].target, posts[i].body, why);
	}
	if (!ok)
		return false;
	for (size_t i = 0; i < count; i++)
		curl_multi_add_handle(group->multi, posts[i].client->easy);
	run_transfers(group);
	note_ends(group);
	for (size_t i = 0; i < count; i++) {
		struct client *client = posts[i].client;

		curl_multi_remove_handle(group->multi, client->easy);
		ok = finish(client, client->end, &posts[i].answer, why) && ok;
	}
	for (size_t i = 0; i < count && !ok; i++)
		client_answer_release(&posts[i].answer);
	return ok;
}
