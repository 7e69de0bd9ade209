/*
 * Checks dialogs for `quipu verify` (admin/verify.h). The row of a conversation is written in the
 * same transaction as its messages, its span (roughly the time of the last message) only grows, and
 * messages are not deleted. Therefore the check reads each row before and after the messages. It
 * reports the row if the first read is ahead of the messages or the second read is behind them.
 * While a person is being erased, which takes several transactions, rows of that person may differ.
 * Differences, besides those of admin/verify_claims.h and admin/verify_idempotency.h:
 *
 *   no-conversation   two users have messages, but one of them has no row for the conversation
 *   no-message        a row for two users who have no messages
 *   span-differs      the time in the row is not that of the last message
 *
 * How many messages are unread is not stored with conversations; it is counted when they are
 * listed.
 */
#ifndef QUIPU_SERVICES_DIALOGS_VERIFY_H
#define QUIPU_SERVICES_DIALOGS_VERIFY_H

#include "admin/verify.h"
#include "services/dialogs/dialogs.h"

/* Returns the verifier. `dialogs` must outlive it. */
struct verifier dialogs_verifier(const struct dialogs *dialogs);

#endif
