/*
 * Parsers for text from outside. They are written by hand, because strtoll(), strptime() and the
 * like skip spaces, accept "+1" or "0x", depend on the locale, need a NUL at the end, or accept the
 * 31st of February. These parsers accept exactly the formats that text.h names.
 */
#include "base/text.h"

#include <time.h>

/* Returns the length of the character that starts at `p`, or 0 if it is NUL or not valid UTF-8. */
static size_t utf8_sequence(const unsigned char *p, size_t left)
{
	unsigned char first = p[0];
	size_t len;

	if (first < 0x80)
		return first == 0 ? 0 : 1;
	if (first < 0xc2 || first > 0xf4)
		return 0;
	len = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
	if (len > left)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((first == 0xe0 && p[1] < 0xa0) || (first == 0xed && p[1] > 0x9f))
		return 0;
	if ((first == 0xf0 && p[1] < 0x90) || (first == 0xf4 && p[1] > 0x8f))
		return 0;
	return len;
}

bool text_is_utf8(struct slice text)
{
	const unsigned char *p = (const unsigned char *)text.data;
	size_t left = text.len;

	while (left > 0) {
		size_t len = utf8_sequence(p, left);

		if (len == 0)
			return false;
		p += len;
		left -= len;
	}
	return true;
}

bool text_has_control(struct slice text)
{
	const unsigned char *p = (const unsigned char *)text.data;

	for (size_t i = 0; i < text.len; i++) {
		if (p[i] < 0x20 || p[i] == 0x7f)
			return true;
		if (p[i] == 0xc2 && i + 1 < text.len && p[i + 1] < 0xa0)
			return true;
	}
	return false;
}

struct slice text_cut(struct slice text, size_t max)
{
	if (text.len <= max)
		return text;
	while (max > 0 && ((unsigned char)text.data[max] & 0xc0) == 0x80)
		max--;
	return slice_make(text.data, max);
}

/* Returns the character after `character` in the four cases that count_up() cannot compute, because
 * count_up() never adds a byte and does not skip the surrogates. Otherwise returns NULL. */
static const char *jump_after(struct slice character)
{
	static const char *const jumps[][2] = {
		{"\x7f", "\xc2\x80"},
		{"\xdf\xbf", "\xe0\xa0\x80"},
		{"\xed\x9f\xbf", "\xee\x80\x80"},
		{"\xef\xbf\xbf", "\xf0\x90\x80\x80"},
	};

	for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
		if (slice_is(character, jumps[i][0]))
			return jumps[i][1];
	}
	return NULL;
}

/* Replaces a UTF-8 character in place by the next character: counts up as if its bytes were
 * digits. */
static void count_up(char *character, size_t len)
{
	size_t at = len - 1;

	while (at > 0 && character[at] == '\xbf')
		character[at--] = '\x80';
	character[at]++;
}

struct slice text_prefix_end(struct arena *arena, struct slice prefix)
{
	static const char last[] = "\xf4\x8f\xbf\xbf"; /* U+10FFFF: nothing comes after it */
	size_t len = prefix.len, at;
	const char *jump;
	char *end;

	while (len >= 4 && memcmp(prefix.data + len - 4, last, 4) == 0)
		len -= 4;
	if (len == 0)
		return (struct slice){0};
	for (at = len - 1; at > 0 && (prefix.data[at] & 0xc0) == 0x80;)
		at--;
	end = arena_alloc(arena, len + 1);
	memcpy(end, prefix.data, len);
	jump = jump_after(slice_make(end + at, len - at));
	if (!jump) {
		count_up(end + at, len - at);
		return slice_make(end, len);
	}
	memcpy(end + at, jump, strlen(jump));
	return slice_make(end, at + strlen(jump));
}

bool text_is_blank(struct slice text)
{
	for (size_t i = 0; i < text.len; i++) {
		if (!memchr(" \t\r\n\v\f", text.data[i], 6))
			return false;
	}
	return true;
}

bool text_to_int(struct slice text, int64_t *value)
{
	int64_t result = 0;
	size_t i = 0;
	bool negative = text.len > 0 && text.data[0] == '-';

	if (negative)
		i = 1;
	if (i == text.len)
		return false;
	for (; i < text.len; i++) {
		int digit = text.data[i] - '0';

		if (digit < 0 || digit > 9)
			return false;
		if (__builtin_mul_overflow(result, 10, &result))
			return false;
		if (__builtin_sub_overflow(result, digit, &result))
			return false;
	}
	if (!negative && __builtin_sub_overflow(0, result, &result))
		return false;
	*value = result;
	return true;
}

static int64_t duration_unit_us(struct slice unit)
{
	static const struct {
		const char *name;
		int64_t us;
	} units[] = {
		{"us", 1},
		{"ms", 1000},
		{"s", 1000000},
		{"m", 60 * 1000000LL},
		{"h", 3600 * 1000000LL},
		{"d", 86400 * 1000000LL},
	};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (slice_is(unit, units[i].name))
			return units[i].us;
	}
	return 0;
}

bool text_to_duration_us(struct slice text, int64_t *value_us)
{
	size_t digits = text.len > 0 && text.data[0] == '-';
	int64_t number, unit, us;

	while (digits < text.len && text.data[digits] >= '0' && text.data[digits] <= '9')
		digits++;
	if (!text_to_int(slice_make(text.data, digits), &number))
		return false;
	if (digits == text.len && number == 0) {
		*value_us = 0;
		return true;
	}
	unit = duration_unit_us(slice_make(text.data + digits, text.len - digits));
	if (unit == 0 || __builtin_mul_overflow(number, unit, &us))
		return false;
	*value_us = us;
	return true;
}

/* Returns the number in the `count` digits at `at`, or -1 if one of them is not a digit. */
static int digits_at(struct slice text, size_t at, size_t count)
{
	int value = 0;

	if (at + count > text.len)
		return -1;
	for (size_t i = at; i < at + count; i++) {
		if (text.data[i] < '0' || text.data[i] > '9')
			return -1;
		value = value * 10 + (text.data[i] - '0');
	}
	return value;
}

/* Reads "2026-01-08T07:10:00" at the start of `text`. Checks only that each field is in its own
 * range. */
static bool read_date_time(struct slice text, struct tm *tm)
{
	static const char pattern[] = "dddd-dd-ddTdd:dd:dd";

	if (text.len < sizeof(pattern) - 1)
		return false;
	for (size_t i = 0; pattern[i]; i++) {
		if (pattern[i] != 'd' && text.data[i] != pattern[i])
			return false;
	}
	tm->tm_year = digits_at(text, 0, 4) - 1900;
	tm->tm_mon = digits_at(text, 5, 2) - 1;
	tm->tm_mday = digits_at(text, 8, 2);
	tm->tm_hour = digits_at(text, 11, 2);
	tm->tm_min = digits_at(text, 14, 2);
	tm->tm_sec = digits_at(text, 17, 2);
	return tm->tm_year >= 0 - 1900 && tm->tm_mon >= 0 && tm->tm_mon < 12 && tm->tm_mday >= 1 &&
	       tm->tm_mday <= 31 && tm->tm_hour >= 0 && tm->tm_hour < 24 && tm->tm_min >= 0 &&
	       tm->tm_min < 60 && tm->tm_sec >= 0 && tm->tm_sec <= 60;
}

/* Reads a fraction such as ".123456789" at `*at`, if there is one, and moves `*at` past it. Drops
 * digits beyond microseconds. Returns false if there is a point without a digit after it. */
static bool read_fraction(struct slice text, size_t *at, int64_t *us)
{
	int64_t unit = 100000;
	size_t first = *at + 1;

	*us = 0;
	if (*at >= text.len || text.data[*at] != '.')
		return true;
	for (*at = first; *at < text.len && digits_at(text, *at, 1) >= 0; (*at)++) {
		*us += digits_at(text, *at, 1) * unit;
		unit /= 10;
	}
	return *at > first;
}

/* Reads the end of a time: "Z" or an offset such as "+09:00". Returns false if the text ends in any
 * other way. */
static bool read_zone(struct slice text, size_t at, int64_t *offset_s)
{
	int hours, minutes;

	*offset_s = 0;
	if (at + 1 == text.len && text.data[at] == 'Z')
		return true;
	if (at + 6 != text.len || (text.data[at] != '+' && text.data[at] != '-') ||
		text.data[at + 3] != ':')
		return false;
	hours = digits_at(text, at + 1, 2);
	minutes = digits_at(text, at + 4, 2);
	*offset_s = (hours * 60LL + minutes) * (text.data[at] == '+' ? 60 : -60);
	return hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60;
}

/* The Unix times of 0000-01-01T00:00:00Z and 9999-12-31T23:59:59Z. */
#define FIRST_S -62167219200
#define LAST_S 253402300799

bool text_to_time_us(struct slice text, int64_t *time_us)
{
	struct tm tm = {0}, date;
	size_t at = 19;
	int64_t fraction_us, offset_s, seconds;

	if (!read_date_time(text, &tm) || !read_fraction(text, &at, &fraction_us) ||
		!read_zone(text, at, &offset_s))
		return false;
	date = (struct tm){.tm_year = tm.tm_year, .tm_mon = tm.tm_mon, .tm_mday = tm.tm_mday};
	seconds = timegm(&date) + tm.tm_hour * 3600 + tm.tm_min * 60 + tm.tm_sec - offset_s;
	/* timegm() turns the 31st of a shorter month into a day of the next month */
	if (date.tm_mday != tm.tm_mday)
		return false;
	/* the offset may move the time out of the years 0000 to 9999 */
	if (seconds < FIRST_S || seconds > LAST_S)
		return false;
	*time_us = seconds * 1000000 + fraction_us;
	return true;
}

static bool is_server_text(struct slice text)
{
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.data[i];

		if (c <= ' ' || c >= 0x7f || c == '@' || c == '/' || c == '#')
			return false;
	}
	return text.len > 0;
}

bool text_is_server(struct slice text)
{
	const char *colon = text.data ? memrchr(text.data, ':', text.len) : NULL;
	const char *bracket = text.data ? memrchr(text.data, ']', text.len) : NULL;
	int64_t port;
	struct slice digits;

	if (!is_server_text(text))
		return false;
	if (!colon || (bracket && colon < bracket))
		return true;
	digits = slice_make(colon + 1, text.len - (size_t)(colon + 1 - text.data));
	return colon > text.data && text_to_int(digits, &port) && port > 0 && port < 65536;
}

/* Returns the value of a digit of base64, or -1 if `c` is no digit. `last` has the digits for 62
 * and 63, in which base64 and base64url differ. */
static int base64_digit(char c, const char last[2])
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == last[0])
		return 62;
	return c == last[1] ? 63 : -1;
}

static bool decode_base64(
	struct arena *arena, struct slice text, const char last[2], struct slice *bytes)
{
	char *out = arena_alloc(arena, text.len * 3 / 4 + 1);
	unsigned bits = 0, held = 0; /* the lowest `held` bits of `bits` are not written yet */
	size_t len = 0;

	for (size_t i = 0; i < text.len; i++) {
		int digit = base64_digit(text.data[i], last);

		if (digit < 0)
			return false;
		bits = (bits << 6 | (unsigned)digit) & 0xfff;
		held += 6;
		if (held >= 8) {
			held -= 8;
			out[len++] = (char)(bits >> held & 0xff);
		}
	}
	if (held >= 6 || (bits & ((1U << held) - 1)) != 0)
		return false;
	*bytes = slice_make(out, len);
	return true;
}

bool text_from_base64url(struct arena *arena, struct slice text, struct slice *bytes)
{
	return decode_base64(arena, text, "-_", bytes);
}

bool text_from_base64(struct arena *arena, struct slice text, struct slice *bytes)
{
	while (text.len > 0 && text.data[text.len - 1] == '=')
		text.len--;
	return decode_base64(arena, text, "+/", bytes);
}

void text_escape_log(struct buffer *buffer, struct slice text)
{
	const unsigned char *p = (const unsigned char *)text.data;
	size_t i = 0;

	while (i < text.len) {
		size_t len = utf8_sequence(p + i, text.len - i);

		if (len == 0 || text_has_control(slice_make(p + i, len))) {
			buffer_format(buffer, "\\x%02x", p[i]);
			i++;
			continue;
		}
		buffer_bytes(buffer, p + i, len);
		i += len;
	}
}

int text_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

const char *text_unescape(struct arena *arena, struct slice text)
{
	struct buffer out = buffer_make(arena, text.len + 1);

	for (size_t i = 0; i < text.len; i++) {
		int high, low;

		if (text.data[i] != '%') {
			buffer_char(&out, text.data[i]);
			continue;
		}
		if (text.len - i < 3)
			return NULL;
		high = text_hex_digit(text.data[i + 1]);
		low = text_hex_digit(text.data[i + 2]);
		if (high < 0 || low < 0 || high + low == 0)
			return NULL;
		buffer_char(&out, (char)(high * 16 + low));
		i += 2;
	}
	buffer_char(&out, '\0');
	return out.data;
}
