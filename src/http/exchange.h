/*
 * An exchange is one stream of HTTP/2: a request and its answer. (In this program, "stream" alone
 * means an event stream; see stream.h.) An exchange is in exactly one list of its connection,
 * according to its state:
 *
 *   state       event                                    next
 *   receiving   the client has sent everything           serving
 *   receiving   the request is refused                   answered
 *   serving     request_answer(), or its stream starts   answered
 *   serving     another large answer must be done first  waiting
 *   waiting     the other large answer is done           serving
 *   answered    the next pump submits it to nghttp2      sending, or streaming
 *   sending     its last frame is in the output, or it   sent; freed when the output is written
 *               is reset
 *   streaming   its event stream ends                    gone
 *   serving     the client resets it                     serving until its command is back
 *   any other   the client resets it                     gone
 *
 * The exchange of a request is allocated from the request's arena. The exchange of an event stream,
 * which outlives its request, is a member of the stream. Private to http/.
 */
#ifndef QUIPU_HTTP_EXCHANGE_H
#define QUIPU_HTTP_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/slice.h"

struct request;
struct stream;
struct stream_event;

enum exchange_state {
	EXCHANGE_RECEIVING,
	EXCHANGE_SERVING,
	EXCHANGE_WAITING,
	EXCHANGE_ANSWERED,
	EXCHANGE_SENDING,
	EXCHANGE_STREAMING,
	EXCHANGE_SENT,
	EXCHANGE_STATES
};

struct exchange {
	struct exchange *before;
	struct exchange *next;
	int32_t id; /* the stream id of HTTP/2 */
	enum exchange_state state;
	int64_t since_ns;        /* when it last entered a state, got its head or sent data */
	struct request *request; /* NULL for an event stream */
	struct stream *stream;   /* NULL for a request */

	size_t header_bytes; /* this member and the next three are for receiving */
	size_t body_max;
	size_t body_bytes;
	struct buffer body;
	bool has_head;
	bool has_all; /* the client has sent the whole request */
	bool is_reset;

	struct slice rest;          /* the part of the body or value that is not sent yet */
	struct stream_event *event; /* the value to which `rest` belongs, or NULL */
};

/* The exchanges in one state, ordered by when they entered the state. */
struct exchange_list {
	struct exchange *first;
	struct exchange *last;
	size_t count;
};

#endif
