/* Events that wait to be published, in SQLite: ports/outbox_repository.h for sessions of a sqlite
 * store. */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_OUTBOX_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_OUTBOX_H

#include "ports/outbox_repository.h"

extern const struct outbox_repository sqlite_entitlement_outbox; /* outbox_events */
extern const struct outbox_repository sqlite_dialog_outbox;      /* dialog_outbox_events */

#endif
