/* Entitlements in SQLite: ports/entitlement_repository.h for sessions of a sqlite store. */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_ENTITLEMENTS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_ENTITLEMENTS_H

#include "ports/entitlement_repository.h"

extern const struct entitlement_repository sqlite_entitlement_repository;

#endif
