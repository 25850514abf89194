/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/progress.h"

#include "lib/clock.h"
#include "lib/units.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REDRAW_NS (100 * NS_PER_MS)
#define BAR_CELLS 30

static void draw_rate(uint64_t bytes, double elapsed_s)
{
	char text[24], rate[24];

	if (bytes)
		fprintf(stderr, "  %s  %s/s", units_format_bytes(text, sizeof(text), bytes),
			units_format_bytes(rate, sizeof(rate),
					   elapsed_s > 0 ? (uint64_t)((double)bytes / elapsed_s) : 0));
}

static void draw_bar(uint64_t done, uint64_t total)
{
	char bar[BAR_CELLS + 1];
	int cells = (int)((double)done / (double)total * BAR_CELLS);

	memset(bar, '#', (size_t)cells);
	memset(bar + cells, '.', (size_t)(BAR_CELLS - cells));
	bar[BAR_CELLS] = '\0';
	fprintf(stderr, " [%s] %3.0f %%", bar, 100.0 * (double)done / (double)total);
}

static void draw(const struct progress *p, uint64_t done, uint64_t total, uint64_t bytes)
{
	double elapsed_s = (double)(p->drawn_ns - p->start_ns) / NS_PER_S;
	char left[32];

	fprintf(stderr, "\r\033[K%s", p->what);
	if (!total) {
		fprintf(stderr, " %llu", (unsigned long long)done);
		draw_rate(bytes, elapsed_s);
		return;
	}
	if (done > total)
		done = total;
	draw_bar(done, total);
	draw_rate(bytes, elapsed_s);
	if (done) {
		double left_s = elapsed_s * (double)(total - done) / (double)done;

		fprintf(stderr, "  %s left",
			units_format_duration(left, sizeof(left), (uint64_t)(left_s * NS_PER_S)));
	}
}

void progress_show(const char *what, uint64_t done, uint64_t total, uint64_t bytes, void *progress)
{
	struct progress *p = progress;

	if (p->what != what) {
		progress_end(p);
		*p = (struct progress){
		    .what = what, .start_ns = clock_monotonic_ns(), .visible = isatty(STDERR_FILENO)};
	}
	if (!p->visible)
		return;
	uint64_t now_ns = clock_monotonic_ns();

	if (now_ns - p->drawn_ns < REDRAW_NS)
		return;
	p->drawn_ns = now_ns;
	draw(p, done, total, bytes);
}

void progress_hide(struct progress *p)
{
	if (p->visible && p->drawn_ns)
		fputs("\r\033[K", stderr);
	p->drawn_ns = 0;
}

void progress_end(struct progress *p)
{
	progress_hide(p);
	*p = (struct progress){0};
}
