/*
 * A reload reads and parses the files first and takes the write lock only to swap pointers. A check
 * holds the read lock while it uses keys, so that a reload can free the old keys at once. The cache
 * of known tokens is replaced together with the key that verified them.
 */
#include "access/guard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "access/api_keys.h"
#include "access/bad_tokens.h"
#include "access/token_cache.h"
#include "base/clock.h"
#include "base/metrics.h"

enum refusal { REFUSED_NOTHING_SHOWN, REFUSED_KEY, REFUSED_TOKEN, REFUSED_SCOPE, REFUSALS };

static const char *const refusal_names[REFUSALS] = {"nothing_shown", "key", "token", "scope"};

struct guard {
	struct guard_config config;
	/* guards the next four members; held for reading while keys are in use */
	pthread_rwlock_t lock;
	struct key_ring *keys;            /* NULL if no keys are checked */
	struct token_checker *tokens;     /* NULL if no tokens are checked */
	struct token_cache *known_tokens; /* tokens that `tokens` has accepted */
	int64_t read_us;                  /* wall time at which a file was last read successfully */
	_Atomic uint64_t generation;
	struct tally refused[REFUSALS];
	struct bad_tokens bad_tokens;
};

/* ---- creating, freeing, reloading -------------------------------------------------------- */

static bool checks_keys(const struct guard *guard)
{
	return guard->config.keys_file[0] != '\0';
}

static bool checks_tokens(const struct guard *guard)
{
	return guard->config.tokens.key_file[0] != '\0';
}

/* Creates a lock that prefers writers. With the default kind of lock, overlapping readers keep a
 * writer out, and under load a reload would never finish. */
static void init_lock(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t kind;

	pthread_rwlockattr_init(&kind);
	pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(lock, &kind);
	pthread_rwlockattr_destroy(&kind);
}

struct guard *guard_new(const struct guard_config *config, char *why)
{
	struct guard *guard = qp_calloc(1, sizeof(*guard));

	guard->config = *config;
	init_lock(&guard->lock);
	if (guard_reload(guard, why))
		return guard;
	guard_free(guard);
	return NULL;
}

static void drop_tokens(struct token_checker *tokens, struct token_cache *known)
{
	if (tokens)
		token_checker_free(tokens);
	if (known)
		token_cache_free(known);
}

void guard_free(struct guard *guard)
{
	if (guard->keys)
		key_ring_free(guard->keys);
	drop_tokens(guard->tokens, guard->known_tokens);
	pthread_rwlock_destroy(&guard->lock);
	free(guard);
}

/* Records that a file was read, and whether its keys have changed. The caller must hold the lock
 * for writing. */
static void note_reading(struct guard *guard, bool has_changed)
{
	guard->read_us = clock_wall_us(&clock_system);
	guard->generation += has_changed;
}

static bool reload_keys(struct guard *guard, char *why)
{
	struct key_ring *fresh, *old = guard->keys;

	if (!checks_keys(guard))
		return true;
	fresh = key_ring_read(guard->config.keys_file, why);
	if (!fresh)
		return false;
	pthread_rwlock_wrlock(&guard->lock);
	guard->keys = fresh;
	note_reading(guard, old && !key_ring_is_same(old, fresh));
	pthread_rwlock_unlock(&guard->lock);
	if (old)
		key_ring_free(old);
	return true;
}

static bool reload_tokens(struct guard *guard, char *why)
{
	struct token_checker *fresh, *old = guard->tokens;
	struct token_cache *old_known = guard->known_tokens;

	if (!checks_tokens(guard))
		return true;
	fresh = token_checker_new(&guard->config.tokens, why);
	if (!fresh)
		return false;
	pthread_rwlock_wrlock(&guard->lock);
	guard->tokens = fresh;
	guard->known_tokens = token_cache_new();
	note_reading(guard, old && !token_checker_is_same(old, fresh));
	pthread_rwlock_unlock(&guard->lock);
	drop_tokens(old, old_known);
	return true;
}

bool guard_reload(struct guard *guard, char *why)
{
	char why_tokens[GUARD_WHY_SIZE];
	bool keys, tokens;

	_Static_assert(GUARD_WHY_SIZE == KEYS_WHY_SIZE && GUARD_WHY_SIZE == TOKENS_WHY_SIZE,
		"API keys and tokens write their reasons to the guard's buffer");
	keys = reload_keys(guard, why);
	tokens = reload_tokens(guard, keys ? why : why_tokens);
	return keys && tokens;
}

uint64_t guard_generation(const struct guard *guard)
{
	return atomic_load_explicit(&guard->generation, memory_order_relaxed);
}

/* ---- checking ---------------------------------------------------------------------------- */

/*
 * If there is an Authorization header, returns the API key or token after "Bearer". Otherwise
 * returns the token in the query. Returns {NULL, 0} if the request has neither. An API key in the
 * query is ignored: API keys are long-lived, and browsers and proxies store URLs.
 */
static struct slice shown_by(const struct access_question *question)
{
	struct slice rest = slice_trim(question->authorization);
	struct slice scheme = slice_cut(&rest, ' ');

	if (question->authorization.data)
		return slice_is_nocase(scheme, "Bearer") ? slice_trim(rest) : (struct slice){0};
	return key_is_shown(question->query_token) ? (struct slice){0} : question->query_token;
}

bool access_shows_token(const struct access_question *question)
{
	struct slice shown = shown_by(question);
	bool asks_user = question->access == ACCESS_USER || question->access == ACCESS_OWNER ||
			 question->access == ACCESS_OWNER_STREAM;

	return asks_user && shown.data && !key_is_shown(shown);
}

/* The state of one call of guard_check(). */
struct check {
	struct guard *guard;
	struct arena *arena; /* memory for `caller` */
	const struct access_question *question;
	struct slice shown; /* the API key or token of the request, or {NULL, 0} */
	struct caller *caller;
	const char **why;
	bool is_dry; /* a dry run: refusals are not counted */
};

static enum status refuse(struct check *check, enum refusal refusal, const char *sentence)
{
	if (!check->is_dry)
		tally_add(&check->guard->refused[refusal], 1);
	*check->why = sentence;
	return refusal == REFUSED_SCOPE ? STATUS_FORBIDDEN : STATUS_UNAUTHENTICATED;
}

static void accept(struct check *check, enum caller_kind kind, struct slice name)
{
	*check->caller = (struct caller){.kind = kind, .name = arena_copy(check->arena, name)};
}

static enum status check_key(struct check *check, enum access access)
{
	const struct api_key *key;

	if (!check->shown.data)
		return refuse(check, REFUSED_NOTHING_SHOWN,
			"an API key is required: Authorization: Bearer qk_...");
	key = key_ring_find(check->guard->keys, check->shown);
	if (!key)
		return refuse(check, REFUSED_KEY, "the API key is unknown");
	if (!api_key_opens(key, access, check->question->role))
		return refuse(check, REFUSED_SCOPE,
			"the API key has no scope for this route; docs/SECURITY.md lists the scope "
			"that each route requires");
	accept(check, CALLER_KEY, api_key_id(key));
	return STATUS_OK;
}

/* Returns whether token_check() has checked the signature of a token with this fault. Only such
 * tokens count as bad, because only checking a signature is expensive. (TOKEN_MALFORMED can also
 * mean that a correctly signed token has claims that are no JSON object; such a token is not
 * counted.) */
static bool was_verified(enum token_fault fault)
{
	return fault != TOKEN_GOOD && fault != TOKEN_MALFORMED && fault != TOKEN_OTHER_ALGORITHM;
}

/* Checks a token. Does not verify the signature of a token that is already known to be valid. */
static enum token_fault judge_token(struct check *check, struct token_claims *claims)
{
	struct guard *guard = check->guard;
	uint64_t address = check->question->address;
	int64_t now_us = clock_wall_us(&clock_system), now_ns = clock_steady_ns(&clock_system);
	unsigned char digest[SHA256_SIZE];
	enum token_fault fault;

	if (check->shown.len > TOKEN_SIZE_MAX)
		return TOKEN_MALFORMED;
	digest_sha256(check->shown, digest);
	if (token_cache_find(guard->known_tokens, check->arena, digest, now_us, claims))
		return TOKEN_GOOD;
	if (bad_tokens_are_too_many(&guard->bad_tokens, address, now_ns))
		return TOKEN_NOT_CHECKED;
	fault = token_check(guard->tokens, check->arena, check->shown, now_us, claims);
	if (fault == TOKEN_GOOD)
		token_cache_put(guard->known_tokens, digest, claims);
	if (was_verified(fault))
		bad_tokens_add(&guard->bad_tokens, address, now_ns);
	return fault;
}

static enum status check_token(struct check *check)
{
	struct token_claims claims;
	enum token_fault fault;

	if (!check->shown.data)
		return refuse(check, REFUSED_NOTHING_SHOWN,
			"a user's token is required: Authorization: Bearer <JWT>");
	fault = judge_token(check, &claims);
	if (fault != TOKEN_GOOD) {
		enum status status = refuse(check, REFUSED_TOKEN, token_fault_text(fault));

		return fault == TOKEN_NOT_CHECKED ? STATUS_TOO_MANY_BAD_TOKENS : status;
	}
	accept(check, CALLER_USER, claims.subject);
	check->caller->ends_us = claims.ends_us;
	return STATUS_OK;
}

/* Accepts a token of the user whose id is in the path, or an API key with the scope internal or
 * admin. */
static enum status check_owner(struct check *check)
{
	const struct guard *guard = check->guard;
	enum status status;

	if (checks_keys(guard) && (key_is_shown(check->shown) || !checks_tokens(guard)))
		return check_key(check, ACCESS_INTERNAL);
	if (!checks_tokens(guard))
		return STATUS_OK;
	status = check_token(check);
	if (status == STATUS_OK && !slice_equal(check->caller->name, check->question->user))
		return refuse(check, REFUSED_SCOPE, "the token belongs to another user");
	return status;
}

static enum status decide(struct check *check)
{
	enum access access = check->question->access;

	if (access == ACCESS_OWNER || access == ACCESS_OWNER_STREAM)
		return check_owner(check);
	if (access == ACCESS_USER && checks_tokens(check->guard))
		return check_token(check);
	if (!checks_keys(check->guard))
		return STATUS_OK;
	return check_key(check, access == ACCESS_USER ? ACCESS_INTERNAL : access);
}

enum status guard_check(struct guard *guard, struct arena *arena,
	const struct access_question *question, struct caller *caller, const char **why)
{
	struct check check = {.guard = guard,
		.arena = arena,
		.question = question,
		.shown = shown_by(question),
		.caller = caller,
		.why = why};
	enum status status;

	*caller = (struct caller){.kind = CALLER_ANYONE};
	if (!guard || question->access == ACCESS_PUBLIC)
		return STATUS_OK;
	pthread_rwlock_rdlock(&guard->lock);
	status = decide(&check);
	caller->generation = guard->generation;
	pthread_rwlock_unlock(&guard->lock);
	if (status != STATUS_OK)
		*caller = (struct caller){.kind = CALLER_ANYONE};
	return status;
}

bool guard_would_open(struct guard *guard, struct arena *arena,
	const struct access_question *question, struct slice *name)
{
	struct caller caller = {0};
	const char *why;
	struct check check = {.guard = guard,
		.arena = arena,
		.question = question,
		.shown = shown_by(question),
		.caller = &caller,
		.why = &why,
		.is_dry = true};
	enum status status;

	*name = (struct slice){0};
	if (!guard || question->access == ACCESS_PUBLIC)
		return true;
	if (access_shows_token(question))
		return false;
	pthread_rwlock_rdlock(&guard->lock);
	status = decide(&check);
	pthread_rwlock_unlock(&guard->lock);
	if (status == STATUS_OK)
		*name = caller.name;
	return status == STATUS_OK;
}

/* ---- metrics ----------------------------------------------------------------------------- */

void guard_collect(void *context, struct buffer *page)
{
	struct guard *guard = context;
	size_t keys;
	int64_t read_us;

	pthread_rwlock_rdlock(&guard->lock);
	keys = guard->keys ? key_ring_count(guard->keys) : 0;
	read_us = guard->read_us;
	pthread_rwlock_unlock(&guard->lock);
	metrics_family(page, "quipu_access_refused_total", "counter",
		"Requests refused with 401, with 403, or with 429 for bad tokens, by reason.");
	for (size_t i = 0; i < REFUSALS; i++) {
		char labels[32];

		snprintf(labels, sizeof(labels), "reason=\"%s\"", refusal_names[i]);
		metrics_sample(
			page, "quipu_access_refused_total", labels, tally_read(&guard->refused[i]));
	}
	metrics_family(page, "quipu_access_keys", "gauge", "API keys in use.");
	metrics_sample(page, "quipu_access_keys", "", (int64_t)keys);
	metrics_family(page, "quipu_access_read_seconds", "gauge",
		"When a file with API keys or the key for tokens was last read, in seconds since "
		"1970.");
	metrics_sample(page, "quipu_access_read_seconds", "", read_us / 1000000);
}
