/* From the sequences of new messages, a channel learns that NATS has lost the end of its stream. */
#include "check.h"

#include "adapters/bus/nats/nats_internal.h"

static void growing_sequences_are_no_loss(void **state)
{
	struct nats_channel channel = {.last = 7};

	(void)state;
	assert_true(nats_channel_note(&channel, 7, 9, false));
	assert_true(
		nats_channel_note(&channel, 7, 8, false)); /* another producer's reply came first */
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
			assert_false(nats_channel_note(&channel, 100, orders[i][j], false));
		assert_int_equal(channel.lost_from, 90);
		assert_true(channel.last < 100);
	}
}

static void a_second_loss_before_the_repair_may_reach_further_back(void **state)
{
	struct nats_channel channel = {.last = 100};

	(void)state;
	assert_false(nats_channel_note(&channel, 100, 90, false));
	assert_true(nats_channel_note(&channel, 90, 91, false));
	assert_false(nats_channel_note(&channel, 91, 40, false));
	assert_int_equal(channel.lost_from, 40);
}

static void a_received_message_raises_the_floor_of_the_next_publish(void **state)
{
	struct nats_channel channel = {.last = 7};

	(void)state;
	nats_channel_raise(&channel, 100);
	nats_channel_raise(&channel, 40); /* delivered again */
	assert_int_equal(channel.last, 100);
	assert_false(nats_channel_note(&channel, channel.last, 100, false));
	assert_int_equal(channel.lost_from, 100);
}

static void an_old_duplicate_is_no_loss_and_a_new_one_raises_the_floor(void **state)
{
	struct nats_channel channel = {.last = 100};

	(void)state;
	assert_true(nats_channel_note(&channel, 100, 40, true));
	assert_int_equal(channel.last, 100);
	assert_true(nats_channel_note(&channel, 100, 101, true));
	assert_int_equal(channel.last, 101);
	assert_int_equal(channel.lost_from, 0);
}

static void a_repair_that_failed_is_done_from_the_lowest_lost_sequence(void **state)
{
	struct nats_channel channel = {.lost_from = 90};

	(void)state;
	nats_channel_lose(&channel, 95);
	assert_int_equal(channel.lost_from, 90);
	nats_channel_lose(&channel, 40);
	assert_int_equal(channel.lost_from, 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(growing_sequences_are_no_loss),
		cmocka_unit_test(the_lowest_reused_sequence_is_kept_in_whatever_order_replies_come),
		cmocka_unit_test(a_second_loss_before_the_repair_may_reach_further_back),
		cmocka_unit_test(a_received_message_raises_the_floor_of_the_next_publish),
		cmocka_unit_test(an_old_duplicate_is_no_loss_and_a_new_one_raises_the_floor),
		cmocka_unit_test(a_repair_that_failed_is_done_from_the_lowest_lost_sequence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
