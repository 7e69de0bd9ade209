/*
 * Text at the edge of the program: is it UTF-8, is it printable, what does it say. Everything here
 * is pure.
 */
#ifndef QUIPU_BASE_TEXT_H
#define QUIPU_BASE_TEXT_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/slice.h"

/* Valid UTF-8 without NUL, surrogates or overlong forms. */
bool text_is_utf8(struct slice text);

/* Contains a control character: C0, DEL or C1. `text` must be valid UTF-8. */
bool text_has_control(struct slice text);

/* At most `max` bytes of valid UTF-8, cut between characters. */
struct slice text_cut(struct slice text, size_t max);

/* Only spaces, tabs, line breaks, or nothing. */
bool text_is_blank(struct slice text);

/* An integer with an optional minus and nothing around it. false: not one, or outside int64. */
bool text_to_int(struct slice text, int64_t *value);

/*
 * A duration: digits and one of us, ms, s, m, h, d ("90s", "24h", "20ms"), with an optional minus.
 * A bare 0 is allowed. false: not one.
 */
bool text_to_duration_us(struct slice text, int64_t *value_us);

/*
 * A time of RFC 3339: "2026-01-08T07:10:00Z", also with a fraction or an offset. What is finer than
 * a microsecond is cut off; a leap second is the second that follows. false: not one.
 */
bool text_to_time_us(struct slice text, int64_t *time_us);

/* What a hexadecimal digit of either case is worth, -1: it is none. */
int text_hex_digit(char c);

/* A part of a URL with its %XX decoded, ended by a NUL. NULL: a broken %XX, or one that is a NUL.
 */
const char *text_unescape(struct arena *arena, struct slice text);

/* A server of a URL: host, host:port or [address]:port, without a user. */
bool text_is_server(struct slice text);

/*
 * Decodes base64url without padding (RFC 4648, 5; the one of RFC 7515). false: it is not, or has
 * bits left over that are not 0.
 */
bool text_from_base64url(struct arena *arena, struct slice text, struct slice *bytes);

/* Appends `text` with control characters and invalid bytes written as \xNN, for log lines. */
void text_escape_log(struct buffer *buffer, struct slice text);

#endif
