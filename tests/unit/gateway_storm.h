/*
 * What rages around the gateway in test_gateway_storm.c: a bus that decides the fates of messages
 * late and in any order, and the limits of a store that fails at any call. Both remember or check
 * what the gateway does to them.
 *
 * Each has its own dice, because each belongs to another thread: the bus to the publisher, the
 * limits to the committer. The test reads what they have remembered after both threads have ended.
 */
#ifndef QUIPU_TESTS_GATEWAY_STORM_H
#define QUIPU_TESTS_GATEWAY_STORM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/random.h"
#include "base/uuid.h"
#include "faulty_store.h"
#include "ports/bus.h"

#define STORM_USERS 3
#define STORM_MESSAGES_MAX 1024
#define STORM_USER_SIZE 4
#define STORM_WINDOW_SIZE 40
#define STORM_WINDOW_US 60000000LL

extern const char *const storm_users[STORM_USERS];

/* ---- the bus ----------------------------------------------------------------------------- */

/* A message that the bus has or, if it is not confirmed, may have. */
struct storm_message {
	char id[UUID_SIZE];
	char user[STORM_USER_SIZE];
	char window[STORM_WINDOW_SIZE];
	bool is_confirmed;
};

struct storm_round {
	struct bus_message *messages;
	size_t count;
};

struct storm_bus {
	struct producer producer; /* first */
	struct dice dice;
	struct storm_round begun[BUS_BEGUN_MAX]; /* some of their messages are under way */
	size_t begun_count;
	/* different by id and window-start: consumers drop repeated ids */
	struct storm_message messages[STORM_MESSAGES_MAX];
	size_t message_count;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	bool is_woken;
	bool hangs;
};

/* With one seed in four, the bus blocks: it carries out one publish at a time. */
void storm_bus_init(struct storm_bus *bus, uint64_t seed);
void storm_bus_release(struct storm_bus *bus);

/* While the bus hangs, it decides no fate. Any thread. */
void storm_bus_hang(struct storm_bus *bus, bool hangs);

/* Returns a message with this id, if possible a confirmed one, or NULL. */
const struct storm_message *storm_bus_find(const struct storm_bus *bus, const char *id);

/* Returns how many messages of the same user have the same window-start as this one. */
size_t storm_bus_count_in_window(const struct storm_bus *bus, const struct storm_message *message);

/* ---- the store --------------------------------------------------------------------------- */

/* The limits of a faulty store. At every call they also check the invariants of the rows. */
struct storm_limits {
	struct limit_repository base; /* first */
	struct limit_repository_ops ops;
	struct faulty_store *store; /* owned */
	struct dice dice;
	/* Only faults after which a transaction may run again, and no more than the committer
	 * repeats: then every count must be exact. Otherwise every fault, rows that others hold,
	 * and a time that runs past leases and windows. */
	bool is_gentle;
	bool has_poison; /* the store also refuses what it is asked to write */
	bool is_held[STORM_USERS];
	atomic_bool is_calm; /* no more faults; set by the test */
};

void storm_limits_init(struct storm_limits *limits, uint64_t seed, bool is_gentle);
void storm_limits_release(struct storm_limits *limits);

/* Aborts unless current_count <= reserved_count <= rate_limit. */
void storm_limits_check_row(const struct limit_row *row);

#endif
