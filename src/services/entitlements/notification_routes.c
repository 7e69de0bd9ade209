/* The debug inbox: lists the newest notifications of a user. */
#include "inbound/input.h"
#include "inbound/submit.h"
#include "services/entitlements/notifications.h"

#define INBOX_LIMIT 50
#define NOTIFICATION_BYTES_MAX 1024 /* the longest JSON of one notification */

struct inbox_lookup {
	struct read read;
	const struct notifications *notifications;
	struct slice user_id;
	size_t limit;
};

static const struct command_type inbox_lookup_type = {"inbox_lookup", false};

static struct inbox_lookup *inbox_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &inbox_lookup_type);
	return (struct inbox_lookup *)read;
}

static void write_notification(struct buffer *body, const struct notification *notification)
{
	buffer_char(body, '{');
	buffer_member(body, "notification_id", notification->id);
	buffer_member(body, "event_id", notification->event_id);
	buffer_member(body, "event_type", notification->event_type);
	buffer_member(body, "stock_keeping_unit", notification->unit);
	buffer_member_int(body, "version", notification->version);
	buffer_member(body, "status", notification->status);
	buffer_member_int(body, "attempt_count", notification->attempt_count);
	buffer_member_time(body, "occurred_at", notification->occurred_us);
	buffer_member_time(body, "created_at", notification->created_us);
	if (notification->sent_us == 0)
		buffer_text(body, ",\"sent_at\":null");
	else
		buffer_member_time(body, "sent_at", notification->sent_us);
	buffer_char(body, '}');
}

static enum status look_up_inbox(struct read *read, struct session *session, struct arena *arena)
{
	struct inbox_lookup *lookup = inbox_lookup_of(read);
	struct notification *found = arena_array(arena, struct notification, lookup->limit);
	struct buffer body = buffer_make(read->command.arena, 1024);
	struct row_page page = {.user_id = lookup->user_id, .limit = lookup->limit};
	enum status status = lookup->notifications->repository->ops->list(
		lookup->notifications->repository, session, arena, &page, found);

	if (status != STATUS_OK)
		return status;
	buffer_char(&body, '{');
	buffer_member(&body, "user_id", lookup->user_id);
	buffer_text(&body, ",\"notifications\":[");
	for (size_t i = 0; i < page.count; i++) {
		if (i > 0)
			buffer_char(&body, ',');
		write_notification(&body, &found[i]);
	}
	buffer_text(&body, "]}");
	read->command.answer = answer_json(200, buffer_slice(&body));
	return STATUS_OK;
}

static void get_inbox(void *context, struct request *request)
{
	struct notifications *notifications = context;
	struct inbox_lookup *lookup = arena_new(&request->arena, struct inbox_lookup);
	struct input input;

	input_init(&input, request);
	input_check_id(&input, "user_id", request->params[0]);
	lookup->read.command.type = &inbox_lookup_type;
	lookup->read.look_up = look_up_inbox;
	lookup->notifications = notifications;
	lookup->user_id = request->params[0];
	lookup->limit = input_limit(&input, INBOX_LIMIT);
	lookup->read.command.key = lookup->user_id;
	lookup->read.command.answer_max = answer_list_max(lookup->limit, NOTIFICATION_BYTES_MAX);
	submit_read(&input, notifications->lanes, &lookup->read);
}

static const char *const inbox_parameters[] = {"limit", NULL};

void notifications_add_routes(struct notifications *notifications, struct router *router)
{
	const struct route route = {"GET", "/debug/notification/inbox/{user_id}", ACCESS_ADMIN,
		get_inbox, notifications, 0, NULL, inbox_parameters};

	router_add_all(router, "notifications", &route, 1);
}
