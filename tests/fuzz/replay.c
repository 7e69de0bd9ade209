/*
 * Runs every file of the folders given through the fuzz target it is linked with, so that inputs
 * which once broke something are tried with every compiler and in every `make test`.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "target.h"

static void run_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = NULL;
	size_t len = 0, size = 0;

	if (!file) {
		perror(path);
		exit(1);
	}
	for (;;) {
		if (len == size) {
			size = size ? size * 2 : 4096;
			data = realloc(data, size);
			if (!data)
				abort();
		}
		size_t got = fread(data + len, 1, size - len, file);

		if (got == 0)
			break;
		len += got;
	}
	fclose(file);
	data = realloc(data, len ? len : 1); /* so that reading behind the end is noticed */
	printf("%s (%zu bytes)\n", path, len);
	fflush(stdout);
	LLVMFuzzerTestOneInput(data, len);
	free(data);
}

static int run_folder(const char *folder)
{
	struct dirent **entries;
	int count = scandir(folder, &entries, NULL, alphasort);
	int ran = 0;

	if (count < 0) {
		perror(folder);
		exit(1);
	}
	for (int i = 0; i < count; i++) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
		if (entries[i]->d_name[0] != '.') {
			run_file(path);
			ran++;
		}
		free(entries[i]);
	}
	free(entries);
	return ran;
}

int main(int count, char **arguments)
{
	int ran = 0;

	for (int i = 1; i < count; i++)
		ran += run_folder(arguments[i]);
	printf("%d inputs\n", ran);
	if (ran == 0)
		fprintf(stderr, "%s: no inputs: name folders that hold some\n", arguments[0]);
	return ran == 0;
}
