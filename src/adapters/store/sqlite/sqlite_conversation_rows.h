/* The lists of conversations that `quipu verify` reads; see ports/message_repository.h. */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_CONVERSATION_ROWS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_CONVERSATION_ROWS_H

#include "ports/message_repository.h"

QP_MUST_CHECK enum status sqlite_conversation_list_rows(const struct message_repository *repository,
	struct session *base, struct arena *arena, struct row_page *page,
	struct conversation_row *rows);
QP_MUST_CHECK enum status sqlite_conversation_list_directions(
	const struct message_repository *repository, struct session *base, struct arena *arena,
	struct row_page *page, struct conversation_row *rows);
QP_MUST_CHECK enum status sqlite_conversation_find_rows(const struct message_repository *repository,
	struct session *base, struct arena *arena, struct conversation_row *rows, size_t count);

#endif
