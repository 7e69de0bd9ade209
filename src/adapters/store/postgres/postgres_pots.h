/* Pots in PostgreSQL: ports/pot_repository.h for sessions of a postgres store. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_POTS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_POTS_H

#include "ports/pot_repository.h"

extern const struct pot_repository postgres_pot_repository;

#endif
