/* The sender's record of what it has sent in SQLite: ports/sent_repository.h for sessions of a
 * sqlite store. */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_SENT_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_SENT_H

#include "ports/sent_repository.h"

extern const struct sent_repository sqlite_sent_repository;

#endif
