#include "admin/metrics_page.h"

#include <stdio.h>
#include <unistd.h>

static void get_metrics(void *context, struct request *request)
{
	const struct metrics *metrics = context;
	struct buffer page = buffer_make(&request->arena, 32 * 1024);
	struct answer answer = {
		.http_status = 200,
		.content_type = SLICE("text/plain; version=0.0.4; charset=utf-8"),
	};

	metrics_write(metrics, &page);
	answer.body = buffer_slice(&page);
	request_answer(request, answer);
}

void metrics_page_add_route(struct metrics *metrics, struct router *router)
{
	const struct route route = {
		"GET", "/metrics", ACCESS_INTERNAL, get_metrics, metrics, 0, NULL, names_any};

	router_add_all(router, NULL, &route, 1);
}

static int64_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	long long pages = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%*s %lld", &pages) != 1)
		pages = 0;
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

void process_collect(void *context, struct buffer *page)
{
	(void)context;
	metrics_family(page, "process_resident_memory_bytes", "gauge", "Resident memory.");
	metrics_sample(page, "process_resident_memory_bytes", "", resident_bytes());
}
