/*
 * The repositories of a SQLite store. Other folders get them from the store (struct
 * store_repositories).
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_REPOSITORIES_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_REPOSITORIES_H

#include "adapters/store/sqlite/sqlite_claims.h"
#include "adapters/store/sqlite/sqlite_dead_letters.h"
#include "ports/count_repository.h"
#include "ports/counter_repository.h"
#include "ports/entitlement_repository.h"
#include "ports/limit_repository.h"
#include "ports/message_repository.h"
#include "ports/notification_repository.h"
#include "ports/outbound_repository.h"
#include "ports/outbox_repository.h"
#include "ports/pot_repository.h"
#include "ports/sent_repository.h"

/* A table of events; see ports/outbox_repository.h. */
struct sqlite_outbox {
	struct outbox_repository base;
	struct sqlite_claims claims;
	struct sqlite_dead_letters dead;
	const char *put;
	const char *resend;
};

extern const struct count_repository sqlite_count_repository;
extern const struct counter_repository sqlite_counter_repository;
extern const struct entitlement_repository sqlite_entitlement_repository;
extern const struct limit_repository sqlite_limit_repository;
extern const struct message_repository sqlite_message_repository;
extern const struct notification_repository sqlite_notification_repository;
extern const struct sqlite_outbox sqlite_entitlement_outbox; /* outbox_events */
extern const struct sqlite_outbox sqlite_dialog_outbox;      /* dialog_outbox_events */
extern const struct pot_repository sqlite_pot_repository;
extern const struct sent_repository sqlite_sent_repository;
extern const struct outbound_repository sqlite_outbound_repository;

#endif
