/* The OpenAPI document of the process: the documents of its roles, joined at start. */
#ifndef QUIPU_ADMIN_OPENAPI_H
#define QUIPU_ADMIN_OPENAPI_H

#include "base/slice.h"
#include "http/router.h"

/*
 * Joins OpenAPI documents: their `paths`, their `tags` and the members of their `components`. The
 * first document supplies everything else, except for the version, which is the program's. The
 * caller frees the text of the result with free(). A document that is not JSON aborts, because
 * documents are embedded in the binary.
 */
struct slice openapi_join(const char *const *documents, size_t count);

/* Adds /openapi.json, which sends `*document`. `document` outlives the router. */
void openapi_add_route(struct slice *document, struct router *router);

#endif
