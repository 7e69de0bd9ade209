/* Reads entitlements in PostgreSQL for `quipu verify`; see ports/entitlement_repository.h. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_ENTITLEMENT_FACTS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_ENTITLEMENT_FACTS_H

#include "ports/entitlement_repository.h"

QP_MUST_CHECK enum status pg_entitlement_list_facts(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct entitlement_facts *rows);

QP_MUST_CHECK enum status pg_entitlement_list_audit(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct audit_facts *lines);

QP_MUST_CHECK enum status pg_entitlement_list_source_owners(
	const struct entitlement_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct source_owner *owners);

#endif
