/* Untrusted bytes as entitlement events: the texts of every event that is accepted are within their
 * bounds, and the event can be packed again. */
#include "base/text.h"
#include "events/entitlement_event.h"
#include "target.h"

static void check_text(struct slice text)
{
	MUST(text.len > 0 && text.len <= 128);
	MUST(text_is_utf8(text) && !text_has_control(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct entitlement_event event, again;
	struct arena arena;

	arena_init(&arena, 16 * 1024);
	if (!entitlement_event_unpack(&arena, slice_make(data, size), &event)) {
		check_text(event.event_id);
		check_text(event.user_id);
		check_text(event.unit);
		MUST(text_is_utf8(event.source) && text_is_utf8(event.source_id));
		MUST(event.version > 0 && event.occurred_us >= 0);
		MUST(!entitlement_event_unpack(
			&arena, entitlement_event_pack(&arena, &event), &again));
		MUST(slice_equal(event.user_id, again.user_id));
		MUST(event.occurred_us == again.occurred_us && event.version == again.version);
	}
	arena_release(&arena);
	return 0;
}
