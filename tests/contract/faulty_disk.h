/*
 * A disk under SQLite that fails when told to, and that knows what a loss of power would leave of
 * it. It is a VFS over the default one, and becomes the default.
 *
 * The files are real, so what lies in them is what a process that dies leaves behind (the kernel
 * has it). Beside that, for the database under test, an image of the disk is kept in memory: a
 * write is pending until a sync, and a sync that fails drops what was pending, as Linux does, which
 * takes such pages for clean afterwards. One process, one thread at a time; no real fsync is
 * called.
 */
#ifndef QUIPU_CONTRACT_FAULTY_DISK_H
#define QUIPU_CONTRACT_FAULTY_DISK_H

#include <stdbool.h>
#include <stdint.h>

enum disk_call {
	DISK_WRITE = 1,
	DISK_SYNC = 2,
	DISK_TRUNCATE = 4,
	DISK_READ = 8,
	DISK_SHM = 16,
};

struct disk_plan {
	const char *name;
	unsigned calls;   /* the kinds of call that are counted and fail */
	int failures;     /* how many in a row, beginning with the Nth */
	bool full;        /* a write stops one byte short with SQLITE_FULL, else half way, IOERR */
	bool done_anyhow; /* the call does its work and then says that it failed */
};

void disk_install(void);

/* From now on `path` and its WAL are the database under test; what they hold now is on disk. */
void disk_watch(const char *path);
void disk_unwatch(void);

/* Calls fail from the nth on, as `plan` says. */
void disk_arm(const struct disk_plan *plan, int nth);

/* Nothing fails. Returns whether anything has failed since disk_arm(). */
bool disk_disarm(void);

/* Nothing fails and nothing is counted while true. */
void disk_pause(bool paused);

/* Writes what a dead process leaves, or what a loss of power leaves, as a database `to`. */
void disk_copy_after_crash(const char *to);
void disk_copy_after_power_loss(const char *to, uint64_t seed);

#endif
