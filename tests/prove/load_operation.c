/*
 * Operations: from a role's wish to an answer that counts. What an attempt's answer means is
 * decided here, once for all roles:
 *
 *   answer                                     meaning
 *   2xx, 404, 409, 412                         known
 *   429                                        known; if an earlier attempt may have had an effect,
 *                                              another follows
 *   503 OUTCOME_UNKNOWN, 5xx, 408, none        unknown: try again under the same key
 *   other 503, 409 aborted                     refused, nothing changed: every second operation is
 *                                              left at that, so that the checks see whether really
 *                                              nothing changed; the others try again
 *   200 of a batch of which a part got 503     unknown
 *   409 IDEMPOTENCY_KEY_CONFLICT, --previous   unknown: the previous release does not recognise a
 *                                              key that the new one has stored, as OPERATIONS.md
 *                                              says; the new one does
 *   anything else                              known, and bad: no client should get it
 */
#define _GNU_SOURCE 1
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>

#include "load.h"

enum {
	RETRY_US = 50000,
	RETRY_MAX_US = 800000,
	REPEAT_MAX_US = 5000000,
	REPEATS_MAX = 256,
	REPEAT_ONE_IN = 40,
};

enum verdict { VERDICT_KNOWN, VERDICT_REFUSED, VERDICT_UNKNOWN };

static const struct role_play *const plays[ROLES] = {
	[COUNTS] = &counts_play,
	[GATEWAY] = &gateway_play,
	[ENTITLEMENTS] = &entitlements_play,
	[POTS] = &pots_play,
	[DIALOGS] = &dialogs_play,
	[COUNTERS] = &counters_play,
};

void operations_open(struct load *load)
{
	load->operation_count = load->connection_count + OPERATIONS_WAITING_MAX + REPEATS_MAX;
	load->operations = allocate(load->operation_count, sizeof(*load->operations));
	TAILQ_INIT(&load->free);
	TAILQ_INIT(&load->ready);
	TAILQ_INIT(&load->waiting);
	for (uint32_t i = 0; i < load->operation_count; i++)
		TAILQ_INSERT_TAIL(&load->free, &load->operations[i], link);
}

/* -- requests -- */

void operation_describe(struct operation *o, const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(o->what, sizeof(o->what), format, arguments);
	va_end(arguments);
	assert(length > 0 && (size_t)length < sizeof(o->what));
}

void operation_request(struct load *load, struct operation *o, const char *method, const char *path,
	const char *user, const char *body)
{
	size_t size = body ? strlen(body) : 0;
	char key[128] = "";
	char caller[128] = "";
	int length;

	if (o->keyed && !o->keep_trying)
		snprintf(key, sizeof(key), "Idempotency-Key: %s-o%" PRIu64 "\r\n", load->prefix,
			o->id);
	if (user)
		snprintf(caller, sizeof(caller), "X-User-Id: %s\r\n", user);
	length = snprintf(o->request, sizeof(o->request),
		"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s%s%s%sContent-Length: %zu\r\n\r\n%s",
		method, path, body ? "Content-Type: application/json\r\n" : "", key, caller,
		load->options.authorization, size, body ? body : "");
	assert(length > 0 && (size_t)length < sizeof(o->request));
	o->length = (uint32_t)length;
}

/* -- answers -- */

static const char *response_member(const struct response *response, const char *name)
{
	char member[64];
	int length = snprintf(member, sizeof(member), "\"%s\":", name);
	const char *found = memmem(response->body, response->body_length, member, (size_t)length);

	return found ? found + length : NULL;
}

bool response_string(const struct response *response, const char *name, char *value, size_t room)
{
	const char *start = response_member(response, name);
	const char *end;

	if (!start || *start != '"')
		return false;
	end = strchr(++start, '"');
	if (!end || (size_t)(end - start) >= room)
		return false;
	memcpy(value, start, (size_t)(end - start));
	value[end - start] = '\0';
	return true;
}

bool response_integer(const struct response *response, const char *name, int64_t *value)
{
	const char *start = response_member(response, name);

	if (!start)
		return false;
	*value = strtoll(start, NULL, 10);
	return true;
}

static enum verdict judge_unavailable(const struct response *response)
{
	return response_mentions(response, "OUTCOME_UNKNOWN") ? VERDICT_UNKNOWN : VERDICT_REFUSED;
}

static enum verdict judge(
	struct load *load, const struct operation *o, const struct response *response)
{
	int status = response->status;

	if (status == 200 && o->keep_trying && response_mentions(response, "\"status\":503"))
		return VERDICT_UNKNOWN;
	if (status >= 200 && status < 300)
		return VERDICT_KNOWN;
	if (status == 503)
		return judge_unavailable(response);
	if (status == 409 && response_mentions(response, "\"aborted\""))
		return VERDICT_REFUSED;
	if (status == 409 && load->options.previous &&
		response_mentions(response, "IDEMPOTENCY_KEY_CONFLICT"))
		return VERDICT_UNKNOWN;
	if (status == 404 || status == 409 || status == 412)
		return VERDICT_KNOWN;
	if (status == 429)
		return o->doubtful ? VERDICT_REFUSED : VERDICT_KNOWN;
	load->errors.bad++;
	return status >= 500 || status == 408 ? VERDICT_UNKNOWN : VERDICT_KNOWN;
}

/* -- states -- */

static void operation_free(struct load *load, struct operation *o)
{
	o->state = OPERATION_FREE;
	TAILQ_INSERT_HEAD(&load->free, o, link);
}

static void operation_wait(struct load *load, struct operation *o, uint64_t pause_us)
{
	o->state = OPERATION_WAITING;
	o->due_us = load->now_us + pause_us;
	TAILQ_INSERT_TAIL(&load->waiting, o, link);
	load->waiting_count++;
}

/* Another attempt follows, after a pause that doubles. */
static void operation_retry(struct load *load, struct operation *o)
{
	uint64_t pause_us = RETRY_US;

	for (uint32_t i = 1; i < o->attempts && pause_us < RETRY_MAX_US; i++)
		pause_us *= 2;
	operation_wait(load, o, pause_us / 2 + random_below(&load->random, (uint32_t)pause_us));
}

/* A known answer. Some are asked for again under their key: the answer must be the same. That holds
 * only for answers that a server stores: not for those that ask to try again. */
static void operation_known(struct load *load, struct operation *o, const struct response *response,
	enum verdict verdict)
{
	bool stored = verdict == VERDICT_KNOWN &&
		      (response->status < 400 || response->status == 404 ||
			      response->status == 409 || response->status == 412);

	log_answer(load, o, '<', response);
	load->acked[o->role] += response->status < 500;
	load->open_count--;
	load->open_of[o->role]--;
	o->known = true;
	if (response->status < 500 && plays[o->role]->answered)
		plays[o->role]->answered(load, o, response);
	if (stored && o->keyed && !o->keep_trying && load->phase == PHASE_RUNNING &&
		load->repeat_count < REPEATS_MAX &&
		random_below(&load->random, REPEAT_ONE_IN) == 0) {
		load->repeat_count++;
		operation_wait(load, o, random_below(&load->random, REPEAT_MAX_US));
		return;
	}
	operation_free(load, o);
}

static void repeat_end(struct load *load, struct operation *o)
{
	load->repeat_count--;
	operation_free(load, o);
}

/* It will never be known. */
static void operation_give_up(struct load *load, struct operation *o)
{
	log_line(load, o->role, "! %" PRIu64, o->id);
	load->unknown++;
	load->open_count--;
	load->open_of[o->role]--;
}

static void operation_unknown(struct load *load, struct operation *o, const char *why)
{
	log_line(load, o->role, "? %" PRIu64 " %s", o->id, why);
	if (o->known) {
		repeat_end(load, o);
		return;
	}
	o->doubtful = true;
	if (o->keyed) {
		operation_retry(load, o);
		return;
	}
	operation_give_up(load, o);
	operation_free(load, o);
}

static void operation_refused(
	struct load *load, struct operation *o, const struct response *response)
{
	bool last = !o->keyed || (!o->doubtful && !o->keep_trying && o->id % 2 == 0);
	char code[64] = "-";

	if (!response_string(response, "reason", code, sizeof(code)))
		response_string(response, "code", code, sizeof(code));
	if (last && load->phase != PHASE_SETUP) {
		operation_known(load, o, response, VERDICT_REFUSED);
		return;
	}
	log_line(load, o->role, "- %" PRIu64 " %d %s", o->id, response->status, code);
	operation_retry(load, o);
}

void operation_answered(struct load *load, struct operation *o, const struct response *response)
{
	enum verdict verdict = judge(load, o, response);
	char why[32];

	assert(o->state == OPERATION_SENT);
	load->errors.refused += verdict == VERDICT_REFUSED && response->status != 429;
	load->errors.unknown += verdict == VERDICT_UNKNOWN;
	if (o->known && verdict != VERDICT_UNKNOWN) {
		if (verdict == VERDICT_KNOWN)
			log_answer(load, o, '=', response);
		repeat_end(load, o);
	} else if (verdict == VERDICT_KNOWN) {
		operation_known(load, o, response, VERDICT_KNOWN);
	} else if (verdict == VERDICT_REFUSED) {
		operation_refused(load, o, response);
	} else {
		snprintf(why, sizeof(why), "%d", response->status);
		operation_unknown(load, o, why);
	}
}

void operation_lost(struct load *load, struct operation *o, const char *why)
{
	assert(o->state == OPERATION_SENT);
	operation_unknown(load, o, why);
}

void operations_wake(struct load *load)
{
	struct operation *o = TAILQ_FIRST(&load->waiting);

	while (o) {
		struct operation *next = TAILQ_NEXT(o, link);

		if (o->due_us <= load->now_us) {
			TAILQ_REMOVE(&load->waiting, o, link);
			load->waiting_count--;
			o->state = OPERATION_READY;
			TAILQ_INSERT_TAIL(&load->ready, o, link);
		}
		o = next;
	}
}

void operations_give_up(struct load *load)
{
	for (uint32_t i = 0; i < load->operation_count; i++) {
		struct operation *o = &load->operations[i];

		if (o->state != OPERATION_FREE && !o->known)
			operation_give_up(load, o);
	}
}

/* -- new operations -- */

/*
 * Roles that have nothing to do at the moment are passed over, and so are those that have their
 * share of operations outstanding: while one engine is away, the others still get their load.
 */
static bool fill_by_share(struct load *load, struct operation *o)
{
	uint32_t total = 0;
	uint32_t choice;

	for (int role = 0; role < ROLES; role++)
		total += load->options.roles[role] ? plays[role]->share : 0;
	choice = random_below(&load->random, total);
	for (int role = 0; role < ROLES; role++) {
		if (!load->options.roles[role])
			continue;
		if (choice >= plays[role]->share) {
			choice -= plays[role]->share;
			continue;
		}
		o->role = (enum role)role;
		return load->open_of[role] < OPERATIONS_WAITING_MAX / ROLES &&
		       plays[role]->next(load, o);
	}
	return false;
}

static bool fill_for_setup(struct load *load, struct operation *o)
{
	for (int role = 0; role < ROLES; role++) {
		o->role = (enum role)role;
		if (load->options.roles[role] && plays[role]->set_up &&
			plays[role]->set_up(load, o))
			return true;
	}
	load->setup_asked = true;
	return false;
}

static struct operation *operation_start(struct load *load)
{
	struct operation *o = TAILQ_FIRST(&load->free);
	bool filled;

	if (!o || load->open_count >= load->connection_count + OPERATIONS_WAITING_MAX)
		return NULL;
	o->id = load->next_id;
	o->keyed = true;
	o->doubtful = o->known = o->keep_trying = false;
	o->attempts = 0;
	filled = load->phase == PHASE_SETUP ? fill_for_setup(load, o) : fill_by_share(load, o);
	if (!filled)
		return NULL;
	load->next_id++;
	load->open_count++;
	load->open_of[o->role]++;
	TAILQ_REMOVE(&load->free, o, link);
	o->state = OPERATION_READY;
	return o;
}

struct operation *operation_take(struct load *load)
{
	struct operation *o = TAILQ_FIRST(&load->ready);

	if (o) {
		TAILQ_REMOVE(&load->ready, o, link);
		return o;
	}
	if (load->phase == PHASE_SETUP)
		return operation_start(load);
	if (load->phase != PHASE_RUNNING || load->budget < 1)
		return NULL;
	o = operation_start(load);
	if (o)
		load->budget -= 1;
	return o;
}

void operation_send(struct load *load, struct operation *o, uint32_t target)
{
	assert(o->state == OPERATION_READY);
	o->state = OPERATION_SENT;
	o->attempts++;
	if (o->known)
		log_line(load, o->role, "* %" PRIu64 " %u", o->id, target);
	else if (o->attempts > 1)
		log_line(load, o->role, "+ %" PRIu64 " %u", o->id, target);
	else if (o->keyed && !o->keep_trying)
		log_line(load, o->role, "> %" PRIu64 " %u %s-o%" PRIu64 " %s", o->id, target,
			load->prefix, o->id, o->what);
	else
		log_line(load, o->role, "> %" PRIu64 " %u - %s", o->id, target, o->what);
}
