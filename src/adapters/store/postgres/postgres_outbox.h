/* Events that wait to be published, in PostgreSQL: ports/outbox_repository.h for sessions of a
 * postgres store. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_OUTBOX_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_OUTBOX_H

#include "ports/outbox_repository.h"

extern const struct outbox_repository postgres_entitlement_outbox; /* outbox_events */
extern const struct outbox_repository postgres_dialog_outbox;      /* dialog_outbox_events */

#endif
