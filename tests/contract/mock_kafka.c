/*
 * librdkafka's mock cluster as a program, for tests that need a Kafka which can be told to fail, or
 * where no real one can be had. Prints its bootstrap servers on a line, and obeys lines on standard
 * input until that ends:
 *
 *   down      all brokers close their connections and refuse new ones
 *   up        and accept them again
 *   slow MS   every answer takes so long (0: as fast as it can)
 *
 * Each is answered with "ok" or "error". It proves nothing about persistence: all is in memory.
 */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BROKERS 1

static bool for_all(rd_kafka_mock_cluster_t *cluster,
	rd_kafka_resp_err_t (*set)(rd_kafka_mock_cluster_t *, int32_t))
{
	bool done = true;

	for (int32_t broker = 1; broker <= BROKERS; broker++)
		done = set(cluster, broker) == RD_KAFKA_RESP_ERR_NO_ERROR && done;
	return done;
}

static bool slow_down(rd_kafka_mock_cluster_t *cluster, int rtt_ms)
{
	bool done = true;

	for (int32_t broker = 1; broker <= BROKERS; broker++)
		done = rd_kafka_mock_broker_set_rtt(cluster, broker, rtt_ms) ==
			       RD_KAFKA_RESP_ERR_NO_ERROR &&
		       done;
	return done;
}

static bool obey(rd_kafka_mock_cluster_t *cluster, const char *line)
{
	if (!strcmp(line, "down\n"))
		return for_all(cluster, rd_kafka_mock_broker_set_down);
	if (!strcmp(line, "up\n"))
		return for_all(cluster, rd_kafka_mock_broker_set_up);
	if (!strncmp(line, "slow ", 5))
		return slow_down(cluster, atoi(line + 5));
	return false;
}

int main(void)
{
	char words[256];
	char line[64];
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	rd_kafka_t *rk;
	rd_kafka_mock_cluster_t *cluster;

	rd_kafka_conf_set_log_cb(conf, NULL);
	rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, words, sizeof(words));
	cluster = rk ? rd_kafka_mock_cluster_new(rk, BROKERS) : NULL;
	if (!cluster) {
		fprintf(stderr, "mock_kafka: no cluster\n");
		return 1;
	}
	printf("%s\n", rd_kafka_mock_cluster_bootstraps(cluster));
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		printf("%s\n", obey(cluster, line) ? "ok" : "error");
		fflush(stdout);
	}
	rd_kafka_mock_cluster_destroy(cluster);
	rd_kafka_destroy(rk);
	return 0;
}
