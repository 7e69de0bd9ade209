/* Limits of users in PostgreSQL: ports/limit_repository.h for sessions of a postgres store. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_LIMITS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_LIMITS_H

#include "ports/limit_repository.h"

extern const struct limit_repository postgres_limit_repository;

#endif
