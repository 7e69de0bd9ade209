#include "admin/verify_idempotency.h"

#include "base/text.h"
#include "flow/write.h"

struct slice verify_idempotency_id(struct verify_page *page, const struct kept_answer *key)
{
	struct buffer id = buffer_make(page->arena, key->scope.len + key->key.len + 1);

	buffer_add(&id, key->scope);
	buffer_char(&id, ' ');
	buffer_add(&id, key->key);
	return buffer_slice(&id);
}

static bool is_pending(const struct kept_answer *key)
{
	return key->owner.len > 0;
}

static void check_pending(const struct verify_idempotency *kind, struct verify_page *page,
	const struct kept_answer *key)
{
	int64_t lease_us = key->lease_us - page->rows.now_us;
	struct slice id = verify_idempotency_id(page, key);
	int64_t number;

	if (!kind->may_wait)
		verify_differ(page, id, "pending",
			"%.*s: it is pending, but requests of this kind have no effect outside the "
			"store",
			(int)id.len, id.data);
	if (lease_us > IDEMPOTENCY_LEASE_US + VERIFY_SKEW_US)
		verify_differ(page, id, "long-lease",
			"%.*s: its lease lasts another %lld s, which is longer than any lease",
			(int)id.len, id.data, (long long)(lease_us / 1000000));
	if (kind->notes_number && !text_to_int(key->note, &number))
		verify_differ(page, id, "note", "%.*s: it is pending, but its note is not a number",
			(int)id.len, id.data);
}

static void check_key(const struct verify_idempotency *kind, struct verify_page *page,
	const struct kept_answer *key)
{
	struct answer answer = {.http_status = key->http_status};
	struct slice id = verify_idempotency_id(page, key);

	if (key->fingerprint_size != FINGERPRINT_SIZE &&
		key->fingerprint_size != FINGERPRINT_SIZE_1)
		verify_differ(page, id, "fingerprint",
			"%.*s: its fingerprint has %zu bytes instead of %d or %d", (int)id.len,
			id.data, key->fingerprint_size, FINGERPRINT_SIZE, FINGERPRINT_SIZE_1);
	if (!write_answer_is_kept(&answer))
		verify_differ(page, id, "not-kept",
			"%.*s: an answer with the status %d is never kept", (int)id.len, id.data,
			key->http_status);
	if (is_pending(key))
		check_pending(kind, page, key);
}

static enum status check_final(const struct verify_idempotency *kind, const void *context,
	struct session *session, struct verify_page *page, const struct kept_answer *keys)
{
	struct kept_answer *final = arena_array(page->arena, struct kept_answer, page->rows.count);
	size_t count = 0;

	for (size_t i = 0; i < page->rows.count; i++) {
		if (!is_pending(&keys[i]))
			final[count++] = keys[i];
	}
	return count > 0 ? kind->check(context, session, page, final, count) : STATUS_OK;
}

enum status verify_idempotency_look(const struct verify_idempotency *kind, const void *context,
	struct session *session, struct verify_page *page)
{
	struct kept_answer *keys = arena_array(page->arena, struct kept_answer, page->rows.limit);
	enum status status = session->ops->idempotency_list(
		session, page->arena, slice_of(kind->prefix), &page->rows, keys);
	const struct kept_answer *last;

	if (status != STATUS_OK || page->rows.count == 0)
		return status;
	for (size_t i = 0; i < page->rows.count; i++)
		check_key(kind, page, &keys[i]);
	last = &keys[page->rows.count - 1];
	verify_finish(page, last->scope, last->key);
	return kind->check ? check_final(kind, context, session, page, keys) : STATUS_OK;
}
