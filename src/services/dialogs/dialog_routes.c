/* Turns HTTP requests into commands and lookups of dialogs. Runs on the loops and never blocks. */
#include "access/tokens.h"
#include "base/text.h"
#include "base/uuid.h"
#include "inbound/input.h"
#include "inbound/submit.h"
#include "services/dialogs/dialog_batch.h"
#include "services/dialogs/dialog_lists.h"

#define LIST_LIMIT 100
#define CONVERSATIONS_LIMIT 50
#define TEXT_BYTES_MAX (16 * 1024)
#define MESSAGE_BYTES_MAX (6 * TEXT_BYTES_MAX) /* the longest JSON of a message's text */
#define READ_BODY_MAX (1024 * 1024)

/* Returns the caller's id: the subject of the token or, if tokens are not checked, the header
 * X-User-Id. */
static struct slice read_user(struct input *input)
{
	const struct caller *caller = &input->request->caller;
	struct slice user_id = request_header(input->request, "X-User-Id");

	_Static_assert(
		TOKEN_SUBJECT_MAX == ID_BYTES_MAX, "every subject of a token must fit into an id");
	if (caller->kind == CALLER_USER)
		return caller->name;
	if (request_header_count(input->request, "X-User-Id") > 1)
		input_error(input, "X-User-Id", "must be sent once");
	else if (!user_id.data)
		input_error(
			input, "X-User-Id", "the header is required: it names the calling user");
	else if (!text_is_utf8(user_id))
		input_error(input, "X-User-Id", "must be UTF-8");
	else
		input_check_id(input, "X-User-Id", user_id);
	return user_id;
}

static struct dialog_command *new_command(struct input *input, enum dialog_verb verb)
{
	struct dialog_command *command = dialog_command_new(&input->request->arena);

	command->verb = verb;
	command->user_id = command->write.command.key = read_user(input);
	command->traceparent = input->request->traceparent;
	input_read_body(input);
	return command;
}

static void post_message(void *context, struct request *request)
{
	struct dialogs *dialogs = context;
	struct dialog_command *command;
	struct input input;

	input_init(&input, request);
	command = new_command(&input, DIALOG_SEND);
	command->receiver_id = command->write.command.key = input_id(&input, "receiverId");
	command->text = input_text(&input, "text", TEXT_BYTES_MAX,
		"is required, must not be blank and must be at most 16384 bytes");
	submit_write_of(&input, dialogs->lanes, &command->write, command->user_id);
}

static void post_read(void *context, struct request *request)
{
	struct dialogs *dialogs = context;
	struct dialog_command *command;
	struct input input;

	input_init(&input, request);
	command = new_command(&input, DIALOG_READ_ONE);
	input_check_id(&input, "messageId", request->params[0]);
	request->params[0] = uuid_lower(&request->arena, request->params[0]);
	command->message_ids = &request->params[0];
	command->message_count = 1;
	submit_write_of(&input, dialogs->lanes, &command->write, command->user_id);
}

static void post_read_batch(void *context, struct request *request)
{
	struct dialogs *dialogs = context;
	struct dialog_command *command;
	struct slice *ids;
	struct input input;

	input_init(&input, request);
	command = new_command(&input, DIALOG_READ_MANY);
	ids = input_ids(&input, "messageIds", DIALOG_READ_MAX, &command->message_count);
	for (size_t i = 0; i < command->message_count; i++)
		ids[i] = uuid_lower(&request->arena, ids[i]);
	command->message_ids = ids;
	submit_write_of(&input, dialogs->lanes, &command->write, command->user_id);
}

static void post_read_up_to(void *context, struct request *request)
{
	struct dialogs *dialogs = context;
	struct dialog_command *command;
	struct input input;

	input_init(&input, request);
	command = new_command(&input, DIALOG_READ_UP_TO);
	command->sender_id = input_id(&input, "senderId");
	command->up_to = uuid_lower(&request->arena, input_id(&input, "messageId"));
	submit_write_of(&input, dialogs->lanes, &command->write, command->user_id);
}

/* Reads the parameters that both lists share. */
static struct dialog_lookup *new_lookup(
	struct input *input, enum dialog_list list, size_t default_limit)
{
	struct dialog_lookup *lookup = dialog_lookup_new(&input->request->arena);

	lookup->list = list;
	lookup->user_id = lookup->read.command.key = read_user(input);
	lookup->before = input_query(input, "before");
	lookup->limit = input_limit(input, default_limit);
	lookup->read.command.answer_max = answer_list_max(lookup->limit, MESSAGE_BYTES_MAX);
	return lookup;
}

static void get_list(void *context, struct request *request)
{
	struct dialogs *dialogs = context;
	struct dialog_lookup *lookup;
	struct input input;

	input_init(&input, request);
	lookup = new_lookup(&input, DIALOG_LIST_MESSAGES, LIST_LIMIT);
	lookup->other_id = input_query(&input, "receiverId");
	input_check_id(&input, "receiverId", lookup->other_id);
	submit_read(&input, dialogs->lanes, &lookup->read);
}

static void get_conversations(void *context, struct request *request)
{
	struct dialogs *dialogs = context;
	struct dialog_lookup *lookup;
	struct input input;

	input_init(&input, request);
	lookup = new_lookup(&input, DIALOG_LIST_CONVERSATIONS, CONVERSATIONS_LIMIT);
	submit_read(&input, dialogs->lanes, &lookup->read);
}

static const char *const message_members[] = {"receiverId", "text", NULL};
static const char *const read_members[] = {"messageIds", NULL};
static const char *const up_to_members[] = {"senderId", "messageId", NULL};
static const char *const list_parameters[] = {"receiverId", "before", "limit", NULL};
static const char *const conversation_parameters[] = {"before", "limit", NULL};

void dialogs_add_routes(struct dialogs *dialogs, struct router *router)
{
	const struct route routes[] = {
		{"POST", "/dialogs/send", ACCESS_USER, post_message, dialogs, 0, message_members,
			NULL},
		{"GET", "/dialogs", ACCESS_USER, get_conversations, dialogs, 0, NULL,
			conversation_parameters},
		{"GET", "/dialogs/list", ACCESS_USER, get_list, dialogs, 0, NULL, list_parameters},
		{"POST", "/dialogs/read/{messageId}", ACCESS_USER, post_read, dialogs, 0, NULL,
			NULL},
		{"POST", "/dialogs/read-batch", ACCESS_USER, post_read_batch, dialogs,
			READ_BODY_MAX, read_members, NULL},
		{"POST", "/dialogs/read-up-to", ACCESS_USER, post_read_up_to, dialogs, 0,
			up_to_members, NULL},
	};

	router_add_all(router, "dialogs", routes, sizeof(routes) / sizeof(routes[0]));
}
