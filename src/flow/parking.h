/*
 * Where commands wait whose row is held by a session outside this program. They wait per key, in
 * order, and are tried again when due, so that one foreign lock holds up nothing but its own row.
 * Belongs to one committer thread; no lock.
 */
#ifndef QUIPU_FLOW_PARKING_H
#define QUIPU_FLOW_PARKING_H

#include "base/metrics.h"
#include "base/random.h"
#include "runtime/command.h"

struct parking;

/* A key is tried again after `retry_ns`, give or take half of it. */
struct parking *parking_new(int64_t retry_ns);

/* Nothing may be parked any more. */
void parking_free(struct parking *parking);

/* Any thread. */
size_t parking_count(const struct parking *parking);

/* Parks `command` behind whatever waits for the same key, which lives as long as the command. */
void parking_add(
	struct parking *parking, struct command *command, struct slice key, int64_t now_ns);

/* Whether commands wait for this key: then others on it must wait behind them. */
bool parking_has_key(const struct parking *parking, struct slice key);

/* When the next key is due: steady time, INT64_MAX if nothing is parked. */
int64_t parking_next_due_ns(const struct parking *parking);

/* Takes up to `max` commands of keys that are due (whole keys, at least one). */
void parking_take_due(
	struct parking *parking, struct command_list *out, size_t max, int64_t now_ns);

/* Takes everything. */
void parking_take_all(struct parking *parking, struct command_list *out);

#endif
