/*
 * What quipu demo plays: a few requests to every service per round, among them some that a limit
 * refuses, so that the console has something to show. Main thread.
 */
#ifndef QUIPU_CLI_DEMO_TRAFFIC_H
#define QUIPU_CLI_DEMO_TRAFFIC_H

#include "cli/client.h"

struct demo_traffic {
	struct client *alice; /* two users of dialogs; each also plays half of the other requests */
	struct client *bob;
	int round;
	int pot_id;
	char message_id[64]; /* of the last message from alice to bob; "" before the first */
	int answered;        /* with 2xx */
	int refused;         /* with 409 or 429, as limits and bounds say */
	char why[CLIENT_WHY_SIZE];
};

/*
 * Connects two clients to the server and creates counts, limits and a pot. Returns false, with the
 * reason in `traffic->why`, if that failed; demo_traffic_close() is needed in any case.
 */
QP_MUST_CHECK bool demo_traffic_open(struct demo_traffic *traffic, const struct settings *settings);
void demo_traffic_close(struct demo_traffic *traffic);

/* Plays one round. Returns false, with the reason in `traffic->why`, if the server did not answer
 * or answered with an error that the traffic does not provoke. */
QP_MUST_CHECK bool demo_traffic_play(struct demo_traffic *traffic);

#endif
