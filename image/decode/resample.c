/* SPDX-License-Identifier: Apache-2.0 */
#include "resample.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define PRECISION                                                                                            \
	(32 - 8 - 2) /* fraction bits of a weight: 8 bits are for the pixel, 2 for sums beyond 0 and 1 */
#define HALF       (1 << (PRECISION - 1))
#define BLOCK      32 /* number of values that the second pass computes at once */
#define COLUMNS    64 /* number of values that are transposed back at once */
#define ROW_MARGIN 64 /* extra bytes per row: rows whose length is a power of two would share cache sets */

/* Compiles a loop for two kinds of processors, one of which is chosen at run time. Sanitizers start too late
 * for that. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(DIESEL_SANITIZED)
#define HAS_VECTORISED
#define VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define VECTORISED
#endif

/* A vector with one column's values of all buffered rows. Sums become bytes via shorts, because processors
 * have an instruction for each of these two steps. */
typedef int32_t lanes
    __attribute__((vector_size(RESAMPLE_LANES * sizeof(int32_t)), aligned(sizeof(int32_t))));
typedef int16_t shorts __attribute__((vector_size(RESAMPLE_LANES * sizeof(int16_t))));
typedef uint8_t octets __attribute__((vector_size(RESAMPLE_LANES), aligned(1)));

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
	double support; /* radius of the filter in input pixels, at scale 1 */
} filters[] = {
    [IMAGE_BOX] = {weight_box, 0.5},
    [IMAGE_BILINEAR] = {weight_bilinear, 1.0},
    [IMAGE_BICUBIC] = {weight_bicubic, 2.0},
    [IMAGE_LANCZOS] = {weight_lanczos, 3.0},
};

/* Rounds away from zero, as Pillow does. */
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

/* The columns or the rows of a plan. */
struct resample_side {
	enum image_filter filter;
	uint32_t n_input;
	float begin;
	uint32_t first, n; /* range of output pixels: first one, number */
	/* As in Pillow, these doubles are computed from a box of floats. */
	double scale, stretch, support;
};

static struct resample_side side_make(const struct resample_plan *plan, bool rows)
{
	const struct image_box *window = &plan->window;
	float begin = plan->box[rows ? 1 : 0], end = plan->box[rows ? 3 : 2];
	struct resample_side side = {
	    .filter = plan->filter,
	    .n_input = rows ? plan->height : plan->width,
	    .begin = begin,
	    .first = rows ? window->y : window->x,
	    .n = rows ? window->height : window->width,
	    .scale = (double)(end - begin) / (rows ? plan->output_height : plan->output_width),
	};

	side.stretch = side.scale < 1.0 ? 1.0 : side.scale;
	side.support = filters[plan->filter].support * side.stretch;
	return side;
}

static double side_center(const struct resample_side *side, uint32_t i)
{
	return side->begin + (i + 0.5) * side->scale;
}

/* Returns the input pixels that output pixel i is computed from. */
static struct span side_span(const struct resample_side *side, uint32_t i)
{
	double center = side_center(side, i);
	double first = trunc(center - side->support + 0.5), last = trunc(center + side->support + 0.5);

	first = first < 0 ? 0 : first;
	last = last > side->n_input ? side->n_input : last;
	return (struct span){(uint32_t)first, last > first ? (uint32_t)(last - first) : 0};
}

/* Computes the weights. left_out: number of input pixels before those that are passed in. */
static int axis_make(struct resample_axis *axis, const struct resample_side *side, uint32_t left_out)
{
	axis->n = side->n;
	axis->taps = (uint32_t)ceil(side->support) * 2 + 1;
	if (scratch_reserve(&axis->weights, (size_t)side->n * axis->taps, sizeof(int32_t)) < 0 ||
	    scratch_reserve(&axis->spans, side->n, sizeof(struct span)) < 0 ||
	    scratch_reserve(&axis->scratch, axis->taps, sizeof(double)) < 0)
		return -ENOMEM;
	struct span *spans = axis->spans.bytes;
	int32_t *weights = axis->weights.bytes;

	for (uint32_t i = 0; i < side->n; i++) {
		spans[i] = side_span(side, side->first + i);
		axis_pixel(axis->scratch.bytes, weights + (size_t)i * axis->taps, spans[i], side->filter,
			   side_center(side, side->first + i), 1.0 / side->stretch);
		spans[i].first -= left_out;
	}
	return 0;
}

/* Returns the input pixels that the window needs; at least one. */
static struct span side_need(const struct resample_side *side)
{
	struct span first = side_span(side, side->first), last = side_span(side, side->first + side->n - 1);
	uint32_t begin = first.first < side->n_input ? first.first : side->n_input - 1;
	uint32_t end = last.first + last.n;

	return (struct span){begin, end > begin ? end - begin : 1};
}

static uint8_t clip(int32_t sum)
{
	sum >>= PRECISION;
	return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* Transposes rows: puts the values of a column next to each other, so that the first pass handles all
 * buffered rows at once. */
VECTORISED static void turn(uint8_t *restrict columns, const uint8_t *restrict rows, size_t stride, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t lane = 0; lane < RESAMPLE_LANES; lane++)
			columns[i * RESAMPLE_LANES + lane] = rows[lane * stride + i];
}

/* Transposes back the first n_rows rows, via a block whose row length the compiler knows. */
VECTORISED static void turn_back(uint8_t *restrict rows, const uint8_t *restrict columns, size_t stride,
				 size_t n, size_t n_rows)
{
	uint8_t block[RESAMPLE_LANES][COLUMNS];

	for (size_t at = 0; at < n; at += COLUMNS, columns += sizeof(block)) {
		for (size_t i = 0; i < COLUMNS; i++)
			for (size_t lane = 0; lane < RESAMPLE_LANES; lane++)
				block[lane][i] = columns[i * RESAMPLE_LANES + lane];
		for (size_t lane = 0; lane < n_rows; lane++)
			memcpy(rows + lane * stride + at, block[lane], n - at < COLUMNS ? n - at : COLUMNS);
	}
}

struct first_pass {
	const struct span *spans;
	const int32_t *weights;
	uint32_t n, taps;
	size_t column, channel; /* distance between columns, and between channels, in the output */
};

/* Makes the first pass. in_lanes: convert bytes to numbers one by one, for which compilers make good code
 * with AVX2; else as vectors, which is better without AVX2. */
static inline __attribute__((always_inline)) void sum_columns(octets *restrict output,
							      const octets *restrict columns,
							      const struct first_pass *pass, bool in_lanes)
{
	for (uint32_t x = 0; x < pass->n; x++) {
		const octets *column = columns + (size_t)pass->spans[x].first * IMAGE_CHANNELS;
		const int32_t *weights = pass->weights + (size_t)x * pass->taps;
		lanes zero = {0}, sums[IMAGE_CHANNELS] = {zero + HALF, zero + HALF, zero + HALF};

		for (uint32_t tap = 0; tap < pass->spans[x].n; tap++, column += IMAGE_CHANNELS) {
			for (uint32_t c = 0; c < IMAGE_CHANNELS; c++) {
				const uint8_t *values = (const uint8_t *)&column[c];
				lanes v;

				if (in_lanes)
					for (int lane = 0; lane < RESAMPLE_LANES; lane++)
						v[lane] = values[lane];
				else
					v = __builtin_convertvector(
					    __builtin_convertvector(column[c], shorts), lanes);
				sums[c] += v * weights[tap];
			}
		}
		for (uint32_t c = 0; c < IMAGE_CHANNELS; c++) {
			shorts v = __builtin_convertvector(sums[c] >> PRECISION, shorts);

			v &= v > 0;
			v = (v | (v > 255)) & 255;
			output[x * pass->column + c * pass->channel] = __builtin_convertvector(v, octets);
		}
	}
}

#ifdef HAS_VECTORISED
static __attribute__((target("avx2"))) void first_pass_avx2(octets *restrict output,
							    const octets *restrict columns,
							    const struct first_pass *pass)
{
	sum_columns(output, columns, pass, true);
}
#endif

static void first_pass(octets *restrict output, const octets *restrict columns, const struct first_pass *pass)
{
#ifdef HAS_VECTORISED
	if (__builtin_cpu_supports("avx2")) {
		first_pass_avx2(output, columns, pass);
		return;
	}
#endif
	sum_columns(output, columns, pass, false);
}

/* Second pass: computes one row of the output from n rows of the intermediate image. The bytes after the last
 * whole BLOCK are computed one by one. */
VECTORISED static void second_pass(uint8_t *restrict output, const uint8_t *restrict rows, size_t stride,
				   const int32_t *restrict weights, uint32_t n, size_t bytes)
{
	size_t at = 0;

	for (; at + BLOCK <= bytes; at += BLOCK) {
		const uint8_t *restrict row = rows + at;
		int32_t sums[BLOCK];
		int16_t values[BLOCK];

		for (int i = 0; i < BLOCK; i++)
			sums[i] = HALF;
		for (uint32_t tap = 0; tap < n; tap++, row += stride)
			for (int i = 0; i < BLOCK; i++)
				sums[i] += row[i] * weights[tap];
		for (int i = 0; i < BLOCK; i++)
			values[i] = (int16_t)(sums[i] >> PRECISION);
		for (int i = 0; i < BLOCK; i++)
			output[at + i] = (uint8_t)(values[i] < 0 ? 0 : values[i] > 255 ? 255 : values[i]);
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
	return (size_t)resample->plan.window.width * IMAGE_CHANNELS;
}

/* Returns true if the image keeps its size. Then it is copied, as Pillow does. */
static bool is_copy(const struct resample_plan *plan)
{
	return plan->layout == IMAGE_HWC && plan->width == plan->output_width &&
	       plan->height == plan->output_height && plan->box[0] == 0 && plan->box[1] == 0 &&
	       plan->box[2] == (float)plan->width && plan->box[3] == (float)plan->height;
}

void resample_choose(struct resample_plan *plan)
{
	struct resample_side columns = side_make(plan, false), rows = side_make(plan, true);
	struct span x = side_need(&columns), y = side_need(&rows);

	plan->part = is_copy(plan) ? plan->window : (struct image_box){x.first, y.first, x.n, y.n};
	plan->row_width = plan->part.width;
	plan->lead = 0;
}

int resample_begin(struct resample *resample, const struct resample_plan *plan)
{
	struct resample_side columns = side_make(plan, false), rows = side_make(plan, true);

	resample->plan = *plan;
	resample->n_rows = 0;
	resample->copies = is_copy(plan);
	if (resample->copies)
		return scratch_reserve(&resample->rows, plan->part.height, stride(resample));
	if (axis_make(&resample->x, &columns, plan->part.x) < 0 ||
	    axis_make(&resample->y, &rows, plan->part.y) < 0 ||
	    scratch_reserve(&resample->rows, RESAMPLE_LANES, stride(resample)) < 0 ||
	    scratch_reserve(&resample->columns, plan->part.width, IMAGE_CHANNELS * sizeof(octets)) < 0 ||
	    scratch_reserve(&resample->made, middle_stride(resample) + COLUMNS, RESAMPLE_LANES) < 0 ||
	    scratch_reserve(&resample->middle, plan->part.height, middle_stride(resample)) < 0)
		return -ENOMEM;
	/* The last rows may be fewer than RESAMPLE_LANES: the results of the other lanes are not used. */
	memset(resample->rows.bytes, 0, RESAMPLE_LANES * stride(resample));
	return 0;
}

/* Runs the first pass over the last n rows. */
static void take_rows(struct resample *resample, uint32_t n)
{
	const struct resample_plan *plan = &resample->plan;
	bool planes = plan->layout == IMAGE_CHW;
	struct first_pass pass = {
	    .spans = resample->x.spans.bytes,
	    .weights = resample->x.weights.bytes,
	    .n = resample->x.n,
	    .taps = resample->x.taps,
	    .column = planes ? 1 : IMAGE_CHANNELS,
	    .channel = planes ? plan->window.width : 1,
	};

	turn(resample->columns.bytes, (uint8_t *)resample->rows.bytes + (size_t)plan->lead * IMAGE_CHANNELS,
	     stride(resample), (size_t)plan->part.width * IMAGE_CHANNELS);
	first_pass(resample->made.bytes, resample->columns.bytes, &pass);
	turn_back((uint8_t *)resample->middle.bytes + (resample->n_rows - n) * middle_stride(resample),
		  resample->made.bytes, middle_stride(resample), middle_stride(resample), n);
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
		for (uint32_t y = 0; y < plan->part.height; y++)
			memcpy(output + y * from,
			       (uint8_t *)resample->rows.bytes + y * stride(resample) +
				   (size_t)plan->lead * IMAGE_CHANNELS,
			       from);
		return;
	}
	take_rows(resample, (resample->n_rows - 1) % RESAMPLE_LANES + 1);
	for (uint32_t y = 0; y < plan->window.height; y++) {
		const uint8_t *rows = middle + spans[y].first * from;
		const int32_t *row_weights = weights + (size_t)y * resample->y.taps;

		if (plan->layout == IMAGE_HWC) {
			second_pass(output + y * from, rows, from, row_weights, spans[y].n, from);
			continue;
		}
		for (size_t c = 0; c < IMAGE_CHANNELS; c++)
			second_pass(output + (c * plan->window.height + y) * plan->window.width,
				    rows + c * plan->window.width, from, row_weights, spans[y].n,
				    plan->window.width);
	}
}

void resample_free(struct resample *resample)
{
	struct scratch_buffer *buffers[] = {&resample->x.weights, &resample->x.spans, &resample->x.scratch,
					    &resample->y.weights, &resample->y.spans, &resample->y.scratch,
					    &resample->rows,      &resample->columns, &resample->made,
					    &resample->middle};

	for (size_t i = 0; i < sizeof(buffers) / sizeof(*buffers); i++)
		scratch_free(buffers[i]);
}
