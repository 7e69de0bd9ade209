#include "admin/metrics_page.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define US_PER_S 1000000LL

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

/* ---- the process, under the names that all clients of Prometheus use ----------------------- */

static void sample(struct buffer *page, const char *name, const char *help, int64_t value)
{
	metrics_family(page, name, "gauge", help);
	metrics_sample(page, name, "", value);
}

static void collect_memory(struct buffer *page)
{
	FILE *file = fopen("/proc/self/statm", "re");
	long long size = 0, resident = 0;
	long page_bytes = sysconf(_SC_PAGESIZE);

	if (file && fscanf(file, "%lld %lld", &size, &resident) != 2)
		size = resident = 0;
	if (file)
		fclose(file);
	sample(page, "process_virtual_memory_bytes", "Virtual memory.", size * page_bytes);
	sample(page, "process_resident_memory_bytes", "Resident memory.", resident * page_bytes);
}

static void collect_cpu(struct buffer *page)
{
	struct rusage usage;
	int64_t us;

	getrusage(RUSAGE_SELF, &usage);
	us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * US_PER_S + usage.ru_utime.tv_usec +
	     usage.ru_stime.tv_usec;
	metrics_family(page, "process_cpu_seconds_total", "counter",
		"Processor time used, in user and system mode.");
	buffer_format(page, "process_cpu_seconds_total %lld.%06lld\n", (long long)(us / US_PER_S),
		(long long)(us % US_PER_S));
}

/* Since Linux 6.2, the size of /proc/self/fd is the number of open files. Listing the folder would
 * take too long with many connections. */
static void collect_files(struct buffer *page)
{
	struct rlimit limit;
	struct stat folder;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		sample(page, "process_max_fds", "How many file descriptors the process may have.",
			(int64_t)limit.rlim_cur);
	if (stat("/proc/self/fd", &folder) == 0 && folder.st_size > 0)
		sample(page, "process_open_fds", "Open file descriptors.", folder.st_size);
}

void process_collect(void *context, struct buffer *page)
{
	const int64_t *started_us = context;

	metrics_family(page, "quipu_build_info", "gauge", "Always 1; the label has the version.");
	metrics_sample(page, "quipu_build_info", "version=\"" QUIPU_VERSION "\"", 1);
	sample(page, "process_start_time_seconds",
		"When the process started, in seconds since 1970.", *started_us / US_PER_S);
	collect_cpu(page);
	collect_memory(page);
	collect_files(page);
}
