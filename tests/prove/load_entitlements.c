/*
 * Clients of entitlements. Every purchase is new and named after the operation that made it, so
 * each line of the audit can be traced to an operation. Revokes mostly end purchases of the last
 * seconds; a few end everything a user has of a unit, and a few grants repeat an old purchase,
 * which is refused.
 */
#include <inttypes.h>

#include "load.h"

enum { USERS = 1500, UNITS = 3, PURCHASES = 1024 };

struct purchase {
	uint32_t user;
	uint32_t unit;
	char id[ID_MAX];
};

enum { KIND_GRANT, KIND_REVOKE };

static struct purchase purchases[PURCHASES]; /* a ring of those that were granted */
static uint32_t purchases_made;

static void change(
	struct load *load, struct operation *o, const struct purchase *purchase, const char *verb)
{
	char path[64];
	char body[384];
	char source[96] = "";

	if (purchase->id[0])
		snprintf(source, sizeof(source), ",\"purchase_id\":\"%s\"", purchase->id);
	snprintf(path, sizeof(path), "/v1/entitlements/%ss", verb);
	snprintf(body, sizeof(body),
		"{\"user_id\":\"%se%u\",\"stock_keeping_unit\":\"unit%u\",\"reason\":\"%s\"%s}",
		load->prefix, purchase->user, purchase->unit,
		purchase->id[0] ? "purchase" : "support", source);
	o->subject = purchase->user;
	o->other = purchase->unit;
	snprintf(o->note, sizeof(o->note), "%s", purchase->id);
	operation_describe(o, "%s %se%u unit%u %s", verb, load->prefix, purchase->user,
		purchase->unit, purchase->id[0] ? purchase->id : "-");
	operation_request(load, o, "POST", path, NULL, body);
}

static void new_grant(struct load *load, struct operation *o)
{
	struct purchase purchase = {
		.user = random_below(&load->random, USERS),
		.unit = random_below(&load->random, UNITS),
	};

	snprintf(purchase.id, sizeof(purchase.id), "%s-p%" PRIu64, load->prefix, o->id);
	o->kind = KIND_GRANT;
	change(load, o, &purchase, "grant");
}

static bool entitlements_next(struct load *load, struct operation *o)
{
	uint32_t dice = random_below(&load->random, 100);
	uint32_t known = purchases_made < PURCHASES ? purchases_made : PURCHASES;
	struct purchase purchase;

	if (dice < 58 || known == 0) {
		new_grant(load, o);
		return true;
	}
	purchase = purchases[random_below(&load->random, known)];
	o->kind = KIND_REVOKE;
	if (dice < 62) {
		change(load, o, &purchase, "grant");
	} else if (dice < 66) {
		purchase.id[0] = '\0';
		change(load, o, &purchase, "revoke");
	} else {
		change(load, o, &purchase, "revoke");
	}
	return true;
}

static void entitlements_answered(
	struct load *load, const struct operation *o, const struct response *response)
{
	struct purchase *purchase = &purchases[purchases_made % PURCHASES];

	if (o->kind != KIND_GRANT || response->status != 200)
		return;
	purchase->user = o->subject;
	purchase->unit = o->other;
	memcpy(purchase->id, o->note, sizeof(purchase->id));
	purchases_made++;
}

const struct role_play entitlements_play = {
	.name = "entitlements",
	.share = 8,
	.next = entitlements_next,
	.answered = entitlements_answered,
};
