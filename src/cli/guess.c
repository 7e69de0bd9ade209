#include "cli/guess.h"

#include <stdio.h>

#include "base/nearest.h"

const char *guess_name(struct slice word, const char *const *names, const char *prefix)
{
	static char text[96];
	const char *nearest = nearest_name(word, names);

	snprintf(text, sizeof(text), "; did you mean %s%s?", prefix, nearest ? nearest : "");
	return nearest ? text : "; see quipu help";
}
