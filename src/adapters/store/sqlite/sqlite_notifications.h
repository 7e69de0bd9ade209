/* Notifications, what was given up and what was taken in, in SQLite:
 * ports/notification_repository.h for sessions of a sqlite store. */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_NOTIFICATIONS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_NOTIFICATIONS_H

#include "ports/notification_repository.h"

extern const struct notification_repository sqlite_notification_repository;

#endif
