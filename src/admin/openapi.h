/* The OpenAPI document of the process: the documents of its roles, joined at start. */
#ifndef QUIPU_ADMIN_OPENAPI_H
#define QUIPU_ADMIN_OPENAPI_H

#include "base/slice.h"
#include "http/router.h"

/*
 * Joins OpenAPI documents: their `paths`, their `tags` and the members of their `components`. The
 * version is the program's; everything else comes from the first document. If `checks_tokens` is
 * true, parameters marked `x-replaced-by-token` become optional. The caller frees the result's text
 * with free(). Aborts if a document is not JSON: documents are embedded in the binary, so only a
 * faulty build can contain such a document.
 */
struct slice openapi_join(const char *const *documents, size_t count, bool checks_tokens);

/* Adds /openapi.json, which sends `*document`. `document` must outlive the router. */
void openapi_add_route(struct slice *document, struct router *router);

#endif
