/*
 * Opens connections, and explains why a connection could not be opened.
 *
 * A URL may name several hosts, of which one is the primary and the others are its standbys. libpq
 * tries one host after another and skips servers that accept no writes (target_session_attrs), so
 * after a failover it finds the new primary without any further setting.
 */
#include <assert.h>
#include <stdio.h>

#include "adapters/store/postgres/postgres_internal.h"

#define NAMES_MAX 12
#define ELEMENT_SIZE 256
#define PORT_DEFAULT "5432"

/* The arguments of PQconnectdbParams(). */
struct parameters {
	const char *names[NAMES_MAX];
	const char *values[NAMES_MAX];
	size_t count;
};

static void add(struct parameters *parameters, const char *name, const char *value)
{
	assert(parameters->count < NAMES_MAX - 1);
	parameters->names[parameters->count] = name;
	parameters->values[parameters->count++] = value;
}

/* Returns our defaults, followed by the URL, which overrides them. */
static struct parameters parameters_of(const char *url)
{
	struct parameters parameters = {0};

	add(&parameters, "fallback_application_name", "quipu");
	add(&parameters, "connect_timeout", "3");
	add(&parameters, "keepalives_idle", "5");
	add(&parameters, "keepalives_interval", "2");
	add(&parameters, "keepalives_count", "3");
	add(&parameters, "tcp_user_timeout", "10000");
	add(&parameters, "target_session_attrs", "read-write");
	add(&parameters, "dbname", url);
	return parameters;
}

PGconn *pg_dial(const char *url)
{
	struct parameters parameters = parameters_of(url);

	return PQconnectdbParams(parameters.names, parameters.values, 1);
}

/* ---- one host of several ----------------------------------------------------------------- */

static unsigned count_elements(struct slice list)
{
	unsigned count = 0;

	for (; list.data; count++)
		slice_cut(&list, ',');
	return count;
}

/* Copies element number `nth` (from 0) of a comma-separated list to `out`. If the list has only one
 * element, that element applies to every host. Returns false if the element is empty or too
 * long. */
static bool pick(char out[ELEMENT_SIZE], struct slice list, unsigned nth)
{
	struct slice element = {0};

	nth %= count_elements(list);
	for (unsigned i = 0; i <= nth; i++)
		element = slice_cut(&list, ',');
	snprintf(out, ELEMENT_SIZE, "%.*s", (int)element.len, element.data);
	return element.len > 0 && element.len < ELEMENT_SIZE;
}

static struct slice value_of(const PQconninfoOption *options, const char *name)
{
	for (; options && options->keyword; options++) {
		if (strcmp(options->keyword, name) == 0 && options->val && *options->val)
			return slice_of(options->val);
	}
	return (struct slice){0};
}

/* The parameters of one host. They override the lists in the URL. */
struct place {
	char host[ELEMENT_SIZE];
	char address[ELEMENT_SIZE];
	char port[ELEMENT_SIZE];
};

static void add_place(struct parameters *parameters, const PQconninfoOption *options,
	unsigned attempt, struct place *place)
{
	struct slice hosts = value_of(options, "host");
	struct slice addresses = value_of(options, "hostaddr");
	struct slice ports = value_of(options, "port");
	unsigned count = count_elements(addresses.data ? addresses : hosts);

	if (count < 2)
		return;
	if (hosts.data && pick(place->host, hosts, attempt % count))
		add(parameters, "host", place->host);
	if (addresses.data && pick(place->address, addresses, attempt % count))
		add(parameters, "hostaddr", place->address);
	add(parameters, "port",
		ports.data && pick(place->port, ports, attempt % count) ? place->port
									: PORT_DEFAULT);
}

/*
 * libpq has no timeout for a connection that it opens without blocking, and no call that moves on
 * to the next host. Therefore the caller gives up an attempt that takes too long, and each attempt
 * uses only one host. If each attempt used the whole list of hosts, a silent first host would be
 * the only host ever tried.
 */
PGconn *pg_dial_start(const char *url, unsigned attempt)
{
	struct parameters parameters = parameters_of(url);
	PQconninfoOption *options = PQconninfoParse(url, NULL);
	struct place place;
	PGconn *connection;

	add_place(&parameters, options, attempt, &place);
	connection = PQconnectStartParams(parameters.names, parameters.values, 1);
	PQconninfoFree(options);
	return connection;
}

/* ---- reasons ----------------------------------------------------------------------------- */

/* libpq's message has one or two lines for each host that libpq tried. This function joins all
 * lines into one. */
void pg_explain(const PGconn *connection, char *why, size_t size)
{
	const char *words = PQerrorMessage(connection);
	size_t len = 0;

	for (; *words && len + 2 < size; words++) {
		bool is_last = words[strspn(words, "\n\t ")] == '\0';

		if (is_last)
			break;
		if (*words == '\n')
			why[len++] = ';';
		why[len++] = *words == '\n' || *words == '\t' ? ' ' : *words;
		words += *words == '\n' && words[1] == '\t';
	}
	why[len] = '\0';
}
