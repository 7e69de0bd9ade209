/* Counters of unread messages in PostgreSQL: ports/counter_repository.h for sessions of a postgres
 * store. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_COUNTERS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_COUNTERS_H

#include "ports/counter_repository.h"

extern const struct counter_repository postgres_counter_repository;

#endif
