/*
 * Each verb has a row in a table, which says how many words and which flags the verb takes, and
 * which function runs it. The arguments are checked against the row before a client is opened, so
 * wrong arguments never lead to a request.
 *
 * A server has the route for a kind of dead letters only if it runs the role that the kind belongs
 * to. `dlq list` skips the kinds whose route the server does not have, and fails if the server has
 * none of the routes.
 */
#include "cli/dead_letter_command.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "cli/client.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/table.h"

#define WORDS_ANY SIZE_MAX

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 1000000
#define PAGE_MAX 100

const char *const dlq_flags[] = {"limit", "why", OWN_SWITCH "json", OWN_SWITCH "all", NULL};

static const char *const kinds[] = {"outbox", "dialog-outbox", "notification", "poison", "sms"};

#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

/* One run of `quipu dlq`. */
struct call {
	const struct operands *operands;
	const char *const *words; /* the words after the verb */
	size_t word_count;
	struct client *client;
	struct arena arena; /* memory for one request, or for one list */
	bool json;          /* print JSON, one object per line */
};

struct verb {
	const char *name;
	const char *usage;
	size_t words_least;
	size_t words_most;
	const char *flags;    /* which of dlq_flags the verb accepts, separated by spaces */
	const char *required; /* the flag that the verb requires, or NULL */
	int (*run)(struct call *call);
};

/* ---- output ------------------------------------------------------------------------------ */

static void print_json(const json_t *value)
{
	char *text = report_json(value, JSON_INDENT(2));

	puts(text);
	free(text);
}

/* Returns true if the answer says that the server does not have the route, because it does not run
 * the role that the route belongs to. */
static bool is_missing_route(const struct client_answer *answer)
{
	struct slice code = client_text(answer->json, "code");

	return slice_is(code, status_code(STATUS_ROUTE_NOT_FOUND)) ||
	       slice_is(code, status_code(STATUS_ROLE_NOT_HERE));
}

static void write_missing_role(struct call *call, const char *what, char why[CLIENT_WHY_SIZE])
{
	snprintf(why, CLIENT_WHY_SIZE, "the server at %s runs no role with %s",
		client_server(call->client), what);
}

/* ---- names of dead letters --------------------------------------------------------------- */

struct letter_name {
	const char *kind;
	const char *id;
};

/* Returns all kinds in one text, each followed by `suffix`: "outbox/ID, poison/ID or sms/ID". */
static const char *list_kinds(struct arena *arena, const char *suffix)
{
	struct buffer text = buffer_make(arena, 128);

	for (size_t i = 0; i < KIND_COUNT; i++) {
		if (i > 0)
			buffer_text(&text, i + 1 < KIND_COUNT ? ", " : " or ");
		buffer_text(&text, kinds[i]);
		buffer_text(&text, suffix);
	}
	buffer_char(&text, '\0');
	return text.data;
}

static bool read_name(const char *word, struct letter_name *name)
{
	for (size_t i = 0; i < KIND_COUNT; i++) {
		size_t len = strlen(kinds[i]);

		if (strncmp(word, kinds[i], len) == 0 && word[len] == '/' && word[len + 1]) {
			*name = (struct letter_name){.kind = kinds[i], .id = word + len + 1};
			return true;
		}
	}
	return false;
}

/* Parses every word as the name of a letter (KIND/ID). Returns NULL after reporting the first word
 * that is not such a name. */
static struct letter_name *read_names(struct call *call)
{
	struct letter_name *names = arena_array(&call->arena, struct letter_name, call->word_count);

	for (size_t i = 0; i < call->word_count; i++) {
		if (read_name(call->words[i], &names[i]))
			continue;
		report_failure(EXIT_USAGE,
			"\"%s\" is not the name of a dead letter; quipu dlq list shows the "
			"names: %s",
			call->words[i], list_kinds(&call->arena, "/ID"));
		return NULL;
	}
	return names;
}

/* Returns "/operator/dlq/outbox/17", followed by `action`, e.g. "/replay". */
static const char *target_of(struct call *call, const struct letter_name *name, const char *action)
{
	struct buffer target = buffer_make(&call->arena, 128);

	buffer_format(&target, "/operator/dlq/%s/", name->kind);
	buffer_percent(&target, slice_of(name->id));
	buffer_text(&target, action);
	buffer_char(&target, '\0');
	return target.data;
}

/* Returns true if the answer is a success; otherwise writes the reason to `why`. */
static bool is_success(struct call *call, const struct letter_name *name,
	const struct client_answer *answer, char why[CLIENT_WHY_SIZE])
{
	char what[64];

	if (answer->http_status >= 200 && answer->http_status <= 299)
		return true;
	snprintf(what, sizeof(what), "dead letters of the kind %s", name->kind);
	if (is_missing_route(answer))
		write_missing_role(call, what, why);
	else
		client_read_problem(call->client, answer, why);
	return false;
}

/* ---- dlq list ---------------------------------------------------------------------------- */

struct list {
	struct table table; /* its first row is the header */
	bool json;          /* print each letter as soon as it arrives, without a table */
	size_t rows_max;
	bool is_served; /* the server has the route of at least one kind */
};

static void add_head(struct list *list)
{
	const struct slice cells[TABLE_COLUMNS] = {SLICE("ID"), SLICE("EVENT TYPE"),
		SLICE("AGGREGATE KEY"), SLICE("ATTEMPTS"), SLICE("SINCE"), SLICE("ERROR")};

	table_add(&list->table, cells);
}

/* Prints an object on one line. */
static void print_line(const json_t *value)
{
	json_dumpf(value, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	putchar('\n');
}

static void add_letter(struct list *list, const char *kind, const json_t *letter)
{
	struct buffer name = buffer_make(list->table.arena, 64);
	struct buffer attempts = buffer_make(list->table.arena, 16);
	json_t *count = json_object_get(letter, "attempt_count");
	struct slice cells[TABLE_COLUMNS] = {[1] = client_text(letter, "event_type"),
		[2] = client_text(letter, "aggregate_key"),
		[4] = client_text(letter, "created_at"),
		[5] = client_text(letter, "error")};

	buffer_format(&name, "%s/", kind);
	buffer_add(&name, client_text(letter, "id"));
	if (json_is_integer(count))
		buffer_int(&attempts, json_integer_value(count));
	cells[0] = buffer_slice(&name);
	cells[3] = buffer_slice(&attempts);
	table_add(&list->table, cells);
}

/* Adds a page of letters to the table. Returns true if the next page is needed as well. */
static bool add_page(struct list *list, const char *kind, const struct client_answer *answer)
{
	const json_t *letters = json_object_get(answer->json, "letters");
	size_t count = json_array_size(letters);

	for (size_t i = 0; i < count && list->table.count < list->rows_max; i++) {
		if (list->json && list->table.count + 1 < list->rows_max)
			print_line(json_array_get(letters, i));
		add_letter(list, kind, json_array_get(letters, i));
	}
	return count > 0 && list->table.count < list->rows_max && answer->next[0];
}

/* Fetches a page of letters and adds it to the list. Sets `target` to the next page, or to "" after
 * the last page. */
static bool list_page(struct call *call, struct list *list, const char *kind,
	char target[CLIENT_TARGET_SIZE], char *why)
{
	struct client_answer answer;
	bool ok = true;

	if (!client_get(call->client, target, &answer, why))
		return false;
	target[0] = '\0';
	if (answer.http_status == 200) {
		list->is_served = true;
		if (add_page(list, kind, &answer))
			memcpy(target, answer.next, CLIENT_TARGET_SIZE);
	} else if (!is_missing_route(&answer)) {
		client_read_problem(call->client, &answer, why);
		ok = false;
	}
	client_answer_release(&answer);
	return ok;
}

static bool list_kind(struct call *call, struct list *list, const char *kind, char *why)
{
	size_t left = list->rows_max - list->table.count;
	char target[CLIENT_TARGET_SIZE];

	if (left == 0)
		return true;
	snprintf(target, sizeof(target), "/operator/dlq/%s?limit=%zu", kind,
		left < PAGE_MAX ? left : PAGE_MAX);
	while (target[0]) {
		if (!list_page(call, list, kind, target, why))
			return false;
	}
	return true;
}

static void print_list(const struct list *list, int64_t limit)
{
	size_t letters = list->table.count - 1;
	bool has_more = letters > (size_t)limit;

	if (letters == 0 && !list->json)
		puts("no dead letters");
	else if (!list->json)
		table_print(&list->table, list->table.count - has_more, stdout);
	fflush(stdout);
	if (has_more)
		fprintf(stderr,
			"quipu: there are more dead letters than %lld; use --limit to see more\n",
			(long long)limit);
}

/* Fetches one dead letter more than it prints, to find out whether there are more. */
static int dlq_list(struct call *call)
{
	const char *text = operands_flag(call->operands, "limit");
	struct list list = {.table.arena = &call->arena, .json = call->json};
	char why[CLIENT_WHY_SIZE];
	int64_t limit = LIMIT_DEFAULT;

	if (text && (!text_to_int(slice_of(text), &limit) || limit < 1 || limit > LIMIT_MAX))
		return report_failure(EXIT_USAGE,
			"--limit must be a number from 1 to %d, not \"%s\"", LIMIT_MAX, text);
	list.rows_max = (size_t)limit + 2;
	add_head(&list);
	for (size_t i = 0; i < KIND_COUNT; i++) {
		if (!list_kind(call, &list, kinds[i], why))
			return report_failure(EXIT_FAILURE, "%s", why);
	}
	if (!list.is_served) {
		write_missing_role(call, "dead letters", why);
		return report_failure(EXIT_FAILURE, "%s", why);
	}
	print_list(&list, limit);
	return EXIT_SUCCESS;
}

/* ---- dlq show, replay, discard ----------------------------------------------------------- */

static int dlq_show(struct call *call)
{
	struct letter_name *name = read_names(call);
	struct client_answer answer;
	char why[CLIENT_WHY_SIZE];
	bool ok;

	if (!name)
		return EXIT_USAGE;
	if (!client_get(call->client, target_of(call, name, ""), &answer, why))
		return report_failure(EXIT_FAILURE, "%s", why);
	ok = is_success(call, name, &answer, why);
	if (ok)
		print_json(answer.json);
	client_answer_release(&answer);
	return ok ? EXIT_SUCCESS : report_failure(EXIT_FAILURE, "%s", why);
}

static void print_settled(struct call *call, const char *name, const char *done)
{
	struct buffer text = buffer_make(&call->arena, 64);

	buffer_json_string(&text, slice_of(name));
	buffer_char(&text, '\0');
	if (call->json)
		printf("{\"letter\":%s,\"result\":\"%s\"}\n", text.data, done);
	else
		printf("%s: %s\n", name, done);
}

/*
 * Posts `action` for every letter. Continues if the server refuses a letter, but not if the server
 * no longer answers. Returns the exit status, which is a failure if any letter failed.
 */
static int settle_letters(
	struct call *call, const char *action, struct slice body, const char *done)
{
	struct letter_name *names = read_names(call);
	int code = EXIT_SUCCESS;

	if (!names)
		return EXIT_USAGE;
	for (size_t i = 0; i < call->word_count; i++) {
		const char *target = target_of(call, &names[i], action);
		struct client_answer answer;
		char why[CLIENT_WHY_SIZE];

		if (!client_post(call->client, target, body, &answer, why))
			return report_failure(EXIT_FAILURE, "%s: %s", call->words[i], why);
		if (is_success(call, &names[i], &answer, why))
			print_settled(call, call->words[i], done);
		else
			code = report_failure(EXIT_FAILURE, "%s: %s", call->words[i], why);
		fflush(stdout);
		client_answer_release(&answer);
	}
	return code;
}

/* ---- dlq replay KIND --all --------------------------------------------------------------- */

struct replay {
	const char *kind;
	long long replayed;
	long long refused;
	struct progress progress;
};

/* Replays one letter. Returns false if the server no longer answers. */
static bool replay_letter(
	struct call *call, struct replay *replay, struct slice id, char why[CLIENT_WHY_SIZE])
{
	struct buffer text = buffer_make(&call->arena, 64);
	struct letter_name name = {.kind = replay->kind};
	struct client_answer answer;

	buffer_add(&text, id);
	buffer_char(&text, '\0');
	name.id = text.data;
	if (!client_post(call->client, target_of(call, &name, "/replay"), (struct slice){0},
		    &answer, why))
		return false;
	if (is_success(call, &name, &answer, why)) {
		replay->replayed++;
	} else {
		replay->refused++;
		progress_hide(&replay->progress);
		report_failure(EXIT_FAILURE, "%s/%s: %s", name.kind, name.id, why);
	}
	client_answer_release(&answer);
	progress_at(&replay->progress, replay->replayed);
	return true;
}

/* Replays a page of letters. Sets `target` to the next page, or to "" after the last page. */
static bool replay_page(struct call *call, struct replay *replay, char target[CLIENT_TARGET_SIZE],
	char why[CLIENT_WHY_SIZE])
{
	const struct letter_name kind = {.kind = replay->kind};
	struct client_answer page;
	const json_t *letters;
	bool good;

	arena_reset(&call->arena);
	if (!client_get(call->client, target, &page, why))
		return false;
	memcpy(target, page.next, CLIENT_TARGET_SIZE);
	letters = json_object_get(page.json, "letters");
	good = is_success(call, &kind, &page, why);
	for (size_t i = 0; good && i < json_array_size(letters); i++)
		good = replay_letter(
			call, replay, client_text(json_array_get(letters, i), "id"), why);
	client_answer_release(&page);
	return good;
}

/* Replays all letters of one kind. Tries each letter once: every page begins after the last id of
 * the previous page, so no page repeats a refused letter. Returns the exit status. */
static int replay_all(struct call *call)
{
	struct replay replay = {0};
	char target[CLIENT_TARGET_SIZE], why[CLIENT_WHY_SIZE];
	bool good = true;

	for (size_t i = 0; i < KIND_COUNT; i++) {
		if (call->word_count == 1 && strcmp(call->words[0], kinds[i]) == 0)
			replay.kind = kinds[i];
	}
	if (!replay.kind)
		return report_failure(
			EXIT_USAGE, "--all needs one kind: %s", list_kinds(&call->arena, ""));
	snprintf(target, sizeof(target), "/operator/dlq/%s?limit=%d", replay.kind, PAGE_MAX);
	progress_begin(&replay.progress, replay.kind, 0);
	while (good && *target)
		good = replay_page(call, &replay, target, why);
	progress_hide(&replay.progress);
	printf(call->json ? "{\"kind\":\"%s\",\"replayed\":%lld,\"refused\":%lld}\n"
			  : "%s: %lld replayed, %lld refused\n",
		replay.kind, replay.replayed, replay.refused);
	if (!good)
		return report_failure(EXIT_FAILURE, "%s", why);
	return replay.refused == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int dlq_replay(struct call *call)
{
	if (operands_flag(call->operands, "all"))
		return replay_all(call);
	return settle_letters(call, "/replay", (struct slice){0}, "replayed");
}

static int dlq_discard(struct call *call)
{
	struct slice why = slice_of(operands_flag(call->operands, "why"));
	struct buffer body = buffer_make(&call->arena, why.len + 16);

	if (text_is_blank(why) || !text_is_utf8(why))
		return report_failure(EXIT_USAGE, "--why must contain a reason, in UTF-8");
	buffer_text(&body, "{\"why\":");
	buffer_json_string(&body, why);
	buffer_char(&body, '}');
	return settle_letters(call, "/discard", buffer_slice(&body), "discarded");
}

/* ---- running ----------------------------------------------------------------------------- */

static bool takes(const struct verb *verb, const char *flag)
{
	struct slice rest = slice_of(verb->flags);

	while (rest.data) {
		if (slice_is(slice_cut(&rest, ' '), flag))
			return true;
	}
	return false;
}

static bool fits(const struct verb *verb, const struct operands *operands)
{
	size_t words = operands->word_count - 1;

	for (size_t i = 0; dlq_flags[i]; i++) {
		const char *flag =
			dlq_flags[i][0] == OWN_SWITCH[0] ? dlq_flags[i] + 1 : dlq_flags[i];

		if (operands->values[i] && !takes(verb, flag))
			return false;
	}
	return words >= verb->words_least && words <= verb->words_most &&
	       (!verb->required || operands_flag(operands, verb->required));
}

static int run_verb(
	const struct verb *verb, const struct settings *settings, const struct operands *operands)
{
	struct call call = {
		.operands = operands,
		.words = operands->words + 1,
		.word_count = operands->word_count - 1,
		.json = operands_flag(operands, "json") != NULL,
	};
	char why[CLIENT_WHY_SIZE];
	int code;

	if (!fits(verb, operands))
		return report_failure(EXIT_USAGE, "usage: quipu %s", verb->usage);
	call.client = client_open(settings, why);
	if (!call.client)
		return report_failure(EXIT_USAGE, "%s", why);
	arena_init(&call.arena, 64 * 1024);
	code = verb->run(&call);
	arena_release(&call.arena);
	client_close(call.client);
	return code;
}

int dlq_run(const struct settings *settings, const struct operands *operands)
{
	static const struct verb verbs[] = {
		{"list", "dlq list [--limit N] [--json]", 0, 0, "limit json", NULL, dlq_list},
		{"show", "dlq show KIND/ID", 1, 1, "json", NULL, dlq_show},
		{"replay", "dlq replay KIND/ID... | KIND --all [--json]", 1, WORDS_ANY, "json all",
			NULL, dlq_replay},
		{"discard", "dlq discard KIND/ID... --why TEXT [--json]", 1, WORDS_ANY, "why json",
			"why", dlq_discard},
	};
	const char *name = operands->word_count > 0 ? operands->words[0] : "";

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(name, verbs[i].name) == 0)
			return run_verb(&verbs[i], settings, operands);
	}
	return report_failure(EXIT_USAGE, "usage: quipu dlq list|show|replay|discard");
}
