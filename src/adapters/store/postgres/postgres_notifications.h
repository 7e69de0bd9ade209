/* Notifications, what was given up and what was taken in, in PostgreSQL:
 * ports/notification_repository.h for sessions of a postgres store. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_NOTIFICATIONS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_NOTIFICATIONS_H

#include "ports/notification_repository.h"

extern const struct notification_repository postgres_notification_repository;

#endif
