/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of resizing without Pillow. tests/integration/image compares with Pillow. */
#include "tests/unit/test.h"

#include "image/decode/resample.h"

#include <stdlib.h>
#include <string.h>

static struct resample resample;
static uint8_t output[64 * 64 * 3];

static struct resample_plan plan_of(uint32_t width, uint32_t height, uint32_t to_width, uint32_t to_height)
{
	return (struct resample_plan){.filter = IMAGE_BILINEAR,
				      .width = width,
				      .height = height,
				      .box = {0, 0, (float)width, (float)height},
				      .output_width = to_width,
				      .output_height = to_height,
				      .window = {0, 0, to_width, to_height},
				      .part = {0, 0, width, height},
				      .row_width = width};
}

/* Returns the input's value of a channel. */
static uint8_t noise(uint32_t x, uint32_t y, uint32_t c)
{
	return (uint8_t)((x * 2654435761u + y * 40503u + c * 77u) >> 7);
}

/* Runs the plan. Columns outside of the input have 255, which must not show. */
static void run(const struct resample_plan *plan, uint8_t (*value)(uint32_t x, uint32_t y, uint32_t c))
{
	assert_int_equal(resample_begin(&resample, plan), 0);
	for (uint32_t y = 0; y < plan->height; y++) {
		uint8_t *row = resample_row(&resample);

		memset(row, 255, (size_t)plan->row_width * 3);
		for (uint32_t x = 0; x < plan->width; x++)
			for (uint32_t c = 0; c < 3; c++)
				row[(x + plan->lead) * 3 + c] = value(x, y, c);
	}
	resample_end(&resample, output);
}

static uint8_t grey(uint32_t x, uint32_t y, uint32_t c)
{
	return (uint8_t)(100 + c);
}

static uint8_t ramp(uint32_t x, uint32_t y, uint32_t c)
{
	return (uint8_t)(c ? 4 * y : 4 * x);
}

TEST(same_size_is_the_same)
{
	for (int filter = IMAGE_BOX; filter <= IMAGE_LANCZOS; filter++)
		for (uint32_t n = 1; n < 40; n++) {
			struct resample_plan plan = plan_of(n, n, n, n);

			plan.filter = filter;
			run(&plan, noise);
			for (uint32_t i = 0; i < n * n * 3; i++)
				assert_int_equal(output[i], noise(i / 3 % n, i / 3 / n, i % 3));
		}
}

TEST(one_colour_stays)
{
	for (int filter = IMAGE_BOX; filter <= IMAGE_LANCZOS; filter++)
		for (uint32_t n = 1; n <= 61; n += 5) {
			struct resample_plan plan = plan_of(37, 23, n, 62 - n);

			plan.filter = filter;
			plan.lead = 5;
			plan.row_width = 49;
			run(&plan, grey);
			for (uint32_t i = 0; i < n * (62 - n) * 3; i++)
				assert_int_equal(output[i], 100 + i % 3);
		}
}

TEST(layouts_have_the_same_values)
{
	struct resample_plan plan = plan_of(45, 31, 40, 33);
	static uint8_t rows[40 * 33 * 3];

	run(&plan, noise);
	memcpy(rows, output, sizeof(rows));
	plan.layout = IMAGE_CHW;
	run(&plan, noise);
	for (uint32_t i = 0; i < 40 * 33; i++)
		for (uint32_t c = 0; c < 3; c++)
			assert_int_equal(output[c * 40 * 33 + i], rows[i * 3 + c]);
}

/* Each output pixel is the mean of four pixels, and with a box of eight columns the mean of two. */
TEST(a_box_filter_gives_means)
{
	struct resample_plan plan = plan_of(16, 16, 8, 8);

	plan.filter = IMAGE_BOX;
	run(&plan, ramp);
	for (uint32_t i = 0; i < 64; i++) {
		assert_int_equal(output[i * 3], 8 * (i % 8) + 2);
		assert_int_equal(output[i * 3 + 1], 8 * (i / 8) + 2);
	}
	plan.box[0] = 2;
	plan.box[2] = 10;
	run(&plan, ramp);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(output[i * 3], 8 + 4 * (i % 8));
}

TEST(memory_is_kept)
{
	struct resample_plan large = plan_of(64, 64, 32, 32), small = plan_of(20, 20, 10, 10);

	run(&large, noise);
	const void *middle = resample.middle.bytes;

	run(&small, noise);
	run(&large, noise);
	assert_ptr_equal(resample.middle.bytes, middle);
}

static int end(void **state)
{
	resample_free(&resample);
	assert_null(resample.middle.bytes);
	return 0;
}

int main(void)
{
	return run_unit_tests(NULL, end);
}
