#include "base/status.h"

#include <assert.h>
#include <stddef.h>

static const struct status_row {
	const char *code;
	int http;
	bool retry;
	const char *title;
} rows[] = {
#define STATUS_ROW(code, http, retry, title) [STATUS_##code] = {#code, http, retry, title},
	STATUS_TABLE(STATUS_ROW)
#undef STATUS_ROW
};

static const struct status_row *row(enum status status)
{
	assert((size_t)status < STATUS_COUNT);
	return &rows[status];
}

const char *status_code(enum status status)
{
	return row(status)->code;
}

int status_http(enum status status)
{
	return row(status)->http;
}

const char *status_title(enum status status)
{
	return row(status)->title;
}

bool status_retry_helps(enum status status)
{
	return row(status)->retry;
}

const char *status_reason(int http_status)
{
	switch (http_status) {
	case 201:
		return "Created";
	case 204:
		return "No Content";
	case 302:
		return "Found";
	}
	for (size_t i = 0; i < STATUS_COUNT; i++) {
		if (rows[i].http == http_status)
			return rows[i].title;
	}
	return "Unknown";
}
