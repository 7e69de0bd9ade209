/*
 * The traffic of quipu demo: in each round, a few requests to the services. Some are refused by a
 * limit, so that the console has something to show. Main thread only.
 */
#ifndef QUIPU_CLI_DEMO_TRAFFIC_H
#define QUIPU_CLI_DEMO_TRAFFIC_H

#include "cli/client.h"

struct demo_traffic {
	struct client *alice; /* two users of dialogs; each also plays half of the other requests */
	struct client *bob;
	int round;
	int pot_id;
	char message_id[64]; /* the id of the last message from alice to bob; "" before the first */
	int answered;        /* how many requests were answered with 2xx */
	int refused;         /* how many were refused with 409 or 429, by limits and bounds */
	char why[CLIENT_WHY_SIZE];
};

/*
 * Connects two clients to the server and creates counts, limits and a pot. On failure returns false
 * with the reason in `traffic->why`. demo_traffic_close() must be called in any case.
 */
QP_MUST_CHECK bool demo_traffic_open(struct demo_traffic *traffic, const struct settings *settings);
void demo_traffic_close(struct demo_traffic *traffic);

/* Plays one round. If the server did not answer, or answered with an unexpected error, returns
 * false with the reason in `traffic->why`. */
QP_MUST_CHECK bool demo_traffic_play(struct demo_traffic *traffic);

#endif
