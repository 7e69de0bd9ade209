/* The sender's record of what it has sent in PostgreSQL: ports/sent_repository.h for sessions of a
 * postgres store. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_SENT_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_SENT_H

#include "ports/sent_repository.h"

extern const struct sent_repository postgres_sent_repository;

#endif
