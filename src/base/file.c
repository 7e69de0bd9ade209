#include "base/file.h"

#include <stdio.h>
#include <sys/stat.h>

ssize_t file_read_start(const char *path, char *bytes, size_t size)
{
	FILE *in = fopen(path, "re");
	size_t len;
	bool failed;

	if (!in)
		return -1;
	setvbuf(in, NULL, _IONBF, 0);
	len = fread(bytes, 1, size, in);
	failed = ferror(in) != 0;
	fclose(in);
	return failed ? -1 : (ssize_t)len;
}

bool file_is_anyones(const char *path)
{
	struct stat about;

	return stat(path, &about) == 0 && (about.st_mode & S_IWOTH);
}
