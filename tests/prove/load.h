/*
 * prove-load plays the clients of a proof: it sends operations of every role to several servers,
 * writes each to a log before it is sent and after it is answered, and retries whatever has an
 * unknown outcome under the same Idempotency-Key until it is known. README.md describes its
 * options, its phases and the log. It judges nothing: check/ does.
 *
 * One thread does everything, so nothing is locked. It shares two cores with the servers, hence one
 * system call to send and one to receive a request, and one to write the log for all operations
 * that start together.
 *
 *   file              what is in it
 *   load.c            options, phases, progress, the loop
 *   load_log.c        the log files
 *   load_operation.c  operations and what becomes of them
 *   load_http.c       connections
 *   load_stream.c     event streams
 *   load_counts.c …   what clients of a role ask for
 *
 * An operation's states, each with the function that leads to it:
 *
 *   state    event                                    next     function
 *   FREE     a role fills it                          READY    operation_start
 *   READY    a connection is free                     SENT     operation_send
 *   SENT     known                                    FREE     operation_known
 *   SENT     known, and to be repeated                WAITING  operation_known
 *   SENT     unknown or refused, and has a key        WAITING  operation_retry
 *   SENT     unknown, and has no key                  FREE     operation_unknown
 *   WAITING  due                                      READY    operations_wake
 */
#ifndef PROVE_LOAD_H
#define PROVE_LOAD_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/queue.h>

#include "random.h"
#include "response.h"

enum {
	TARGETS_MAX = 16,
	REQUEST_MAX = 4096,
	WHAT_MAX = 1400,
	PREFIX_MAX = 32,
	NAME_MAX_LENGTH = 64,
	ID_MAX = 40,
	OPERATIONS_WAITING_MAX = 6144,
};

enum role { COUNTS, GATEWAY, ENTITLEMENTS, POTS, DIALOGS, COUNTERS, ROLES };

enum phase { PHASE_SETUP, PHASE_RUNNING, PHASE_DRAINING, PHASE_QUIET };

enum operation_state { OPERATION_FREE, OPERATION_READY, OPERATION_SENT, OPERATION_WAITING };

struct operation {
	uint64_t id;
	enum role role;
	enum operation_state state;
	bool keyed;       /* may be retried */
	bool doubtful;    /* an attempt may have had an effect */
	bool known;       /* answered; what follows is a repeat */
	bool keep_trying; /* part of it may have happened: a refusal does not end it */
	uint32_t attempts;
	uint64_t due_us;
	uint32_t kind; /* this and the next three are notes of the role for itself */
	uint32_t subject;
	uint32_t other;
	char note[ID_MAX];
	char what[WHAT_MAX]; /* kind and arguments, as the log has them */
	uint32_t length;
	char request[REQUEST_MAX];
	TAILQ_ENTRY(operation) link;
};

TAILQ_HEAD(operation_list, operation);

struct load;

/* What clients of a role do. */
struct role_play {
	const char *name;
	uint32_t share; /* of all operations, relative to the other roles */
	/* Fills the next operation of the setup; false if there is none left. May be NULL. */
	bool (*set_up)(struct load *load, struct operation *o);
	/* Fills a new operation; false if there is nothing to do now. */
	bool (*next)(struct load *load, struct operation *o);
	/* Notes what a known answer says. May be NULL. */
	void (*answered)(
		struct load *load, const struct operation *o, const struct response *response);
};

extern const struct role_play counts_play;
extern const struct role_play gateway_play;
extern const struct role_play entitlements_play;
extern const struct role_play pots_play;
extern const struct role_play dialogs_play;
extern const struct role_play counters_play;

struct options {
	struct sockaddr_in targets[TARGETS_MAX];
	uint32_t target_count;
	bool roles[ROLES];
	uint64_t seed;
	uint64_t seconds;
	uint64_t linger;
	uint64_t rate;
	uint64_t connections; /* per target */
	uint64_t timeout_ms;
	bool previous; /* only what the previous release knows */
	const char *log;
	char authorization[512]; /* a header line, or empty */
};

struct errors {
	uint64_t lost;
	uint64_t timeout;
	uint64_t unknown;
	uint64_t refused;
	uint64_t connect;
	uint64_t bad;
};

struct log_file {
	int fd;
	char *text;
	size_t length;
	size_t room;
};

struct connection;
struct stream;

struct load {
	struct options options;
	char prefix[PREFIX_MAX];
	struct random random;
	enum phase phase;
	uint64_t now_us;   /* of this round */
	uint64_t phase_us; /* when the phase began */
	bool setup_asked;  /* every operation of the setup was started */
	uint64_t next_id;
	double budget; /* operations that --rate allows now */

	int epoll;
	struct connection *connections;
	uint32_t connection_count;
	struct stream *streams;
	uint32_t stream_count;

	struct operation *operations;
	uint32_t operation_count;
	struct operation_list free;
	struct operation_list ready;
	struct operation_list waiting;
	uint32_t waiting_count;
	uint32_t repeat_count; /* operations that are known and wait to be repeated */
	uint32_t open_count;   /* operations that are not known yet */
	uint32_t open_of[ROLES];

	struct log_file logs[ROLES];
	uint64_t acked[ROLES];
	uint64_t unknown;
	struct errors errors;
};

/* load.c */

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);
void *allocate(size_t count, size_t size);
uint64_t time_us(void);

/* load_log.c: lines are collected, and written by log_flush() before anything is sent. */

void logs_open(struct load *load);
__attribute__((format(printf, 3, 4))) void log_line(
	struct load *load, enum role role, const char *format, ...);
/* A line that ends with a body, in which newlines become spaces. */
void log_answer(
	struct load *load, const struct operation *o, char mark, const struct response *response);
void logs_flush(struct load *load);

/* load_operation.c */

void operations_open(struct load *load);
/* The next operation to be sent: a retry that is due, else a new one. NULL: nothing to do. */
struct operation *operation_take(struct load *load);
/* Writes the attempt to the log. The caller sends it afterwards. */
void operation_send(struct load *load, struct operation *o, uint32_t target);
void operation_answered(struct load *load, struct operation *o, const struct response *response);
/* An attempt ended without an answer. */
void operation_lost(struct load *load, struct operation *o, const char *why);
void operations_wake(struct load *load);
/* The time for draining is up: what is unknown stays unknown. */
void operations_give_up(struct load *load);

/*
 * Writes the request of an operation. `user` is who calls (dialogs), or NULL; `body` may be NULL.
 * The key, if it has one, is derived from its id.
 */
void operation_request(struct load *load, struct operation *o, const char *method, const char *path,
	const char *user, const char *body);
/* Writes what the log says of it: its kind and arguments. */
__attribute__((format(printf, 2, 3))) void operation_describe(
	struct operation *o, const char *format, ...);

/* Copies a string or reads an integer that an answer has under a name; false: it has none. */
bool response_string(const struct response *response, const char *name, char *value, size_t room);
bool response_integer(const struct response *response, const char *name, int64_t *value);

/* load_http.c */

void connections_open(struct load *load);
/* Gives free connections something to send, then writes the log, then sends. */
void connections_dispatch(struct load *load);
void connections_check(struct load *load); /* timeouts, reconnects */
void connection_event(struct load *load, uint32_t index, uint32_t events);
int socket_connect_to(const struct sockaddr_in *address);

/* load_stream.c: epoll's number of a stream is its index plus STREAM_MARK. */

#define STREAM_MARK 0x80000000u

void streams_open(struct load *load);
void streams_check(struct load *load);
void stream_event(struct load *load, uint32_t index);

/* load_dialogs.c */

enum { DIALOG_USERS = 300, FOLLOWED_USERS = 24 };
void dialog_user(const struct load *load, uint32_t number, char name[NAME_MAX_LENGTH]);

#endif
