#include "adapters/shared/server_address.h"

#include "base/text.h"

static const char *parse_port(struct slice text, int *port)
{
	int64_t number;

	if (!text.data)
		return NULL;
	if (!text_to_int(text, &number) || number < 1 || number > 65535)
		return "the port must be a number from 1 to 65535";
	*port = (int)number;
	return NULL;
}

const char *server_address_parse(struct slice text, struct slice *host, int *port)
{
	if (slice_starts_with(text, "[")) {
		text = slice_make(text.data + 1, text.len - 1);
		*host = slice_cut(&text, ']');
		if (!text.data || (text.len > 0 && text.data[0] != ':'))
			return "an address in [] must be followed by :port or nothing";
		text = text.len > 0 ? slice_make(text.data + 1, text.len - 1) : (struct slice){0};
	} else {
		*host = slice_cut(&text, ':');
	}
	return parse_port(text, port);
}
