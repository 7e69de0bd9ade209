/* Which connection is closed under pressure: the one whose client has kept us waiting longest. */
#include "check.h"

#include "http/connection.h"

#define MUCH (100 * 1024)
#define LITTLE 5000

static struct client_queues queues;
static struct connection clients[4];

static int set_up(void **state)
{
	(void)state;
	memset(&queues, 0, sizeof(queues));
	memset(clients, 0, sizeof(clients));
	return 0;
}

static void note(size_t client, enum client_state state, int64_t since_ns, size_t bytes)
{
	client_queues_note(&queues, &clients[client], state, since_ns, bytes);
}

static void the_longest_wait_of_any_kind_ends_first(void **state)
{
	(void)state;
	assert_null(client_queues_longest(&queues));
	note(0, CLIENT_READS, 30, MUCH);
	note(1, CLIENT_IDLE, 20, 0);
	note(2, CLIENT_SENDS, 10, LITTLE);
	assert_ptr_equal(client_queues_longest(&queues), &clients[2]);
	note(2, CLIENT_SERVED, 40, LITTLE);
	assert_ptr_equal(client_queues_longest(&queues), &clients[1]);
	note(1, CLIENT_IDLE, 50, 0);
	assert_ptr_equal(client_queues_longest(&queues), &clients[0]);
}

static void idle_clients_hold_no_memory(void **state)
{
	(void)state;
	note(0, CLIENT_IDLE, 10, 0);
	assert_null(client_queues_longest_holding(&queues, COUNT_OF(clients)));
	note(1, CLIENT_READS, 20, MUCH);
	assert_ptr_equal(client_queues_longest_holding(&queues, COUNT_OF(clients)), &clients[1]);
	assert_int_equal(queues.bytes, MUCH);
}

static void for_memory_those_who_hold_much_are_closed_before_a_short_request(void **state)
{
	(void)state;
	note(0, CLIENT_SENDS, 10, LITTLE);
	note(1, CLIENT_SENDS, 20, MUCH);
	note(2, CLIENT_READS, 15, MUCH);
	assert_ptr_equal(client_queues_longest_holding(&queues, COUNT_OF(clients)), &clients[2]);
	note(2, CLIENT_SERVED, 0, 0);
	assert_ptr_equal(client_queues_longest_holding(&queues, COUNT_OF(clients)), &clients[1]);
}

static void a_short_request_stays_while_others_hold_the_memory(void **state)
{
	(void)state;
	note(0, CLIENT_SENDS, 10, LITTLE);
	note(1, CLIENT_SERVED, 0, MUCH); /* cannot be closed now, but will soon be done */
	assert_null(client_queues_longest_holding(&queues, COUNT_OF(clients)));
}

static void many_short_requests_give_way_too(void **state)
{
	(void)state;
	note(0, CLIENT_SENDS, 10, LITTLE);
	note(1, CLIENT_SENDS, 20, LITTLE);
	assert_ptr_equal(client_queues_longest_holding(&queues, COUNT_OF(clients)), &clients[0]);
}

static void an_idle_client_whose_tables_take_memory_gives_way_in_its_turn(void **state)
{
	(void)state;
	note(0, CLIENT_HOLDS, 10, MUCH);
	note(1, CLIENT_READS, 20, MUCH);
	note(2, CLIENT_IDLE, 5, 0);
	assert_ptr_equal(client_queues_longest(&queues), &clients[2]);
	assert_ptr_equal(client_queues_longest_holding(&queues, COUNT_OF(clients)), &clients[0]);
	note(0, CLIENT_HOLDS, 30, MUCH);
	assert_ptr_equal(client_queues_longest_holding(&queues, COUNT_OF(clients)), &clients[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_longest_wait_of_any_kind_ends_first, set_up),
		cmocka_unit_test_setup(idle_clients_hold_no_memory, set_up),
		cmocka_unit_test_setup(
			for_memory_those_who_hold_much_are_closed_before_a_short_request, set_up),
		cmocka_unit_test_setup(a_short_request_stays_while_others_hold_the_memory, set_up),
		cmocka_unit_test_setup(many_short_requests_give_way_too, set_up),
		cmocka_unit_test_setup(
			an_idle_client_whose_tables_take_memory_gives_way_in_its_turn, set_up),
	};

	return cmocka_run_group_tests_name("client_queues", tests, NULL, NULL);
}
