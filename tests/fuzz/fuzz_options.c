/* The configuration file: whatever stands in it, it is read within the rules or refused. */
#include <sys/mman.h>
#include <unistd.h>

#include "cli/options.h"
#include "target.h"

static int make_file(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz-options", MFD_CLOEXEC);

	MUST(fd >= 0);
	MUST(write(fd, data, size) == (ssize_t)size);
	return fd;
}

static void check_settings(const struct settings *settings)
{
	MUST(settings->listen && settings->data && settings->roles && settings->store);
	MUST(settings->lanes >= 0 && settings->lanes <= 64);
	MUST(settings->loops >= 0 && settings->loops <= 256);
	MUST(settings->batch_max >= 1 && settings->batch_max <= 65536);
	MUST(settings->lane_depth >= 1 && settings->lane_bytes >= 65536);
	MUST(settings->deadline_us >= 1000 && settings->idle_timeout_us >= 1000);
	MUST(settings->drain_timeout_us >= 0 && settings->idempotency_ttl_us >= 1000);
}

static void check_printing(void)
{
	static FILE *nowhere;

	if (!nowhere)
		nowhere = fopen("/dev/null", "w");
	MUST(nowhere != NULL);
	options_print(nowhere);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct settings settings;
	char why[OPTIONS_WHY_SIZE];
	char argument[64];
	char *arguments[] = {argument};
	int fd = make_file(data, size);
	bool ok;

	memset(why, '?', sizeof(why));
	snprintf(argument, sizeof(argument), "--config=/proc/self/fd/%d", fd);
	ok = options_read(&settings, NULL, 1, arguments, why);
	if (ok)
		check_settings(&settings);
	else
		MUST(memchr(why, '\0', sizeof(why)) && why[0] != '\0' && why[0] != '?');
	check_printing();
	close(fd);
	return 0;
}
