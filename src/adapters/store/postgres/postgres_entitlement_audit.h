/* The audit of one user's entitlements, for the repository in postgres_entitlements.c. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_ENTITLEMENT_AUDIT_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_ENTITLEMENT_AUDIT_H

#include "ports/entitlement_repository.h"

QP_MUST_CHECK enum status pg_entitlement_read_audit(const struct entitlement_repository *repository,
	struct session *base, struct arena *arena, struct audit_page *page);

#endif
