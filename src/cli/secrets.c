#include "cli/secrets.h"

#include <string.h>
#include <strings.h>

#include "base/text.h"

#define NAME_MAX_LEN 64

/* A parameter is a secret if its name contains one of these words. Parameters whose value is only
 * the path of a file, such as passfile and sslkey, contain none of these words in their names. */
static const char *const secret_words[] = {
	"password", "passwd", "token", "secret", "apikey", "api_key", "api-key", "key.pem"};

static bool has_scheme(const char *url, const char *scheme)
{
	return strncmp(url, scheme, strlen(scheme)) == 0;
}

/* Returns whether a colon before an @ begins a port and not a password. `text` is the part of `url`
 * after the colon. Such a port is possible because the path of a webhook's URL may contain an @. */
static bool is_port_of_page(const char *url, const char *text)
{
	return has_scheme(url, "webhook:http") && text[strspn(text, "0123456789")] == '/';
}

/*
 * Returns the password in a URL, or {NULL, 0} if there is none. Everything between the first colon
 * and the last @ counts as the password, even if it contains a bare /, ? or comma, which a URL
 * parser would take for the end of the host. If the URL of a NATS server has no colon before the @,
 * returns the text before the @, which is a token.
 */
static struct slice find_password(const char *url)
{
	const char *scheme = strstr(url, "://");
	const char *start = scheme ? scheme + 3 : url;
	const char *at = scheme ? strrchr(start, '@') : NULL;
	const char *colon = at ? memchr(start, ':', (size_t)(at - start)) : NULL;

	if (colon && !is_port_of_page(url, colon + 1))
		return slice_make(colon + 1, (size_t)(at - colon - 1));
	if (at && (has_scheme(url, "nats://") || has_scheme(url, "tls://")))
		return slice_make(start, (size_t)(at - start));
	return (struct slice){0};
}

/* Decodes percent encoding, because libpq accepts p%61ssword as the name of the parameter
 * password. */
static void decode(struct slice from, char out[NAME_MAX_LEN])
{
	size_t len = 0;

	for (size_t i = 0; i < from.len && len < NAME_MAX_LEN - 1; i++) {
		bool coded = from.data[i] == '%' && i + 2 < from.len &&
			     text_hex_digit(from.data[i + 1]) >= 0 &&
			     text_hex_digit(from.data[i + 2]) >= 0;

		out[len++] = coded ? (char)(text_hex_digit(from.data[i + 1]) * 16 +
					     text_hex_digit(from.data[i + 2]))
				   : from.data[i];
		i += coded ? 2 : 0;
	}
	out[len] = '\0';
}

static bool is_secret_name(struct slice name)
{
	char text[NAME_MAX_LEN];

	decode(name, text);
	for (size_t i = 0; i < sizeof(secret_words) / sizeof(secret_words[0]); i++) {
		if (strcasestr(text, secret_words[i]))
			return true;
	}
	return false;
}

/* Returns the value of the first secret parameter at or after `from`, or {NULL, 0} if there is
 * none. */
static struct slice find_parameter(const char *from)
{
	while (*from) {
		size_t len = strcspn(from, "&? #");
		const char *equals = memchr(from, '=', len);

		if (equals && equals + 1 < from + len &&
			is_secret_name(slice_make(from, (size_t)(equals - from))))
			return slice_make(equals + 1, (size_t)(from + len - equals - 1));
		from += len;
		from += *from != '\0';
	}
	return (struct slice){0};
}

bool secrets_in_url(const char *url)
{
	return find_password(url).len > 0 || find_parameter(url).len > 0;
}

void secrets_print_url(FILE *out, const char *url)
{
	struct slice secret = find_password(url);

	if (!secret.data)
		secret = find_parameter(url);
	while (secret.data) {
		fprintf(out, "%.*s***", (int)(secret.data - url), url);
		url = secret.data + secret.len;
		secret = find_parameter(url);
	}
	fputs(url, out);
}
