/* Counts in PostgreSQL: ports/count_repository.h for sessions of a postgres store. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_COUNTS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_COUNTS_H

#include "ports/count_repository.h"

extern const struct count_repository postgres_count_repository;

#endif
