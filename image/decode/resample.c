/* SPDX-License-Identifier: Apache-2.0 */
#include "resample.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define PRECISION  (32 - 8 - 2) /* bits of a weight: 8 are the pixel's, 2 are for sums beyond 0 and 1 */
#define HALF       (1 << (PRECISION - 1))
#define BLOCK      32 /* values that the second pass sums at a time */
#define ROW_MARGIN 64 /* bytes: rows of a power of two would share cache lines */

/* The compiler makes each of these loops twice, and the processor decides. Sanitizers start too late for
 * that. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(DIESEL_SANITIZED)
#define VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define VECTORISED
#endif

/* The values of a column in all rows at hand. */
typedef int32_t lanes
    __attribute__((vector_size(RESAMPLE_LANES * sizeof(int32_t)), aligned(sizeof(int32_t))));

struct span {
	uint32_t first, n; /* input pixels */
};

static double weight_box(double x)
{
	return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

static double weight_bilinear(double x)
{
	x = fabs(x);
	return x < 1.0 ? 1.0 - x : 0.0;
}

static double weight_bicubic(double x)
{
	const double a = -0.5;

	x = fabs(x);
	if (x < 1.0)
		return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
	return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

static double sinc(double x)
{
	if (x == 0.0)
		return 1.0;
	x *= M_PI;
	return sin(x) / x;
}

static double weight_lanczos(double x)
{
	return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

static const struct {
	double (*weight)(double x);
	double support; /* input pixels to each side, at scale 1 */
} filters[] = {
    [IMAGE_BOX] = {weight_box, 0.5},
    [IMAGE_BILINEAR] = {weight_bilinear, 1.0},
    [IMAGE_BICUBIC] = {weight_bicubic, 2.0},
    [IMAGE_LANCZOS] = {weight_lanczos, 3.0},
};

/* Rounds away from zero, as Pillow. */
static int32_t fixed_point(double weight)
{
	double scaled = weight * (1 << PRECISION);

	return (int32_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

static void axis_pixel(double *weights, int32_t *ret_fixed, struct span span, enum image_filter filter,
		       double center, double shrink)
{
	double sum = 0.0;

	for (uint32_t i = 0; i < span.n; i++) {
		weights[i] = filters[filter].weight((i + span.first - center + 0.5) * shrink);
		sum += weights[i];
	}
	for (uint32_t i = 0; i < span.n; i++)
		ret_fixed[i] = fixed_point(sum != 0.0 ? weights[i] / sum : weights[i]);
}

/* The numbers have Pillow's types: from a float box, in double. */
static int axis_make(struct resample_axis *axis, enum image_filter filter, uint32_t n_input, float begin,
		     float end, uint32_t n_output)
{
	double scale = (double)(end - begin) / n_output;
	double stretch = scale < 1.0 ? 1.0 : scale;
	double support = filters[filter].support * stretch;

	axis->n = n_output;
	axis->taps = (uint32_t)ceil(support) * 2 + 1;
	if (room_make(&axis->weights, (size_t)n_output * axis->taps, sizeof(int32_t)) < 0 ||
	    room_make(&axis->spans, n_output, sizeof(struct span)) < 0 ||
	    room_make(&axis->scratch, axis->taps, sizeof(double)) < 0)
		return -ENOMEM;
	struct span *spans = axis->spans.bytes;
	int32_t *weights = axis->weights.bytes;

	for (uint32_t i = 0; i < n_output; i++) {
		double center = begin + (i + 0.5) * scale;
		double first = trunc(center - support + 0.5), last = trunc(center + support + 0.5);

		first = first < 0 ? 0 : first;
		last = last > n_input ? n_input : last;
		spans[i] = (struct span){(uint32_t)first, last > first ? (uint32_t)(last - first) : 0};
		axis_pixel(axis->scratch.bytes, weights + (size_t)i * axis->taps, spans[i], filter, center,
			   1.0 / stretch);
	}
	return 0;
}

static uint8_t clip(int32_t sum)
{
	sum >>= PRECISION;
	return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* Puts the values of a column side by side, so that the first pass takes all rows at hand at once. */
VECTORISED static void turn(int32_t *restrict columns, const uint8_t *restrict rows, size_t stride, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t lane = 0; lane < RESAMPLE_LANES; lane++)
			columns[i * RESAMPLE_LANES + lane] = rows[lane * stride + i];
}

struct first_pass {
	const struct span *spans;
	const int32_t *weights;
	uint32_t n, taps;
	size_t row, column, channel; /* bytes from one to the next in the output */
	uint32_t n_rows;
};

VECTORISED static void first_pass(uint8_t *restrict output, const lanes *restrict columns,
				  const struct first_pass *pass)
{
	for (uint32_t x = 0; x < pass->n; x++) {
		const lanes *column = columns + (size_t)pass->spans[x].first * IMAGE_CHANNELS;
		const int32_t *weights = pass->weights + (size_t)x * pass->taps;
		lanes zero = {0}, r = zero + HALF, g = r, b = r;

		for (uint32_t tap = 0; tap < pass->spans[x].n; tap++, column += IMAGE_CHANNELS) {
			r += column[0] * weights[tap];
			g += column[1] * weights[tap];
			b += column[2] * weights[tap];
		}
		lanes sums[IMAGE_CHANNELS] = {r, g, b};

		for (uint32_t c = 0; c < IMAGE_CHANNELS; c++) {
			uint8_t *to = output + x * pass->column + c * pass->channel;
			lanes v = sums[c] >> PRECISION;

			v &= v > 0;
			v = (v | (v > 255)) & 255;
			for (uint32_t lane = 0; lane < pass->n_rows; lane++)
				to[lane * pass->row] = (uint8_t)v[lane];
		}
	}
}

/* One row of the output, from n rows of the middle. bytes is a multiple of BLOCK, or they are done one by
 * one. */
VECTORISED static void second_pass(uint8_t *restrict output, const uint8_t *restrict rows, size_t stride,
				   const int32_t *restrict weights, uint32_t n, size_t bytes)
{
	size_t at = 0;

	for (; at + BLOCK <= bytes; at += BLOCK) {
		const uint8_t *restrict row = rows + at;
		int32_t sums[BLOCK];

		for (int i = 0; i < BLOCK; i++)
			sums[i] = HALF;
		for (uint32_t tap = 0; tap < n; tap++, row += stride)
			for (int i = 0; i < BLOCK; i++)
				sums[i] += row[i] * weights[tap];
		for (int i = 0; i < BLOCK; i++)
			output[at + i] = clip(sums[i]);
	}
	for (; at < bytes; at++) {
		int32_t sum = HALF;

		for (uint32_t tap = 0; tap < n; tap++)
			sum += rows[tap * stride + at] * weights[tap];
		output[at] = clip(sum);
	}
}

static size_t stride(const struct resample *resample)
{
	return (size_t)resample->plan.row_width * IMAGE_CHANNELS + ROW_MARGIN;
}

static size_t middle_stride(const struct resample *resample)
{
	return (size_t)resample->plan.output_width * IMAGE_CHANNELS;
}

/* As Pillow: what keeps its size is copied. */
static bool is_copy(const struct resample_plan *plan)
{
	return plan->layout == IMAGE_HWC && plan->width == plan->output_width &&
	       plan->height == plan->output_height && plan->box[0] == 0 && plan->box[1] == 0 &&
	       plan->box[2] == (float)plan->width && plan->box[3] == (float)plan->height;
}

int resample_begin(struct resample *resample, const struct resample_plan *plan)
{
	resample->plan = *plan;
	resample->n_rows = 0;
	resample->copies = is_copy(plan);
	if (resample->copies)
		return room_make(&resample->rows, plan->height, stride(resample));
	if (axis_make(&resample->x, plan->filter, plan->width, plan->box[0], plan->box[2],
		      plan->output_width) < 0 ||
	    axis_make(&resample->y, plan->filter, plan->height, plan->box[1], plan->box[3],
		      plan->output_height) < 0 ||
	    room_make(&resample->rows, RESAMPLE_LANES, stride(resample)) < 0 ||
	    room_make(&resample->columns, plan->width, IMAGE_CHANNELS * sizeof(lanes)) < 0 ||
	    room_make(&resample->middle, plan->height, middle_stride(resample)) < 0)
		return -ENOMEM;
	/* The last rows may be fewer than are taken at a time: what is summed beside them is not used, but is
	 * read. */
	memset(resample->rows.bytes, 0, RESAMPLE_LANES * stride(resample));
	return 0;
}

/* The first pass over the last n rows that came. */
static void take_rows(struct resample *resample, uint32_t n)
{
	const struct resample_plan *plan = &resample->plan;
	bool planes = plan->layout == IMAGE_CHW;
	struct first_pass pass = {
	    .spans = resample->x.spans.bytes,
	    .weights = resample->x.weights.bytes,
	    .n = resample->x.n,
	    .taps = resample->x.taps,
	    .row = middle_stride(resample),
	    .column = planes ? 1 : IMAGE_CHANNELS,
	    .channel = planes ? plan->output_width : 1,
	    .n_rows = n,
	};

	turn(resample->columns.bytes, (uint8_t *)resample->rows.bytes + (size_t)plan->lead * IMAGE_CHANNELS,
	     stride(resample), (size_t)plan->width * IMAGE_CHANNELS);
	first_pass((uint8_t *)resample->middle.bytes + (resample->n_rows - n) * middle_stride(resample),
		   resample->columns.bytes, &pass);
}

uint8_t *resample_row(struct resample *resample)
{
	uint32_t lane = resample->n_rows % RESAMPLE_LANES;

	if (resample->copies)
		return (uint8_t *)resample->rows.bytes + resample->n_rows++ * stride(resample);
	if (!lane && resample->n_rows)
		take_rows(resample, RESAMPLE_LANES);
	resample->n_rows++;
	return (uint8_t *)resample->rows.bytes + lane * stride(resample);
}

void resample_end(struct resample *resample, uint8_t *output)
{
	const struct resample_plan *plan = &resample->plan;
	const struct span *spans = resample->y.spans.bytes;
	const int32_t *weights = resample->y.weights.bytes;
	const uint8_t *middle = resample->middle.bytes;
	size_t from = middle_stride(resample);

	if (resample->copies) {
		for (uint32_t y = 0; y < plan->height; y++)
			memcpy(output + y * from,
			       (uint8_t *)resample->rows.bytes + y * stride(resample) +
				   (size_t)plan->lead * IMAGE_CHANNELS,
			       from);
		return;
	}
	take_rows(resample, (resample->n_rows - 1) % RESAMPLE_LANES + 1);
	for (uint32_t y = 0; y < plan->output_height; y++) {
		const uint8_t *rows = middle + spans[y].first * from;
		const int32_t *row_weights = weights + (size_t)y * resample->y.taps;

		if (plan->layout == IMAGE_HWC) {
			second_pass(output + y * from, rows, from, row_weights, spans[y].n, from);
			continue;
		}
		for (size_t c = 0; c < IMAGE_CHANNELS; c++)
			second_pass(output + (c * plan->output_height + y) * plan->output_width,
				    rows + c * plan->output_width, from, row_weights, spans[y].n,
				    plan->output_width);
	}
}

void resample_free(struct resample *resample)
{
	struct room *rooms[] = {&resample->x.weights, &resample->x.spans, &resample->x.scratch,
				&resample->y.weights, &resample->y.spans, &resample->y.scratch,
				&resample->rows,      &resample->columns, &resample->middle};

	for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++)
		room_free(rooms[i]);
}
