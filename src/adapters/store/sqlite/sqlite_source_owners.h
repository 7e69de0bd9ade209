/* Lists the entitlements that have sources, for the repository in sqlite_entitlements.c. */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SOURCE_OWNERS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SOURCE_OWNERS_H

#include "ports/entitlement_repository.h"

QP_MUST_CHECK enum status sqlite_entitlement_list_source_owners(
	const struct entitlement_repository *repository, struct session *base, struct arena *arena,
	struct row_page *page, struct source_owner *owners);

#endif
