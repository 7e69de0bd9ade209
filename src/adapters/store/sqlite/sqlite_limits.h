/* Limits of users in SQLite: ports/limit_repository.h for sessions of a sqlite store. */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_LIMITS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_LIMITS_H

#include "ports/limit_repository.h"

extern const struct limit_repository sqlite_limit_repository;

#endif
