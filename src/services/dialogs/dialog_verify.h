/*
 * Checks dialogs for `quipu verify` (admin/verify.h). The row of a conversation is written in the
 * same transaction as its messages. The row's span, which is roughly the time of the last message,
 * only grows, and messages are not deleted. Therefore the check reads each row twice, before and
 * after the messages. It reports the row if the span from the first read is later than the last
 * message, or if the span from the second read is earlier than the last message. Erasing a person
 * takes several transactions; in the meantime, rows of that person may be reported. Differences,
 * besides those of admin/verify_claims.h and admin/verify_idempotency.h:
 *
 *   no-conversation   two users have messages, but one of them has no row for the conversation
 *   no-message        a row for two users who have no messages
 *   span-differs      the span in the row does not match the last message
 *
 * Unread counts are not checked, because they are not stored with conversations: unread messages
 * are counted when conversations are listed.
 */
#ifndef QUIPU_SERVICES_DIALOGS_VERIFY_H
#define QUIPU_SERVICES_DIALOGS_VERIFY_H

#include "admin/verify.h"
#include "services/dialogs/dialogs.h"

/* Returns the verifier. `dialogs` must outlive it. */
struct verifier dialogs_verifier(const struct dialogs *dialogs);

#endif
