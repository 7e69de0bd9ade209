#include "admin/openapi.h"

#include <assert.h>
#include <jansson.h>

/* Adds the members of `from` to those of `into[name]`. */
static void join_members(json_t *into, const char *name, json_t *from)
{
	json_t *target = json_object_get(into, name);

	if (!target) {
		json_object_set(into, name, from);
		return;
	}
	json_object_update(target, from);
}

static void join_documents(json_t *into, json_t *document)
{
	json_t *components = json_object_get(into, "components");
	const char *kind;
	json_t *members;

	join_members(into, "paths", json_object_get(document, "paths"));
	json_array_extend(json_object_get(into, "tags"), json_object_get(document, "tags"));
	json_object_foreach(json_object_get(document, "components"), kind, members)
		join_members(components, kind, members);
}

/* Makes the parameters that name the user optional, because a caller with a token need not send
 * them: the token names the user. */
static void require_tokens_only(json_t *document)
{
	json_t *components = json_object_get(document, "components");
	const char *name;
	json_t *parameter;

	json_object_foreach(json_object_get(components, "parameters"), name, parameter)
	{
		if (json_is_true(json_object_get(parameter, "x-replaced-by-token")))
			json_object_set_new(parameter, "required", json_false());
	}
}

struct slice openapi_join(const char *const *documents, size_t count, bool checks_tokens)
{
	json_t *all = json_loads(documents[0], JSON_REJECT_DUPLICATES, NULL);
	char *text;

	assert(all);
	for (size_t i = 1; i < count; i++) {
		json_t *document = json_loads(documents[i], JSON_REJECT_DUPLICATES, NULL);

		assert(document);
		join_documents(all, document);
		json_decref(document);
	}
	if (checks_tokens)
		require_tokens_only(all);
	json_object_set_new(json_object_get(all, "info"), "version", json_string(QUIPU_VERSION));
	text = json_dumps(all, JSON_COMPACT);
	json_decref(all);
	assert(text);
	return slice_of(text);
}

static void get_openapi(void *context, struct request *request)
{
	const struct slice *document = context;

	request_answer(request, answer_json(200, *document));
}

void openapi_add_route(struct slice *document, struct router *router)
{
	const struct route route = {
		"GET", "/openapi.json", ACCESS_PUBLIC, get_openapi, document, 0, NULL, NULL};

	router_add_all(router, NULL, &route, 1);
}
