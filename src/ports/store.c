#include "ports/store.h"

#include "base/digest.h"

bool idempotency_is_same(const struct idempotency_record *record, struct slice stored)
{
	unsigned char first[SHA256_SIZE];

	_Static_assert(FINGERPRINT_SIZE_1 == SHA256_SIZE,
		"a fingerprint of the first version is a SHA-256");
	if (stored.len != FINGERPRINT_SIZE_1)
		return slice_equal(stored, slice_make(record->fingerprint, FINGERPRINT_SIZE));
	digest_parts(record->typed, 3, first);
	return slice_equal(stored, slice_make(first, sizeof(first)));
}

bool store_distribute(struct store *store, bool dry_run, FILE *out, char *why, size_t size)
{
	char reason[384] = "";

	if (!store->ops->distribute)
		snprintf(reason, sizeof(reason), "%s cannot spread tables over several nodes",
			store->engine);
	else if (store->ops->distribute(store, dry_run, out, reason, sizeof(reason)))
		return true;
	snprintf(why, size, "%s: %s", store->name, reason);
	return false;
}
