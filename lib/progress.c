/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/progress.h"

#include "lib/clock.h"
#include "lib/units.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REDRAW_NS (100 * NS_PER_MS)
#define BAR_CELLS 30

void progress_start(struct progress *p, const char *label, uint64_t total, uint64_t now_ns)
{
	*p = (struct progress){
	    .label = label,
	    .total = total,
	    .start_ns = now_ns,
	    .visible = isatty(STDERR_FILENO),
	};
}

void progress_update(struct progress *p, uint64_t done, uint64_t done_bytes, uint64_t now_ns)
{
	if (!p->visible || now_ns - p->drawn_ns < REDRAW_NS)
		return;
	p->drawn_ns = now_ns;

	double elapsed_s = (double)(now_ns - p->start_ns) / NS_PER_S;
	char bytes[24], rate[24], left[32] = "";

	units_format_bytes(bytes, sizeof(bytes), done_bytes);
	units_format_bytes(rate, sizeof(rate),
			   elapsed_s > 0 ? (uint64_t)((double)done_bytes / elapsed_s) : 0);
	if (!p->total) {
		fprintf(stderr, "\r\033[K%s %lu, %s, %s/s", p->label, (unsigned long)done, bytes, rate);
		return;
	}
	if (done > p->total)
		done = p->total;
	if (done) {
		double left_s = elapsed_s * (double)(p->total - done) / (double)done;

		units_format_duration(left, sizeof(left), (uint64_t)(left_s * NS_PER_S));
	}
	char bar[BAR_CELLS + 1];
	int cells = (int)(done * BAR_CELLS / p->total);

	memset(bar, '#', cells);
	memset(bar + cells, '.', BAR_CELLS - cells);
	bar[BAR_CELLS] = '\0';
	fprintf(stderr, "\r\033[K%s [%s] %3.0f %%  %s  %s/s  %s left", p->label, bar,
		100.0 * (double)done / (double)p->total, bytes, rate, left);
}

void progress_end(struct progress *p)
{
	if (p->visible && p->drawn_ns)
		fputs("\r\033[K", stderr);
}
