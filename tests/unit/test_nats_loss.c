/* From the sequences of new messages, a channel learns that NATS has lost the end of its stream. */
#include "check.h"

#include "adapters/bus/nats/nats_internal.h"

static void growing_sequences_are_no_loss(void **state)
{
	struct nats_channel channel = {.last = 7};

	(void)state;
	assert_true(nats_channel_note(&channel, 7, 9));
	assert_true(nats_channel_note(&channel, 7, 8)); /* another producer's reply came first */
	assert_int_equal(channel.last, 9);
	assert_int_equal(channel.lost_from, 0);
}

static void the_lowest_reused_sequence_is_kept_in_whatever_order_replies_come(void **state)
{
	static const int64_t orders[][3] = {{90, 91, 92}, {91, 90, 92}, {92, 91, 90}, {91, 92, 90}};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(orders); i++) {
		struct nats_channel channel = {.last = 100};

		for (size_t j = 0; j < COUNT_OF(orders[i]); j++)
			assert_false(nats_channel_note(&channel, 100, orders[i][j]));
		assert_int_equal(channel.lost_from, 90);
		assert_true(channel.last < 100);
	}
}

static void a_second_loss_before_the_repair_may_reach_further_back(void **state)
{
	struct nats_channel channel = {.last = 100};

	(void)state;
	assert_false(nats_channel_note(&channel, 100, 90));
	assert_true(nats_channel_note(&channel, 90, 91));
	assert_false(nats_channel_note(&channel, 91, 40));
	assert_int_equal(channel.lost_from, 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(growing_sequences_are_no_loss),
		cmocka_unit_test(the_lowest_reused_sequence_is_kept_in_whatever_order_replies_come),
		cmocka_unit_test(a_second_loss_before_the_repair_may_reach_further_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
