/*
 * This is the state of a connection that speaks HTTP/2. nghttp2 does the framing, HPACK and flow
 * control; this module turns nghttp2's streams into requests, sends their answers, and limits the
 * resources of each client. Private to http/; used only on the loop's thread.
 *
 * HTTP/2 does not order requests: each one starts as soon as it is complete. All answers that
 * become ready in one wake-up of the loop are sent together, usually in one system call.
 *
 * The server limits the resources of each client:
 *
 *   requests at once           --h2-streams, counted until their commands are back from the
 *                              lanes, so that a client cannot start more by resetting requests
 *   memory of requests         --client-bytes, as in HTTP/1.1; bodies count as they arrive
 *   memory of nghttp2          --client-bytes, counted exactly (http2_memory.h)
 *   large answers              one is looked up or sent at a time; the others wait
 *   header fields              at most 64, with at most 16 KiB in total, as in HTTP/1.1
 *   frames that carry nothing  a budget, refilled by answers and over time; see http2_spend()
 *   time to send               --head-timeout and --body-timeout for each request
 *   time to read               --idle-timeout for each answer, --stream-stall for event streams; an
 *                              event stream that was closed has --stream-stall in total
 *   time on the loop           PUMP_WORK_MAX in one pump; then other connections go first
 */
#ifndef QUIPU_HTTP_HTTP2_H
#define QUIPU_HTTP_HTTP2_H

#include "http/connection.h"
#include "http/exchange.h"
#include "http/http2_memory.h"

/* The bytes that a client sends first on every HTTP/2 connection. */
#define HTTP2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#define HTTP2_OUTPUT_SIZE (64 * 1024)
#define HTTP2_PARTS_MAX 64

/* State that all HTTP/2 connections of one worker share. */
struct http2_shared {
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;
	struct http2_pool pool;
	char output[HTTP2_OUTPUT_SIZE]; /* frames that are written together */
};

/* The pieces of bytes that go to the socket in one system call. Most of them are in
 * http2_shared.output; long bodies stay in their requests. */
struct http2_parts {
	uv_buf_t of[HTTP2_PARTS_MAX];
	size_t count;
	size_t used; /* how many bytes of http2_shared.output are used */
	bool has_answers;
};

struct http2 {
	struct connection *connection;
	nghttp2_session *session;
	struct http2_memory memory;
	struct exchange_list of[EXCHANGE_STATES];
	/* the exchange whose large answer is being looked up or sent, or NULL */
	struct exchange *large;
	struct http2_parts *parts; /* where http2_write() collects frames; NULL between calls */
	int64_t budget;            /* for frames that carry nothing; see http2_spend() */
	size_t sweeps_draining;
	int32_t last_id;   /* the highest stream id that the client has used for a request */
	int32_t before_id; /* the previous value of last_id */
	bool has_seen;     /* nghttp2 has called a callback for the last piece of input */
	bool has_reset;    /* the server has reset an exchange; see check_stream_id() */
	bool is_ending;    /* no further request is accepted */
	bool is_flooded;
};

struct http2_shared *http2_shared_new(void);
void http2_shared_free(struct http2_shared *shared);

/* Makes a connection speak HTTP/2 after its client has sent the preface. */
void http2_begin(struct connection *connection);

/* Frees the HTTP/2 state of a connection that is closed. */
void http2_free(struct http2 *http2);

/* ---- lists of exchanges ---- */

/* Puts the exchange into `state`, at the end of that state's list, and sets `since_ns`. */
void http2_move(struct http2 *http2, struct exchange *exchange, enum exchange_state state);

/* Removes the exchange from its list and frees its request, or ends its event stream. */
void http2_drop(struct http2 *http2, struct exchange *exchange);

/* Returns how many requests and event streams the connection has. A request that the client has
 * reset counts as long as its command is in a lane. */
size_t http2_requests(const struct http2 *http2);

/*
 * Each connection has a budget for frames of the client that carry next to nothing (settings,
 * pings, resets, tiny or empty data …). http2_spend() takes `cost` from the budget. http2_earn()
 * adds `credit` to the budget; it is called when a part of an answer is sent, when an answer is
 * complete, and with every sweep. A connection that has used up its budget is ended with
 * ENHANCE_YOUR_CALM.
 */
void http2_spend(struct http2 *http2, int64_t cost);
void http2_earn(struct http2 *http2, int64_t credit);

/* Calls http2_resume() for every event stream of the connection. */
void http2_resume_streams(struct http2 *http2);

/* Implements protocol.check; see http2_check.c. */
void http2_check(struct connection *connection, int64_t now_ns);

/* Lets the current requests finish and accepts no new requests. */
void http2_end_gently(struct http2 *http2);

/* ---- http2_input.c: nghttp2's callbacks for frames from the client ---- */

void http2_set_input_callbacks(nghttp2_session_callbacks *callbacks);

/* Refuses a request that is not complete yet. The client need not send the rest of the request. */
void http2_refuse(
	struct http2 *http2, struct exchange *exchange, enum status status, const char *why);

/* ---- http2_output.c ---- */

void http2_set_output_callbacks(nghttp2_session_callbacks *callbacks);

/* Submits to nghttp2 the answers that are ready. Then writes the frames that may be sent now, as
 * many as fit into the output buffer. Returns whether it wrote any frame. May close the
 * connection. */
bool http2_write(struct http2 *http2);

/* Sends a heartbeat on an event stream that has been quiet. */
void http2_send_heartbeat(struct http2 *http2, struct stream *stream);

/* Makes nghttp2 fetch data from the event stream at the next http2_write(). Does not write
 * itself. */
void http2_resume(struct http2 *http2, struct stream *stream);

/* Moves the HTTP/2 stream of `exchange` to the exchange inside `stream`. The body of the request's
 * answer becomes the first data that the event stream sends. */
void http2_begin_stream(struct http2 *http2, struct exchange *exchange, struct stream *stream);

#endif
