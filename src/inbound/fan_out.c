/*
 * An arena belongs to one thread, but several committers run the writes of one request at once. So
 * each lane gets an arena of its own for the answers of its writes, and only the loop allocates
 * from the request's arena.
 */
#include "inbound/fan_out.h"

#include <assert.h>

#include "base/container.h"
#include "base/hash.h"

#define LANE_ARENA_SIZE 4096
#define ANSWER_BYTES_MAX 1024 /* the longest answer of one write */
#define LANES_MAX 64          /* the most lanes that a service can have (--lanes) */

struct fan;

/* A lane that runs some of the writes, and the memory for their answers. */
struct fan_lane {
	struct arena arena;
	struct lane *lane;
	struct fan *fan;
};

struct fan {
	struct command whole; /* carries the answer of the whole request */
	struct request *request;
	struct write **writes;
	size_t count;
	size_t missing; /* how many writes are not answered yet; see fan_out() */
	struct fan_lane *lanes;
	size_t lane_count;
	struct answer (*render)(struct arena *arena, struct write *const *writes, size_t count);
};

static const struct command_type fan_type = {"fan", true};

static struct fan_lane *lane_of(struct fan *fan, struct lane *lane)
{
	struct fan_lane *found = fan->lanes;

	while (found < fan->lanes + fan->lane_count && found->lane != lane)
		found++;
	if (found == fan->lanes + fan->lane_count) {
		assert(fan->lane_count < LANES_MAX);
		*found = (struct fan_lane){.lane = lane, .fan = fan};
		arena_init(&found->arena, LANE_ARENA_SIZE);
		fan->lane_count++;
	}
	return found;
}

/* Renders the answer of the request if the client still waits, and frees the arenas of the lanes.
 * All writes are answered, so no other thread uses these arenas any more. */
static void finish(struct fan *fan)
{
	struct command *whole = &fan->whole;
	struct fan_lane *lanes = fan->lanes;
	size_t lane_count = fan->lane_count;

	if (fan->request->connection)
		whole->answer = fan->render(whole->arena, fan->writes, fan->count);
	for (size_t i = 0; i < lane_count; i++)
		arena_release(&lanes[i].arena);
	whole->task.run(&whole->task);
}

static void count_back(struct fan *fan)
{
	if (--fan->missing == 0)
		finish(fan);
}

static void on_answered(struct loop_task *task)
{
	struct command *command = CONTAINER_OF(task, struct command, task);

	command_sign(command);
	count_back(CONTAINER_OF(command->arena, struct fan_lane, arena)->fan);
}

static void submit(struct fan *fan, struct command *command, struct lane *lane)
{
	const struct command *whole = &fan->whole;

	command->task.run = on_answered;
	command->loop = whole->loop;
	command->arena = &lane_of(fan, lane)->arena;
	command->deadline_ns = whole->deadline_ns;
	command->bytes = whole->bytes / fan->count;
	atomic_init(&command->client_gone, false);
	if (lane_submit(lane, command) == STATUS_OK)
		return;
	command->answer = answer_failure(whole->arena, STATUS_OVERLOADED);
	fan->missing--;
}

void fan_out(struct input *input, struct lane_set *lanes, struct write **writes, size_t count,
	struct answer (*render)(struct arena *arena, struct write *const *writes, size_t count))
{
	struct request *request = input->request;
	struct fan *fan;

	if (input_refuse(input))
		return;
	fan = arena_new(&request->arena, struct fan);
	fan->request = request;
	fan->writes = writes;
	fan->count = count;
	/* counts this function as one more write, so that the request is not finished before all
	 * writes are submitted */
	fan->missing = count + 1;
	fan->lanes = arena_array(&request->arena, struct fan_lane, LANES_MAX);
	fan->render = render;
	fan->whole.type = &fan_type;
	fan->whole.answer_max = answer_list_max(count, ANSWER_BYTES_MAX);
	if (!request_expect(request, &fan->whole))
		return;
	for (size_t i = 0; i < count; i++) {
		struct command *command = &writes[i]->command;

		command->hash = hash_bytes(command->key);
		submit(fan, command, lane_set_writer(lanes, command->hash));
	}
	count_back(fan);
}
