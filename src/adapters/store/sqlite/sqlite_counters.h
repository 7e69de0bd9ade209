/* Counters of unread messages in SQLite: ports/counter_repository.h for sessions of a sqlite store.
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_COUNTERS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_COUNTERS_H

#include "ports/counter_repository.h"

extern const struct counter_repository sqlite_counter_repository;

#endif
