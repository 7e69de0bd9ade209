/* Renders answers: their header fields for any protocol, and whole answers as bytes of HTTP/1.1. No
 * function has side effects. */
#ifndef QUIPU_HTTP_RESPONSE_H
#define QUIPU_HTTP_RESPONSE_H

#include "http/request.h"

#define RESPONSE_FIELDS_MAX 8

/* The first fields of an answer's head. The lines in `answer.headers` follow after these fields. */
struct response_fields {
	struct header of[RESPONSE_FIELDS_MAX];
	size_t count;
	char length[24]; /* the text of Content-Length */
};

/* Sets `*fields`, whose values point into the request, `date` and `*fields` itself. Fields without
 * a value are left out. */
void response_fields(
	const struct request *request, struct slice date, struct response_fields *fields);

/*
 * Returns the bytes of the request's answer, allocated from the request's arena. A large body is
 * not copied: `*body` then points to the body and must be sent after the returned bytes. Otherwise
 * `*body` is empty. `date` is an IMF-fixdate.
 */
struct slice response_render(
	struct request *request, struct slice date, bool close_after, struct slice *body);

/* Writes the IMF-fixdate of RFC 9110 for `time_s` into `out`. */
void response_date(char out[32], int64_t time_s);

#endif
