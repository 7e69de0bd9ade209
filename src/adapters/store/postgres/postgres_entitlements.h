/* Entitlements in PostgreSQL: ports/entitlement_repository.h for sessions of a postgres store. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_ENTITLEMENTS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_ENTITLEMENTS_H

#include "ports/entitlement_repository.h"

extern const struct entitlement_repository postgres_entitlement_repository;

#endif
