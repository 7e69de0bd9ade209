/*
 * When the block of a buffer is full, the next append doubles the block. The arena extends the
 * block in place if nothing was allocated after the block; that is the usual case while one body is
 * written. Numbers and times, which nearly every answer contains, are written digit by digit and
 * without printf().
 *
 * Invariant: `data` has room for `size` bytes, of which `len` are written. The text is not
 * terminated by a NUL.
 */
#include "base/buffer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static void reserve(struct buffer *buffer, size_t more)
{
	size_t wanted = buffer->len + more;
	size_t size = buffer->size * 2 > 64 ? buffer->size * 2 : 64;

	if (wanted <= buffer->size)
		return;
	if (size < wanted)
		size = wanted;
	buffer->data = arena_grow(buffer->arena, buffer->data, buffer->size, size);
	buffer->size = size;
}

struct buffer buffer_make(struct arena *arena, size_t expected)
{
	struct buffer buffer = {.arena = arena};

	reserve(&buffer, expected);
	return buffer;
}

struct slice buffer_slice(const struct buffer *buffer)
{
	return slice_make(buffer->data, buffer->len);
}

void buffer_bytes(struct buffer *buffer, const void *data, size_t len)
{
	if (len == 0)
		return;
	reserve(buffer, len);
	memcpy(buffer->data + buffer->len, data, len);
	buffer->len += len;
}

void buffer_add(struct buffer *buffer, struct slice text)
{
	buffer_bytes(buffer, text.data, text.len);
}

void buffer_text(struct buffer *buffer, const char *text)
{
	buffer_bytes(buffer, text, strlen(text));
}

void buffer_char(struct buffer *buffer, char c)
{
	buffer_bytes(buffer, &c, 1);
}

void buffer_int(struct buffer *buffer, int64_t value)
{
	char digits[24];
	char *end = digits + sizeof(digits);
	char *p = end;
	uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;

	do {
		*--p = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest > 0);
	if (value < 0)
		*--p = '-';
	buffer_bytes(buffer, p, (size_t)(end - p));
}

void buffer_counted(struct buffer *buffer, int64_t count, struct slice plural)
{
	bool is_one = count == 1;

	buffer_int(buffer, count);
	while (plural.data) {
		struct slice word = slice_cut(&plural, ' ');

		if (is_one && word.len > 0 && word.data[word.len - 1] == 's') {
			word.len--;
			is_one = false;
		}
		buffer_char(buffer, ' ');
		buffer_add(buffer, word);
	}
}

/*
 * Formats straight into the free space; if that is too small, grows the buffer and formats again.
 */
void buffer_format(struct buffer *buffer, const char *format, ...)
{
	size_t room = buffer->size - buffer->len;
	char *end = buffer->data ? buffer->data + buffer->len : NULL;
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(end, room, format, args);
	va_end(args);
	assert(len >= 0);
	if ((size_t)len >= room) {
		reserve(buffer, (size_t)len + 1);
		va_start(args, format);
		vsnprintf(buffer->data + buffer->len, (size_t)len + 1, format, args);
		va_end(args);
	}
	buffer->len += (size_t)len;
}

/* How each byte is written in a JSON string: 0 if it needs no escape, 'u' for \u00XX, otherwise the
 * character after the backslash. */
static const char json_escapes[256] = {
	['"'] = '"',
	['\\'] = '\\',
	['\n'] = 'n',
	['\r'] = 'r',
	['\t'] = 't',
	[0x00 ... 0x08] = 'u',
	[0x0b ... 0x0c] = 'u',
	[0x0e ... 0x1f] = 'u',
	[0x7f] = 'u',
};

static char *escape_byte(char *out, unsigned char c)
{
	static const char digits[] = "0123456789abcdef";
	char kind = json_escapes[c];

	*out++ = '\\';
	*out++ = kind;
	if (kind == 'u') {
		memcpy(out, "00", 2);
		out[2] = digits[c >> 4];
		out[3] = digits[c & 15];
		out += 4;
	}
	return out;
}

size_t buffer_json_length(struct slice text)
{
	size_t len = text.len + 2;

	for (size_t i = 0; i < text.len; i++) {
		char kind = json_escapes[(unsigned char)text.data[i]];

		len += kind == 0 ? 0 : kind == 'u' ? 5 : 1;
	}
	return len;
}

void buffer_json_string(struct buffer *buffer, struct slice text)
{
	size_t len = buffer_json_length(text);
	char *out;

	reserve(buffer, len);
	out = buffer->data + buffer->len;
	*out++ = '"';
	if (len == text.len + 2 && text.len > 0) {
		memcpy(out, text.data, text.len);
		out += text.len;
	} else {
		for (size_t i = 0; i < text.len; i++) {
			unsigned char c = (unsigned char)text.data[i];

			if (json_escapes[c] == 0)
				*out++ = (char)c;
			else
				out = escape_byte(out, c);
		}
	}
	*out = '"';
	buffer->len += len;
}

/* Appends `before`, unless it is NUL, and then `value`, padded with zeros to `width` digits. */
static void add_padded(struct buffer *buffer, char before, int value, int width)
{
	char digits[8];

	for (int i = width - 1; i >= 0; i--) {
		digits[i] = (char)('0' + value % 10);
		value /= 10;
	}
	if (before)
		buffer_char(buffer, before);
	buffer_bytes(buffer, digits, (size_t)width);
}

void buffer_time(struct buffer *buffer, int64_t time_us)
{
	int64_t fraction = time_us % 1000000;
	time_t seconds;
	struct tm parts;

	if (fraction < 0)
		fraction += 1000000;
	seconds = (time_t)((time_us - fraction) / 1000000);
	gmtime_r(&seconds, &parts);
	add_padded(buffer, '\0', parts.tm_year + 1900, 4);
	add_padded(buffer, '-', parts.tm_mon + 1, 2);
	add_padded(buffer, '-', parts.tm_mday, 2);
	add_padded(buffer, 'T', parts.tm_hour, 2);
	add_padded(buffer, ':', parts.tm_min, 2);
	add_padded(buffer, ':', parts.tm_sec, 2);
	if (fraction % 1000 != 0)
		add_padded(buffer, '.', (int)fraction, 6);
	else if (fraction != 0)
		add_padded(buffer, '.', (int)(fraction / 1000), 3);
	buffer_char(buffer, 'Z');
}

void buffer_percent(struct buffer *buffer, struct slice text)
{
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.data[i];

		if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
			memchr("-._~", c, 4))
			buffer_char(buffer, (char)c);
		else
			buffer_format(buffer, "%%%02X", c);
	}
}

void buffer_base64(struct buffer *buffer, struct slice bytes)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *data = (const unsigned char *)bytes.data;

	for (size_t i = 0; i < bytes.len; i += 3) {
		size_t left = bytes.len - i;
		uint32_t group = (uint32_t)data[i] << 16;

		if (left > 1)
			group |= (uint32_t)data[i + 1] << 8;
		if (left > 2)
			group |= data[i + 2];
		buffer_char(buffer, digits[group >> 18]);
		buffer_char(buffer, digits[group >> 12 & 63]);
		buffer_char(buffer, left > 1 ? digits[group >> 6 & 63] : '=');
		buffer_char(buffer, left > 2 ? digits[group & 63] : '=');
	}
}

static void begin_member(struct buffer *buffer, const char *name)
{
	if (buffer->len > 0 && buffer->data[buffer->len - 1] != '{')
		buffer_char(buffer, ',');
	buffer_char(buffer, '"');
	buffer_text(buffer, name);
	buffer_text(buffer, "\":");
}

void buffer_member(struct buffer *buffer, const char *name, struct slice value)
{
	begin_member(buffer, name);
	buffer_json_string(buffer, value);
}

void buffer_member_int(struct buffer *buffer, const char *name, int64_t value)
{
	begin_member(buffer, name);
	buffer_int(buffer, value);
}

void buffer_member_time(struct buffer *buffer, const char *name, int64_t time_us)
{
	begin_member(buffer, name);
	buffer_char(buffer, '"');
	buffer_time(buffer, time_us);
	buffer_char(buffer, '"');
}
