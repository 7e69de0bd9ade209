/* Each kind of request has a function, which is called once in a fixed number of rounds. */
#include "cli/demo_traffic.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"

#define BODY_SIZE 512
#define USERS 3
#define LIMIT_PER_MINUTE 90
#define SEATS 120

static bool is_expected_refusal(int http_status)
{
	return http_status == 409 || http_status == 429;
}

/* Sends a POST. Returns true if the server answered as expected. The caller then releases
 * `answer`. */
static bool post(struct demo_traffic *traffic, struct client *client, const char *target,
	const char *body, struct client_answer *answer)
{
	if (!client_post(client, target, slice_of(body), answer, traffic->why))
		return false;
	if (answer->http_status / 100 == 2) {
		traffic->answered++;
	} else if (is_expected_refusal(answer->http_status)) {
		traffic->refused++;
	} else {
		client_read_problem(client, answer, traffic->why);
		client_answer_release(answer);
		return false;
	}
	return true;
}

/* The same for callers that do not need the answer. */
static bool play(struct demo_traffic *traffic, const char *target, const char *body)
{
	struct client *client = traffic->round % 2 ? traffic->alice : traffic->bob;
	struct client_answer answer;

	if (!post(traffic, client, target, body, &answer))
		return false;
	client_answer_release(&answer);
	return true;
}

/* ---- before the first round -------------------------------------------------------------- */

static bool create_counts(struct demo_traffic *traffic)
{
	char seats[BODY_SIZE];

	snprintf(seats, sizeof(seats),
		"{\"itemId\":\"seats:concert\",\"initialValue\":%d,\"minValue\":0,\"maxValue\":%d}",
		SEATS, SEATS);
	return play(traffic, "/api/v1/internal/counts", "{\"itemId\":\"page:home\"}") &&
	       play(traffic, "/api/v1/internal/counts", "{\"itemId\":\"page:docs\"}") &&
	       play(traffic, "/api/v1/internal/counts", "{\"itemId\":\"page:pricing\"}") &&
	       play(traffic, "/api/v1/internal/counts", seats);
}

static bool create_limits(struct demo_traffic *traffic)
{
	char body[BODY_SIZE];

	for (int user = 1; user <= USERS; user++) {
		snprintf(body, sizeof(body), "{\"userId\":%d,\"rateLimit\":%d,\"timeWindow\":1}",
			user, LIMIT_PER_MINUTE);
		if (!play(traffic, "/api/config", body))
			return false;
	}
	return true;
}

static bool create_pot(struct demo_traffic *traffic)
{
	struct client_answer answer;

	if (!post(traffic, traffic->alice, "/twirp/pyggpot.pot.Pot/CreatePot",
		    "{\"pot_name\":\"demo\",\"max_coins\":100000}", &answer))
		return false;
	traffic->pot_id = (int)json_integer_value(json_object_get(answer.json, "pot_id"));
	client_answer_release(&answer);
	return true;
}

static struct client *connect_as(
	struct demo_traffic *traffic, const struct settings *settings, const char *header)
{
	struct client *client = client_open(settings, traffic->why);

	if (client)
		client_add_header(client, header);
	return client;
}

bool demo_traffic_open(struct demo_traffic *traffic, const struct settings *settings)
{
	memset(traffic, 0, sizeof(*traffic));
	traffic->alice = connect_as(traffic, settings, "X-User-Id: alice");
	traffic->bob = connect_as(traffic, settings, "X-User-Id: bob");
	return traffic->alice && traffic->bob && create_counts(traffic) && create_limits(traffic) &&
	       create_pot(traffic);
}

void demo_traffic_close(struct demo_traffic *traffic)
{
	if (traffic->alice)
		client_close(traffic->alice);
	if (traffic->bob)
		client_close(traffic->bob);
}

/* ---- a round ----------------------------------------------------------------------------- */

static bool count_a_visit(struct demo_traffic *traffic)
{
	static const char *const targets[] = {
		"/api/v1/counts/page:home/increase",
		"/api/v1/counts/page:docs/increase",
		"/api/v1/counts/page:pricing/increase",
	};

	return play(traffic, targets[traffic->round % 3], "");
}

/* After SEATS calls the concert is sold out, and the bound refuses every further call. */
static bool sell_a_seat(struct demo_traffic *traffic)
{
	return play(traffic, "/api/v1/counts/seats:concert/decrease", "");
}

static bool send_a_text(struct demo_traffic *traffic)
{
	char body[BODY_SIZE];

	snprintf(body, sizeof(body), "{\"userId\":%d,\"message\":\"Your code is %06d\"}",
		traffic->round % USERS + 1, traffic->round * 7919 % 1000000);
	return play(traffic, "/api/send", body);
}

static bool grant_a_purchase(struct demo_traffic *traffic)
{
	char body[BODY_SIZE];

	snprintf(body, sizeof(body),
		"{\"user_id\":\"u_%d\",\"stock_keeping_unit\":\"item%d\",\"reason\":\"purchase\","
		"\"purchase_id\":\"p_%d\"}",
		traffic->round % 40, traffic->round % 7, traffic->round);
	return play(traffic, "/v1/entitlements/grants", body);
}

static bool move_coins(struct demo_traffic *traffic)
{
	char body[BODY_SIZE];
	bool adds = traffic->round % 2 == 0;

	if (adds)
		snprintf(body, sizeof(body),
			"{\"pot_id\":%d,\"coins\":[{\"kind\":\"GOLD\",\"count\":2},"
			"{\"kind\":\"BRONZE\",\"count\":5}]}",
			traffic->pot_id);
	else
		snprintf(body, sizeof(body), "{\"pot_id\":%d,\"count\":3}", traffic->pot_id);
	return play(traffic,
		adds ? "/twirp/pyggpot.coin.Coin/AddCoins" : "/twirp/pyggpot.coin.Coin/RemoveCoins",
		body);
}

static bool write_to_bob(struct demo_traffic *traffic)
{
	struct client_answer answer;
	struct slice id;
	char body[BODY_SIZE];

	snprintf(body, sizeof(body), "{\"receiverId\":\"bob\",\"text\":\"Message %d\"}",
		traffic->round);
	if (!post(traffic, traffic->alice, "/dialogs/send", body, &answer))
		return false;
	id = client_text(answer.json, "messageId");
	snprintf(traffic->message_id, sizeof(traffic->message_id), "%.*s", (int)id.len, id.data);
	client_answer_release(&answer);
	return true;
}

static bool read_as_bob(struct demo_traffic *traffic)
{
	struct client_answer answer;
	char body[BODY_SIZE];

	snprintf(body, sizeof(body), "{\"senderId\":\"alice\",\"messageId\":\"%s\"}",
		traffic->message_id);
	if (!post(traffic, traffic->bob, "/dialogs/read-up-to", body, &answer))
		return false;
	client_answer_release(&answer);
	return true;
}

bool demo_traffic_play(struct demo_traffic *traffic)
{
	static const struct {
		int every; /* play it once in this many rounds */
		bool (*play)(struct demo_traffic *traffic);
	} turns[] = {
		{1, count_a_visit},
		{1, send_a_text},
		{2, write_to_bob},
		{3, move_coins},
		{4, sell_a_seat},
		{5, grant_a_purchase},
		{24, read_as_bob},
	};

	for (size_t i = 0; i < sizeof(turns) / sizeof(turns[0]); i++) {
		if (traffic->round % turns[i].every == 0 && !turns[i].play(traffic))
			return false;
	}
	traffic->round++;
	return true;
}
