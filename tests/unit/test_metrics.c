/* What Prometheus reads: counters, histograms, and the text of the page. */
#include "arena_fixture.h"

#include "base/metrics.h"

static void a_counter_goes_up_and_down(void **state)
{
	struct tally counter = {0};

	(void)state;
	assert_int_equal(tally_read(&counter), 0);
	tally_add(&counter, 5);
	tally_add(&counter, -7);
	assert_int_equal(tally_read(&counter), -2);
}

static void samples_are_written_with_and_without_labels(void **state)
{
	struct buffer page = buffer_make(*state, 0);

	metrics_family(&page, "quipu_lanes", "gauge", "How many.");
	metrics_sample(&page, "quipu_lanes", "", 3);
	metrics_sample(&page, "quipu_lanes", "lane=\"a\"", INT64_MIN);
	assert_slice(buffer_slice(&page), "# HELP quipu_lanes How many.\n"
					  "# TYPE quipu_lanes gauge\n"
					  "quipu_lanes 3\n"
					  "quipu_lanes{lane=\"a\"} -9223372036854775808\n");
}

static void label_values_are_escaped(void **state)
{
	struct buffer labels = buffer_make(*state, 0);

	metrics_label_value(&labels, slice_of("a\"b\\c\nd \xc3\xa4"));
	assert_slice(buffer_slice(&labels), "a\\\"b\\\\c\\nd \xc3\xa4");
}

static const struct histogram_shape powers = {
	.bounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768},
	.scale = 1,
};

static struct slice render(
	struct arena *arena, const struct histogram *histogram, const char *labels)
{
	struct buffer page = buffer_make(arena, 0);

	metrics_histogram(&page, "h", labels, histogram);
	return buffer_slice(&page);
}

static void a_value_on_a_bound_belongs_below_it(void **state)
{
	struct histogram histogram;
	struct slice page;

	histogram_init(&histogram, &powers);
	histogram_observe(&histogram, 2);
	page = render(*state, &histogram, "");
	assert_contains(page, "h_bucket{le=\"1\"} 0\nh_bucket{le=\"2\"} 1\n");
	histogram_observe(&histogram, 3);
	page = render(*state, &histogram, "");
	assert_contains(page, "h_bucket{le=\"2\"} 1\nh_bucket{le=\"4\"} 2\n");
}

static void buckets_add_up_to_the_count(void **state)
{
	struct histogram histogram;
	struct slice page;

	histogram_init(&histogram, &powers);
	histogram_observe(&histogram, 0);
	histogram_observe(&histogram, 1);
	histogram_observe(&histogram, 100);
	histogram_observe(&histogram, 1000000);
	page = render(*state, &histogram, "");
	assert_contains(page, "h_bucket{le=\"1\"} 2\n");
	assert_contains(page, "h_bucket{le=\"64\"} 2\n");
	assert_contains(page, "h_bucket{le=\"128\"} 3\n");
	assert_contains(page, "h_bucket{le=\"32768\"} 3\n");
	assert_contains(page, "h_bucket{le=\"+Inf\"} 4\nh_sum 1000101\nh_count 4\n");
}

static void labels_stand_before_the_bound(void **state)
{
	struct histogram histogram;
	struct slice page;

	histogram_init(&histogram, &powers);
	page = render(*state, &histogram, "a=\"b\"");
	assert_contains(page, "h_bucket{a=\"b\",le=\"1\"} 0\n");
	assert_contains(
		page, "h_bucket{a=\"b\",le=\"+Inf\"} 0\nh_sum{a=\"b\"} 0\nh_count{a=\"b\"} 0\n");
}

static void durations_are_shown_in_seconds(void **state)
{
	struct histogram histogram;
	struct slice page;

	histogram_init(&histogram, &histogram_duration_ns);
	histogram_observe(&histogram, 1500000);
	page = render(*state, &histogram, "");
	assert_contains(page, "h_bucket{le=\"0.0001\"} 0\n");
	assert_contains(page, "h_bucket{le=\"0.001\"} 0\nh_bucket{le=\"0.0025\"} 1\n");
	assert_contains(page, "h_bucket{le=\"10\"} 1\n");
	assert_contains(page, "h_sum 0.0015\n");
}

static void a_latency_is_a_sum_in_seconds_and_a_count(void **state)
{
	struct buffer page = buffer_make(*state, 0);
	struct latency latency = {0};

	latency_add(&latency, 1500000);
	latency_add(&latency, 500000);
	metrics_latency(&page, "l", "a=\"b\"", &latency);
	assert_slice(buffer_slice(&page), "l_sum{a=\"b\"} 0.002\nl_count{a=\"b\"} 2\n");
}

static void the_shapes_in_use_ascend(void **state)
{
	static const struct histogram_shape *const shapes[] = {
		&histogram_duration_ns, &histogram_batch_size};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(shapes); i++) {
		for (size_t at = 1; at < HISTOGRAM_BUCKETS; at++)
			assert_true(shapes[i]->bounds[at] > shapes[i]->bounds[at - 1]);
	}
}

static void add_text(void *context, struct buffer *page)
{
	buffer_text(page, context);
}

static void the_page_is_every_collector_in_order(void **state)
{
	struct metrics metrics = {0};
	struct buffer page = buffer_make(*state, 0);
	char one[] = "one\n", two[] = "two\n";

	metrics_write(&metrics, &page);
	assert_slice(buffer_slice(&page), "");
	metrics_add(&metrics, add_text, one);
	metrics_add(&metrics, add_text, two);
	metrics_write(&metrics, &page);
	assert_slice(buffer_slice(&page), "one\ntwo\n");
}

#define TEST(name) cmocka_arena_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_counter_goes_up_and_down),
		TEST(samples_are_written_with_and_without_labels),
		TEST(label_values_are_escaped),
		TEST(a_value_on_a_bound_belongs_below_it),
		TEST(buckets_add_up_to_the_count),
		TEST(labels_stand_before_the_bound),
		TEST(durations_are_shown_in_seconds),
		TEST(a_latency_is_a_sum_in_seconds_and_a_count),
		TEST(the_shapes_in_use_ascend),
		TEST(the_page_is_every_collector_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
