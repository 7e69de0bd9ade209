/* Guesses which name somebody meant to write. Pure. */
#ifndef QUIPU_BASE_NEAREST_H
#define QUIPU_BASE_NEAREST_H

#include "base/slice.h"

/*
 * Returns the name of `known`, a list that ends with NULL, that `word` resembles most, or NULL if
 * it resembles none. Case, '_', '-' and brackets make no difference.
 */
const char *nearest_name(struct slice word, const char *const *known);

#endif
