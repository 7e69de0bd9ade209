#include "http/response.h"

#include <stdio.h>
#include <time.h>

static void add(struct response_fields *fields, const char *name, struct slice value)
{
	if (value.len == 0)
		return;
	fields->of[fields->count++] = (struct header){.name = slice_of(name), .value = value};
}

static struct slice length_text(struct response_fields *fields, size_t len)
{
	char *end = fields->length + sizeof(fields->length);
	char *at = end;

	do
		*--at = (char)('0' + len % 10);
	while ((len /= 10) > 0);
	return slice_make(at, (size_t)(end - at));
}

void response_fields(
	const struct request *request, struct slice date, struct response_fields *fields)
{
	const struct answer *answer = &request->answer;

	fields->count = 0;
	add(fields, "Content-Type", answer->content_type);
	if (answer->http_status != 204 && !request->is_stream)
		add(fields, "Content-Length", length_text(fields, answer->body.len));
	add(fields, "Date", date);
	add(fields, "X-Request-Id", request->id);
	add(fields, "Location", answer->location);
	if (answer->replayed)
		add(fields, "Idempotent-Replayed", slice_of("true"));
}

/* A body up to this size is copied behind the head, so that head and body are written as one
 * part. */
#define COPIED_BODY_MAX 4096

struct slice response_render(
	struct request *request, struct slice date, bool close_after, struct slice *body)
{
	const struct answer *answer = &request->answer;
	bool is_apart = answer->body.len > COPIED_BODY_MAX && !request->head_only;
	struct buffer out = buffer_make(
		&request->arena, 320 + answer->headers.len + (is_apart ? 0 : answer->body.len));
	struct response_fields fields;

	response_fields(request, date, &fields);
	buffer_text(&out, "HTTP/1.1 ");
	buffer_int(&out, answer->http_status);
	buffer_char(&out, ' ');
	buffer_text(&out, status_reason(answer->http_status));
	buffer_text(&out, "\r\n");
	for (size_t i = 0; i < fields.count; i++) {
		buffer_add(&out, fields.of[i].name);
		buffer_text(&out, ": ");
		buffer_add(&out, fields.of[i].value);
		buffer_text(&out, "\r\n");
	}
	buffer_add(&out, answer->headers);
	if (close_after)
		buffer_text(&out, "Connection: close\r\n");
	buffer_text(&out, "\r\n");
	*body = is_apart ? answer->body : (struct slice){0};
	if (!request->head_only && !is_apart)
		buffer_add(&out, answer->body);
	return buffer_slice(&out);
}

void response_date(char out[32], int64_t time_s)
{
	static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
	static const char months[12][4] = {
		"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
	time_t seconds = (time_t)time_s;
	struct tm parts;

	gmtime_r(&seconds, &parts);
	snprintf(out, 32, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[parts.tm_wday], parts.tm_mday,
		months[parts.tm_mon], parts.tm_year % 10000 + 1900, parts.tm_hour, parts.tm_min,
		parts.tm_sec);
}
