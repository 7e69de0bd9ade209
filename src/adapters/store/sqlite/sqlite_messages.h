/* Messages between users in SQLite: ports/message_repository.h for sessions of a sqlite store. */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_MESSAGES_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_MESSAGES_H

#include "ports/message_repository.h"

extern const struct message_repository sqlite_message_repository;

#endif
