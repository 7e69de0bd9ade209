/* Counts in SQLite: ports/count_repository.h for sessions of an sqlite store. */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_COUNTS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_COUNTS_H

#include "ports/count_repository.h"

extern const struct count_repository sqlite_count_repository;

#endif
