/*
 * The file of API keys and the Authorization header: up to the first NUL the input is a file,
 * behind it what a client shows. Whatever they are, they are read within the rules or refused, and
 * nobody gets in but with a key whose id stands in the file.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "access/api_keys.h"
#include "access/guard.h"
#include "target.h"

static int make_file(struct slice text)
{
	int fd = memfd_create("fuzz-keys", MFD_CLOEXEC);

	MUST(fd >= 0);
	MUST(write(fd, text.data, text.len) == (ssize_t)text.len);
	return fd;
}

static bool has(struct slice whole, struct slice part)
{
	return memmem(whole.data, whole.len, part.data, part.len) != NULL;
}

static void check_asking(struct guard *guard, struct slice file, struct slice shown)
{
	struct access_question question = {.authorization = shown};
	struct caller caller;
	struct arena arena;

	arena_init(&arena, 1024);
	for (enum access access = ACCESS_EXTERNAL; access <= ACCESS_OWNER_STREAM; access++) {
		const char *why = NULL;
		enum status status;

		question.access = access;
		status = guard_check(guard, &arena, &question, &caller, &why);
		MUST((status == STATUS_OK) == (why == NULL));
		if (access == ACCESS_PUBLIC || status != STATUS_OK) {
			MUST(caller.kind == CALLER_ANYONE);
			continue;
		}
		MUST(caller.kind == CALLER_KEY && caller.name.len > 0);
		MUST(has(file, caller.name) && has(shown, caller.name));
	}
	arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice rest = slice_make(data, size), file = slice_cut(&rest, '\0');
	char path[64], why[GUARD_WHY_SIZE] = "";
	struct guard_config config = {.keys_file = path,
		.tokens = {.key_file = "", .algorithm = "", .issuer = "", .audience = ""}};
	int fd = make_file(file);
	struct guard *guard;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	guard = guard_new(&config, why);
	MUST((guard == NULL) == (why[0] != '\0'));
	if (guard) {
		check_asking(guard, file, rest);
		guard_free(guard);
	}
	close(fd);
	return 0;
}
