/*
 * Holds commands that wait for a row that another session has locked, or for an Idempotency-Key
 * under which another attempt has a pending answer. The commands wait per key, in order, and are
 * retried when due, so that only commands on the same key are delayed. A parking belongs to one
 * committer's thread and takes no lock.
 */
#ifndef QUIPU_FLOW_PARKING_H
#define QUIPU_FLOW_PARKING_H

#include "base/metrics.h"
#include "base/random.h"
#include "runtime/command.h"

struct parking;

/* `retry_ns` is the average time after which the commands of a key are due. For each key, the time
 * is chosen at random, from 0.5 to 1.5 times `retry_ns`. */
struct parking *parking_new(int64_t retry_ns);

/* The parking must be empty. */
void parking_free(struct parking *parking);

/* Returns how many commands are parked. Thread-safe. */
size_t parking_count(const struct parking *parking);

/* Returns the sum of the parked commands' weights. */
size_t parking_weight(const struct parking *parking);

/* Returns the sum of the parked commands' bytes. */
size_t parking_bytes(const struct parking *parking);

/* Parks `command` behind the commands that wait for the same `key`. Copies `key`. */
void parking_add(
	struct parking *parking, struct command *command, struct slice key, int64_t now_ns);

/* Returns whether commands wait for this key. If so, new commands on the key must be parked. */
bool parking_has_key(const struct parking *parking, struct slice key);

/* Returns the monotonic time at which the next key is due or the next deadline passes, or INT64_MAX
 * if nothing is parked. */
int64_t parking_next_ns(const struct parking *parking);

/* Moves to `out` the commands whose deadlines have passed. */
void parking_take_expired(struct parking *parking, struct command_list *out, int64_t now_ns);

/* Moves commands of due keys to `out`, up to a total weight of `max` in `out`. All commands of a
 * key move together. If `out` is empty, the commands of the key that has been due longest move even
 * if they are heavier than `max`. */
void parking_take_due(
	struct parking *parking, struct command_list *out, size_t max, int64_t now_ns);

/* Moves every command to `out`. */
void parking_take_all(struct parking *parking, struct command_list *out);

#endif
