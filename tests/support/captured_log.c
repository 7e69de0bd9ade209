#include "captured_log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h"
#include "check.h"
#include "waiting.h"

static struct {
	int terminal; /* where standard error went before */
	int file;
} captured;

void captured_log_begin(void)
{
	fflush(stderr);
	captured.terminal = dup(STDERR_FILENO);
	captured.file = memfd_create("log", 0);
	assert(captured.terminal >= 0 && captured.file >= 0);
	dup2(captured.file, STDERR_FILENO);
}

/* The caller frees it. */
static char *read_log(void)
{
	off_t size = lseek(captured.file, 0, SEEK_END);
	char *text = qp_calloc(1, (size_t)size + 1);
	ssize_t got = pread(captured.file, text, (size_t)size, 0);

	assert(got == size);
	(void)got;
	return text;
}

void captured_log_end(void)
{
	char *text = read_log();

	dup2(captured.terminal, STDERR_FILENO);
	close(captured.terminal);
	close(captured.file);
	fputs(text, stderr);
	free(text);
}

int captured_log_count(const char *words)
{
	char *text = read_log();
	int count = 0;

	for (const char *at = strstr(text, words); at; at = strstr(at + 1, words))
		count++;
	free(text);
	return count;
}

void captured_log_assert(const char *words, int times)
{
	WAIT_UNTIL(captured_log_count(words) >= times);
	assert_int_equal(captured_log_count(words), times);
}
