/*
 * Checks and parses text that enters the program: encoding, numbers, durations, times, parts of
 * URLs. All functions are pure. A parser returns false if the text does not have the right format,
 * and then leaves its output untouched.
 */
#ifndef QUIPU_BASE_TEXT_H
#define QUIPU_BASE_TEXT_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/slice.h"

/* How long the id of a user, an item, a message or an event may be, in requests and in events. */
#define ID_BYTES_MAX 128

/* Returns whether `text` is valid UTF-8, without NUL, surrogates or overlong forms. */
bool text_is_utf8(struct slice text);

/* Returns whether `text`, which must be valid UTF-8, has a control character: C0, DEL or C1. */
bool text_has_control(struct slice text);

/* Cuts `text`, which must be valid UTF-8, to at most `max` bytes without splitting a character. */
struct slice text_cut(struct slice text, size_t max);

/*
 * Returns the smallest UTF-8 text, in byte order, that is greater than every text beginning with
 * `prefix`, which is UTF-8. Returns an empty text if no text is greater.
 */
struct slice text_prefix_end(struct arena *arena, struct slice prefix);

/* Returns whether `text` is empty or has only spaces, tabs and line breaks. */
bool text_is_blank(struct slice text);

/* Parses an int64: digits with an optional minus in front, and nothing else. */
bool text_to_int(struct slice text, int64_t *value);

/*
 * Parses a duration: an integer followed by the unit us, ms, s, m, h or d ("90s", "24h", "-20ms").
 * Only 0 needs no unit.
 */
bool text_to_duration_us(struct slice text, int64_t *value_us);

/*
 * Parses a time of RFC 3339: "2026-01-08T07:10:00Z", also with a fraction or an offset. Digits
 * beyond microseconds are dropped; a leap second counts as the second after it.
 */
bool text_to_time_us(struct slice text, int64_t *time_us);

/* Returns the value of a hexadecimal digit of either case, or -1 if `c` is not a hexadecimal
 * digit. */
int text_hex_digit(char c);

/* Decodes every %XX in a part of a URL. Returns a C string that is allocated from `arena`, or NULL
 * for a broken %XX or a %00. */
const char *text_unescape(struct arena *arena, struct slice text);

/* Returns whether `text` is the host part of a URL: host, host:port or [address]:port, without a
 * user. */
bool text_is_server(struct slice text);

/*
 * Decodes base64url without padding (RFC 4648, section 5, as RFC 7515 uses it). `*bytes` is
 * allocated from `arena`. The last digit may have bits that belong to no byte; refuses text in
 * which these bits are not 0.
 */
bool text_from_base64url(struct arena *arena, struct slice text, struct slice *bytes);

/* Works like text_from_base64url(), but for base64 (RFC 4648, section 4). Ignores padding. */
bool text_from_base64(struct arena *arena, struct slice text, struct slice *bytes);

/* Appends `text` for a log line, with control characters and invalid bytes written as \xNN. */
void text_escape_log(struct buffer *buffer, struct slice text);

#endif
