/*
 * The traffic of quipu demo: in each round, a few dozen requests to all services arrive at the same
 * moment, each on a connection of its own, so that the server has something to combine. How many
 * there are rises and falls. Some are refused by a limit. Main thread.
 */
#ifndef QUIPU_CLI_DEMO_TRAFFIC_H
#define QUIPU_CLI_DEMO_TRAFFIC_H

#include "cli/client.h"

#define DEMO_PEOPLE 8
#define DEMO_POTS 4

struct demo_traffic {
	struct client_group *group;
	struct demo_visitor *visitors;
	struct client_post *posts; /* of this round, each from the visitor at the same place */
	size_t post_count;
	int round;
	int texts; /* planned so far */
	int purchases;
	int pot_ids[DEMO_POTS];
	char message_ids[DEMO_PEOPLE][64]; /* the last one that each person wrote; "" without one */
	int answered;                      /* with 2xx */
	int refused;                       /* with 409 or 429, by limits and bounds */
	char why[CLIENT_WHY_SIZE];
};

/*
 * Connects the visitors to the server and creates counts, limits and pots. On failure returns false
 * with the reason in `traffic->why`. demo_traffic_close() must be called in any case.
 */
QP_MUST_CHECK bool demo_traffic_open(struct demo_traffic *traffic, const struct settings *settings);
void demo_traffic_close(struct demo_traffic *traffic);

/* Plays one round. If the server did not answer, or answered with an unexpected error, returns
 * false with the reason in `traffic->why`. */
QP_MUST_CHECK bool demo_traffic_play(struct demo_traffic *traffic);

#endif
