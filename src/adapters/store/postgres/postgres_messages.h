/* Messages between users in PostgreSQL: ports/message_repository.h for sessions of a postgres
 * store. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_MESSAGES_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_MESSAGES_H

#include "ports/message_repository.h"

extern const struct message_repository postgres_message_repository;

#endif
