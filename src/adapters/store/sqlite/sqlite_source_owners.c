/* Lists the entitlements that have sources, for `quipu verify`. */
#include "adapters/store/sqlite/sqlite_source_owners.h"

#include "adapters/store/sqlite/sqlite_internal.h"

/* clang-format off */
#define NEXT_SQL(column, user_id, unit)                                           \
	"(SELECT s." column " FROM entitlement_sources s "                        \
	" WHERE (s.user_id, s.stock_keeping_unit) > (" user_id ", " unit ") "     \
	" ORDER BY s.user_id, s.stock_keeping_unit LIMIT 1)"

#define NEXT_OWNER_SQL(user_id, unit)                                             \
	NEXT_SQL("user_id", user_id, unit) ", "                                   \
	NEXT_SQL("stock_keeping_unit", user_id, unit)

/* Finds each next entitlement with searches of the primary key that skip all sources of the
 * previous entitlement. So the time does not depend on how many sources an entitlement has. */
static const char owners_sql[] =
	"WITH RECURSIVE owner(user_id, unit) AS ("
	"  SELECT " NEXT_OWNER_SQL("?1", "?2") " "
	"  UNION ALL "
	"  SELECT " NEXT_OWNER_SQL("o.user_id", "o.unit") " FROM owner o WHERE o.user_id IS NOT NULL) "
	"SELECT o.user_id, o.unit, EXISTS ("
	"    SELECT 1 FROM entitlements e "
	"    WHERE e.user_id = o.user_id AND e.stock_keeping_unit = o.unit) "
	"FROM owner o "
	"WHERE o.user_id IS NOT NULL LIMIT ?5";
/* clang-format on */

static void fill_owner(void *row, struct arena *arena, const struct sqlite_query *query)
{
	*(struct source_owner *)row = (struct source_owner){
		.user_id = sqlite_query_keep(query, arena, 0),
		.unit = sqlite_query_keep(query, arena, 1),
		.has_row = sqlite_query_int(query, 2) != 0,
	};
}

enum status sqlite_entitlement_list_source_owners(const struct entitlement_repository *repository,
	struct session *base, struct arena *arena, struct row_page *page,
	struct source_owner *owners)
{
	static const struct sqlite_list all = {
		.sql = owners_sql,
		.row_size = sizeof(struct source_owner),
		.fill = fill_owner,
	};

	return sqlite_list_rows(base, arena, &all, page, owners);
}
