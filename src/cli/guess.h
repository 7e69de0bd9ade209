/* Guesses which word a user meant to type on the command line. Main thread only. */
#ifndef QUIPU_CLI_GUESS_H
#define QUIPU_CLI_GUESS_H

#include "base/slice.h"

/*
 * Returns "; did you mean …?" in a static buffer or, if none of `names` resembles `word`, "; see
 * quipu help". `names` ends with NULL. `prefix` is written before the guessed name.
 */
const char *guess_name(struct slice word, const char *const *names, const char *prefix);

#endif
