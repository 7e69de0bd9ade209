/* A bus for the unit tests of the gateway. The test decides the fate of each message. One at a
 * time. */
#ifndef QUIPU_TESTS_FAKE_BUS_H
#define QUIPU_TESTS_FAKE_BUS_H

#include "base/random.h"
#include "base/uuid.h"
#include "ports/bus.h"

#define FAKE_BUS_MESSAGES_MAX 64
#define FAKE_BUS_WINDOW_SIZE 40

struct fake_bus {
	struct bus base;
	struct producer producer;
	bool is_up;
	enum bus_fate fate;
	struct dice *dice; /* if not NULL, fates are drawn at random */
	size_t on_bus;     /* how many different messages it has, by id and window-start */
	struct {
		char id[UUID_SIZE];
		char window[FAKE_BUS_WINDOW_SIZE];
	} messages[FAKE_BUS_MESSAGES_MAX];
	size_t publishes;
	char last_id[UUID_SIZE];
};

extern struct fake_bus fake_bus;
extern const struct producer_ops fake_bus_producer_ops;
extern const struct bus_ops fake_bus_ops;

/* Returns how many messages have the same window-start as this one. */
size_t fake_bus_count_in_window(size_t message);

#endif
