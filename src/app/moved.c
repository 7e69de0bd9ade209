/*
 * The file "moved" says that the data of a folder was copied to another store, or is being copied.
 * `quipu copy` writes the file before it copies the first row, so that no server writes to the
 * folder during the copy, or after the copy was interrupted. The program reads only the first line
 * of the file; the second line is a note for people.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "app/app.h"
#include "base/file.h"

#define FILE_NAME "moved"
#define TEXT_SIZE 1024

bool moved_read(const char *data, struct moved *moved)
{
	char path[PATH_MAX], text[TEXT_SIZE], state[16] = "";
	ssize_t len;

	snprintf(path, sizeof(path), "%s/" FILE_NAME, data);
	len = file_read_start(path, text, sizeof(text) - 1);
	if (len < 0 && errno == ENOENT)
		return false;
	text[len > 0 ? len : 0] = '\0';
	memset(moved, 0, sizeof(*moved));
	/* A file that cannot be parsed stands for an unknown copy, and keeps servers out too. */
	if (sscanf(text, "%15s %36s %255[^\n]", state, moved->copy_id, moved->to) < 3)
		snprintf(moved->to, sizeof(moved->to), "an unknown database");
	moved->is_finished = strcmp(state, "moved") == 0;
	return true;
}

static bool sync_folder(const char *data)
{
	int folder = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool synced = folder >= 0 && fsync(folder) == 0;

	if (folder >= 0)
		close(folder);
	return synced;
}

static bool write_file(const char *path, const struct moved *moved)
{
	FILE *file = fopen(path, "we");
	bool written;

	if (!file)
		return false;
	fprintf(file,
		"%s %s %s\nquipu copy wrote this file. While it is here, no server uses this "
		"folder.\n",
		moved->is_finished ? "moved" : "copying", moved->copy_id, moved->to);
	written = fflush(file) == 0 && fsync(fileno(file)) == 0;
	return fclose(file) == 0 && written;
}

bool moved_write(const char *data, const struct moved *moved, char *why)
{
	char path[PATH_MAX], fresh[PATH_MAX];

	snprintf(path, sizeof(path), "%s/" FILE_NAME, data);
	snprintf(fresh, sizeof(fresh), "%s/" FILE_NAME ".new", data);
	if (write_file(fresh, moved) && rename(fresh, path) == 0 && sync_folder(data))
		return true;
	snprintf(why, OPTIONS_WHY_SIZE, "cannot write %.300s: %s", path, strerror(errno));
	return false;
}

void moved_explain(const char *data, const struct moved *moved, char *why)
{
	if (moved->is_finished)
		snprintf(why, OPTIONS_WHY_SIZE,
			"the data in %s was moved to %s: set --store to that database, and choose "
			"another --data. To use the old data anyway, delete %s/" FILE_NAME
			"; the old data lacks all changes made since the move",
			data, moved->to, data);
	else
		snprintf(why, OPTIONS_WHY_SIZE,
			"the copy of %s to %s is not finished: run quipu copy again. To abandon "
			"the copy and use this folder, delete %s/" FILE_NAME
			"; a new copy will then need an empty database",
			data, moved->to, data);
}
