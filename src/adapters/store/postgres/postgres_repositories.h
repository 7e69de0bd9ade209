/*
 * The repositories of a PostgreSQL store. Other folders reach them through the store (struct
 * store_repositories).
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_REPOSITORIES_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_REPOSITORIES_H

#include "adapters/store/postgres/postgres_claims.h"
#include "adapters/store/postgres/postgres_dead_letters.h"
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
struct pg_outbox {
	struct outbox_repository base;
	struct pg_claims claims;
	struct pg_dead_letters dead;
	struct pg_statement put;
	struct pg_statement resend;
};

extern const struct count_repository postgres_count_repository;
extern const struct counter_repository postgres_counter_repository;
extern const struct entitlement_repository postgres_entitlement_repository;
extern const struct limit_repository postgres_limit_repository;
extern const struct message_repository postgres_message_repository;
extern const struct notification_repository postgres_notification_repository;
extern const struct pg_outbox postgres_entitlement_outbox; /* outbox_events */
extern const struct pg_outbox postgres_dialog_outbox;      /* dialog_outbox_events */
extern const struct pot_repository postgres_pot_repository;
extern const struct sent_repository postgres_sent_repository;
extern const struct outbound_repository postgres_outbound_repository;

#endif
