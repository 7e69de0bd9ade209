/* The tables of engines. Each create_…() function passes the members of a struct store_plan or
 * bus_plan to the constructor of an adapter. */
#include "app/engines.h"

#include "adapters/bus/kafka/kafka_bus.h"
#include "adapters/bus/local/local_bus.h"
#include "adapters/bus/nats/nats_bus.h"
#include "adapters/bus/rabbitmq/rabbitmq_bus.h"
#include "adapters/store/postgres/postgres_store.h"
#include "adapters/store/sqlite/sqlite_store.h"
#include "base/clock.h"

/* ---- stores ------------------------------------------------------------------------------ */

static struct store *create_sqlite(const struct store_plan *plan, const char *path)
{
	return sqlite_store_new(plan->name, path, plan->components, &clock_system);
}

static struct store *create_postgres(const struct store_plan *plan, const char *path)
{
	return postgres_store_new(plan->name, plan->url, plan->components);
}

const struct store_engine store_engines[] = {
	{"sqlite:", true, create_sqlite},
	{"postgres://", false, create_postgres},
	{"postgresql://", false, create_postgres},
	{NULL, false, NULL},
};

/* ---- buses ------------------------------------------------------------------------------- */

static struct bus *create_local(const struct bus_plan *plan, const char *path)
{
	return local_bus_new(plan->name, path, plan->channels, plan->channel_count);
}

static struct bus *create_kafka(const struct bus_plan *plan, const char *path)
{
	return kafka_bus_new(plan->name, plan->url, plan->channels, plan->channel_count);
}

static struct bus *create_nats(const struct bus_plan *plan, const char *path)
{
	return nats_bus_new(plan->name, plan->url, plan->channels, plan->channel_count);
}

static struct bus *create_rabbitmq(const struct bus_plan *plan, const char *path)
{
	return rabbitmq_bus_new(plan->name, plan->url, plan->channels, plan->channel_count);
}

const struct bus_engine bus_engines[] = {
	{"local:", true, create_local},
	{"kafka://", false, create_kafka},
	{"nats://", false, create_nats},
	{"tls://", false, create_nats},
	{"amqp://", false, create_rabbitmq},
	{"amqps://", false, create_rabbitmq},
	{NULL, false, NULL},
};
