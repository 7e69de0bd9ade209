/*
 * An exchange is one stream of HTTP/2: a request and its answer. (In this program, "stream" alone
 * means an event stream; see stream.h.) An exchange is in exactly one list of its connection,
 * according to its state:
 *
 *   state       event                                    next
 *   receiving   the client has sent everything           serving
 *   receiving   the request is refused                   answered
 *   serving     request_answer() or stream_start()       answered
 *   serving     the answer may be large, and another     waiting
 *               large answer is not sent yet
 *   waiting     the other large answer is sent           serving
 *   answered    the next pump submits the answer to      sending, or streaming for an event stream
 *               nghttp2
 *   sending     the last frame is in the output, or the  sent; freed when the output is written
 *               exchange is reset
 *   streaming   stream_close()                           ending
 *   ending      the last frame is sent, or the exchange  gone
 *               is reset
 *   serving     the client resets the exchange           serving until the command is back
 *   any other   the client resets the exchange           gone
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
	EXCHANGE_ENDING,
	EXCHANGE_SENT,
	EXCHANGE_STATES
};

struct exchange {
	struct exchange *before;
	struct exchange *next;
	int32_t id; /* the stream id of HTTP/2 */
	enum exchange_state state;
	/* the last time at which the exchange entered a state, received the end of its head, or
	 * sent data; data that is sent while the exchange is ending does not change it */
	int64_t since_ns;
	struct request *request; /* NULL for an event stream */
	struct stream *stream;   /* NULL for a request */

	size_t header_bytes; /* used while receiving, like the next three members */
	size_t body_max;
	size_t body_bytes;
	struct buffer body;
	bool has_head;
	bool has_all; /* the client has sent the whole request */
	bool is_reset;

	struct slice rest;          /* the part of the body or value that is not sent yet */
	struct stream_event *event; /* the value to which `rest` belongs, or NULL */
};

/* The exchanges in one state, in the order in which http2_move() last put them into the state. */
struct exchange_list {
	struct exchange *first;
	struct exchange *last;
	size_t count;
};

#endif
