/*
 * Functions such as write_messages() plan the requests of a round. All planned requests are then
 * sent at once, each by a visitor with a connection of its own.
 */
#include "cli/demo_traffic.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define VISITORS 96 /* one for each request of the largest round */
#define BODY_SIZE 256
#define USERS 30
#define FIRST_USER 101
#define LIMIT_PER_MINUTE 60
#define SEATS 150

static const char *const people[DEMO_PEOPLE] = {
	"alice", "bob", "frank", "grace", "heidi", "ivan", "judy", "karl"};

struct demo_visitor {
	struct client *client;
	char body[BODY_SIZE];
	/* Stores an id from the answer for later requests. NULL if no later request needs an id. */
	void (*learn)(struct demo_traffic *traffic, int subject, const json_t *json);
	int subject;
};

/* ---- sending ----------------------------------------------------------------------------- */

/* Plans a request of the next visitor. Formats the body of the request like printf(). */
QP_PRINTF(3, 4)
static struct demo_visitor *plan(
	struct demo_traffic *traffic, const char *target, const char *format, ...)
{
	size_t at = traffic->post_count++;
	struct demo_visitor *visitor = &traffic->visitors[at];
	va_list values;

	assert(at < VISITORS);
	va_start(values, format);
	vsnprintf(visitor->body, sizeof(visitor->body), format, values);
	va_end(values);
	visitor->learn = NULL;
	traffic->posts[at] = (struct client_post){
		.client = visitor->client,
		.target = target,
		.body = slice_of(visitor->body),
	};
	return visitor;
}

/* Returns the index in `people` of the person whose visitor sends the next planned request. */
static int next_person(const struct demo_traffic *traffic)
{
	return (int)(traffic->post_count % DEMO_PEOPLE);
}

static bool is_expected_refusal(int http_status)
{
	return http_status == 409 || http_status == 429;
}

/* Counts an answer. If the answer is an unexpected error, returns false with the reason in
 * traffic->why. */
static bool take_answer(struct demo_traffic *traffic, size_t at)
{
	const struct demo_visitor *visitor = &traffic->visitors[at];
	const struct client_answer *answer = &traffic->posts[at].answer;

	if (is_expected_refusal(answer->http_status)) {
		traffic->refused++;
		return true;
	}
	if (answer->http_status / 100 != 2) {
		client_read_problem(visitor->client, answer, traffic->why);
		return false;
	}
	traffic->answered++;
	if (visitor->learn)
		visitor->learn(traffic, visitor->subject, answer->json);
	return true;
}

/* Sends all planned requests at once. On failure returns false with the reason in traffic->why. */
static bool send_planned(struct demo_traffic *traffic)
{
	size_t count = traffic->post_count;
	bool ok = true;

	traffic->post_count = 0;
	if (!client_group_post(traffic->group, traffic->posts, count, traffic->why))
		return false;
	for (size_t i = 0; i < count; i++) {
		ok = ok && take_answer(traffic, i);
		client_answer_release(&traffic->posts[i].answer);
	}
	return ok;
}

/* ---- before the first round -------------------------------------------------------------- */

static void create_counts(struct demo_traffic *traffic)
{
	static const char *const pages[] = {"page:home", "page:docs", "page:pricing"};
	const char *target = "/api/v1/internal/counts";

	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		plan(traffic, target, "{\"itemId\":\"%s\"}", pages[i]);
	plan(traffic, target,
		"{\"itemId\":\"seats:concert\",\"initialValue\":%d,\"minValue\":0,\"maxValue\":%d}",
		SEATS, SEATS);
}

static void create_limits(struct demo_traffic *traffic)
{
	for (int i = 0; i < USERS; i++)
		plan(traffic, "/api/config", "{\"userId\":%d,\"rateLimit\":%d,\"timeWindow\":1}",
			FIRST_USER + i, LIMIT_PER_MINUTE);
}

static void learn_pot(struct demo_traffic *traffic, int subject, const json_t *json)
{
	traffic->pot_ids[subject] = (int)json_integer_value(json_object_get(json, "pot_id"));
}

static void create_pots(struct demo_traffic *traffic)
{
	for (int i = 0; i < DEMO_POTS; i++) {
		struct demo_visitor *visitor = plan(traffic, "/twirp/pyggpot.pot.Pot/CreatePot",
			"{\"pot_name\":\"demo-%d\",\"max_coins\":1000}", i + 1);

		visitor->learn = learn_pot;
		visitor->subject = i;
	}
}

static void fill_pots(struct demo_traffic *traffic)
{
	for (int i = 0; i < DEMO_POTS; i++)
		plan(traffic, "/twirp/pyggpot.coin.Coin/AddCoins",
			"{\"pot_id\":%d,\"coins\":[{\"kind\":\"SILVER\",\"count\":100}]}",
			traffic->pot_ids[i]);
}

static bool connect_visitors(struct demo_traffic *traffic, const struct settings *settings)
{
	char header[64];

	for (int i = 0; i < VISITORS; i++) {
		struct client *client = client_open(settings, traffic->why);

		if (!client)
			return false;
		snprintf(header, sizeof(header), "X-User-Id: %s", people[i % DEMO_PEOPLE]);
		client_add_header(client, header);
		traffic->visitors[i].client = client;
	}
	return true;
}

bool demo_traffic_open(struct demo_traffic *traffic, const struct settings *settings)
{
	memset(traffic, 0, sizeof(*traffic));
	traffic->group = client_group_new();
	traffic->visitors = qp_calloc(VISITORS, sizeof(*traffic->visitors));
	traffic->posts = qp_calloc(VISITORS, sizeof(*traffic->posts));
	if (!connect_visitors(traffic, settings))
		return false;
	create_counts(traffic);
	create_limits(traffic);
	create_pots(traffic);
	if (!send_planned(traffic))
		return false;
	fill_pots(traffic);
	return send_planned(traffic);
}

void demo_traffic_close(struct demo_traffic *traffic)
{
	for (int i = 0; i < VISITORS; i++) {
		if (traffic->visitors[i].client)
			client_close(traffic->visitors[i].client);
	}
	client_group_free(traffic->group);
	free(traffic->visitors);
	free(traffic->posts);
}

/* ---- a round ----------------------------------------------------------------------------- */

/* Returns a number that depends on the round: every `period` rounds, it rises from 1 to `most` and
 * falls again. */
static int wave(const struct demo_traffic *traffic, int period, int most)
{
	int at = traffic->round % period;
	int risen = at < period / 2 ? at : period - at;

	return 1 + risen * (most - 1) / (period / 2);
}

static void learn_message(struct demo_traffic *traffic, int subject, const json_t *json)
{
	struct slice id = client_text(json, "messageId");

	snprintf(traffic->message_ids[subject], sizeof(traffic->message_ids[subject]), "%.*s",
		(int)id.len, id.data);
}

/* Plans up to 8 messages. Each goes from one person to the next person in `people`. */
static void write_messages(struct demo_traffic *traffic)
{
	for (int i = wave(traffic, 100, 8); i > 0; i--) {
		int sender = next_person(traffic);
		struct demo_visitor *visitor = plan(traffic, "/dialogs/send",
			"{\"receiverId\":\"%s\",\"text\":\"Message %d\"}",
			people[(sender + 1) % DEMO_PEOPLE], traffic->round);

		visitor->learn = learn_message;
		visitor->subject = sender;
	}
}

static void read_messages(struct demo_traffic *traffic)
{
	for (int i = 0; i < 4 && traffic->round % 12 == 11; i++) {
		int sender = (next_person(traffic) + DEMO_PEOPLE - 1) % DEMO_PEOPLE;

		if (*traffic->message_ids[sender])
			plan(traffic, "/dialogs/read-up-to",
				"{\"senderId\":\"%s\",\"messageId\":\"%s\"}", people[sender],
				traffic->message_ids[sender]);
	}
}

static void count_visits(struct demo_traffic *traffic)
{
	static const char *const targets[] = {
		"/api/v1/counts/page:home/increase",
		"/api/v1/counts/page:docs/increase",
		"/api/v1/counts/page:pricing/increase",
	};

	for (int i = wave(traffic, 160, 60); i > 0; i--)
		plan(traffic, targets[i % 3], "%s", "");
}

/* After SEATS requests the concert is sold out: the count has reached its lower bound, and the
 * server refuses to decrease it further. */
static void sell_seats(struct demo_traffic *traffic)
{
	for (int i = 0; i < 2 && traffic->round % 4 == 0; i++)
		plan(traffic, "/api/v1/counts/seats:concert/decrease", "%s", "");
}

static void send_texts(struct demo_traffic *traffic)
{
	for (int i = wave(traffic, 70, 12); i > 0; i--, traffic->texts++)
		plan(traffic, "/api/send", "{\"userId\":%d,\"message\":\"Your code is %06d\"}",
			FIRST_USER + traffic->texts % USERS,
			traffic->texts % 1000 * 7919 % 1000000);
}

/* Removes as many coins as it adds, so that no pot overflows or becomes empty. */
static void move_coins(struct demo_traffic *traffic)
{
	for (int i = wave(traffic, 50, 3); i > 0; i--) {
		int pot_id = traffic->pot_ids[(traffic->round + i) % DEMO_POTS];

		plan(traffic, "/twirp/pyggpot.coin.Coin/AddCoins",
			"{\"pot_id\":%d,\"coins\":[{\"kind\":\"GOLD\",\"count\":1},"
			"{\"kind\":\"BRONZE\",\"count\":2}]}",
			pot_id);
		plan(traffic, "/twirp/pyggpot.coin.Coin/RemoveCoins", "{\"pot_id\":%d,\"count\":3}",
			pot_id);
	}
}

static void grant_purchases(struct demo_traffic *traffic)
{
	for (int i = wave(traffic, 120, 4); i > 0; i--, traffic->purchases++)
		plan(traffic, "/v1/entitlements/grants",
			"{\"user_id\":\"u_%d\",\"stock_keeping_unit\":\"item%d\","
			"\"reason\":\"purchase\",\"purchase_id\":\"p_%d\"}",
			traffic->purchases % 40, traffic->purchases % 7, traffic->purchases);
}

bool demo_traffic_play(struct demo_traffic *traffic)
{
	write_messages(traffic);
	read_messages(traffic);
	count_visits(traffic);
	sell_seats(traffic);
	send_texts(traffic);
	move_coins(traffic);
	grant_purchases(traffic);
	traffic->round++;
	return send_planned(traffic);
}
