/* Pots in SQLite: ports/pot_repository.h for sessions of an sqlite store. */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_POTS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_POTS_H

#include "ports/pot_repository.h"

extern const struct pot_repository sqlite_pot_repository;

#endif
