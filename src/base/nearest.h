/* Guesses which name somebody meant to write. Pure. */
#ifndef QUIPU_BASE_NEAREST_H
#define QUIPU_BASE_NEAREST_H

#include "base/slice.h"

/*
 * Returns the name that resembles `word` most, or NULL if no name is similar. The list `known` ends
 * with NULL. Case, '_', '-' and brackets make no difference.
 */
const char *nearest_name(struct slice word, const char *const *known);

#endif
