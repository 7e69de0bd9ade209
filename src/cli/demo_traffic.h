/*
 * Plays the traffic of quipu demo. In each round, a few dozen requests to all services arrive at
 * the same moment, each on a connection of its own, so that the server can combine them into
 * batches. The number of requests rises and falls, and limits refuse some of them. Main thread
 * only.
 */
#ifndef QUIPU_CLI_DEMO_TRAFFIC_H
#define QUIPU_CLI_DEMO_TRAFFIC_H

#include "cli/client.h"

#define DEMO_PEOPLE 8
#define DEMO_POTS 4

struct demo_traffic {
	struct client_group *group;
	struct demo_visitor *visitors;
	struct client_post *posts; /* the requests of this round; visitors[i] sends posts[i] */
	size_t post_count;
	int round;
	int texts;     /* how many text messages were planned so far */
	int purchases; /* how many purchases were planned so far */
	int pot_ids[DEMO_POTS];
	char message_ids[DEMO_PEOPLE][64]; /* the id of the last message that each person sent */
	int answered;                      /* how many requests were answered with 2xx */
	int refused;                       /* how many requests were answered with 409 or 429 */
	char why[CLIENT_WHY_SIZE];
};

/*
 * Connects the visitors to the server and creates counts, limits and pots. On failure returns false
 * with the reason in `traffic->why`. demo_traffic_close() must be called even after a failure.
 */
QP_MUST_CHECK bool demo_traffic_open(struct demo_traffic *traffic, const struct settings *settings);
void demo_traffic_close(struct demo_traffic *traffic);

/* Plays one round. If the server did not answer, or answered with an unexpected error, returns
 * false with the reason in `traffic->why`. */
QP_MUST_CHECK bool demo_traffic_play(struct demo_traffic *traffic);

#endif
