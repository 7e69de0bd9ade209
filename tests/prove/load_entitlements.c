/*
 * Clients of entitlements. Every purchase is new and named after the operation that made it, so
 * each line of the audit can be traced to an operation. About as many purchases are revoked as are
 * made. A few revokes end everything a user has of a unit; a few grants and revokes repeat an old
 * purchase, and may be refused.
 *
 * Only a change of an entitlement's status is an event, and becomes a notification. Most users have
 * one purchase of a unit at a time, so most of their changes are events. A few users get many
 * purchases of the same unit, whose entitlement stays active while its sources come and go.
 */
#include <inttypes.h>

#include "load.h"

enum {
	USERS = 6000,
	BUSY_USERS = 100, /* the first ones */
	BUSY_PERCENT = 40,
	UNITS = 3,
	PURCHASES = 4096,
};

/* What is asked, in percent; the rest are revokes of purchases that nobody has revoked yet. */
enum { GRANT = 46, GRANT_AGAIN = 3, REVOKE_ALL = 4, REVOKE_ANY = 3 };

struct purchase {
	uint32_t user;
	uint32_t unit;
	char id[ID_MAX];
};

enum { KIND_GRANT, KIND_OTHER };

static struct purchase purchases[PURCHASES]; /* granted, and not revoked one by one */
static uint32_t purchase_count;

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
	bool busy = random_below(&load->random, 100) < BUSY_PERCENT;
	struct purchase purchase = {
		.user = random_below(&load->random, busy ? BUSY_USERS : USERS),
		.unit = random_below(&load->random, UNITS),
	};

	snprintf(purchase.id, sizeof(purchase.id), "%s-p%" PRIu64, load->prefix, o->id);
	o->kind = KIND_GRANT;
	change(load, o, &purchase, "grant");
}

/* One of the purchases; nobody else gets it if it is `taken`. */
static struct purchase some_purchase(struct load *load, bool taken)
{
	uint32_t index = random_below(&load->random, purchase_count);
	struct purchase purchase = purchases[index];

	if (taken)
		purchases[index] = purchases[--purchase_count];
	return purchase;
}

static bool entitlements_next(struct load *load, struct operation *o)
{
	uint32_t dice = random_below(&load->random, 100);
	struct purchase purchase;

	if (dice < GRANT || purchase_count == 0) {
		new_grant(load, o);
		return true;
	}
	purchase = some_purchase(load, dice >= GRANT + GRANT_AGAIN + REVOKE_ALL + REVOKE_ANY);
	o->kind = KIND_OTHER;
	if (dice < GRANT + GRANT_AGAIN) {
		change(load, o, &purchase, "grant");
		return true;
	}
	if (dice < GRANT + GRANT_AGAIN + REVOKE_ALL)
		purchase.id[0] = '\0';
	change(load, o, &purchase, "revoke");
	return true;
}

static void entitlements_answered(
	struct load *load, const struct operation *o, const struct response *response)
{
	struct purchase *purchase;

	if (o->kind != KIND_GRANT || response->status != 200)
		return;
	purchase = &purchases[purchase_count < PURCHASES ? purchase_count++
							 : random_below(&load->random, PURCHASES)];
	purchase->user = o->subject;
	purchase->unit = o->other;
	memcpy(purchase->id, o->note, sizeof(purchase->id));
}

const struct role_play entitlements_play = {
	.name = "entitlements",
	.share = 8,
	.next = entitlements_next,
	.answered = entitlements_answered,
};
