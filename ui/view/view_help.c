/* SPDX-License-Identifier: Apache-2.0 */
#include "views.h"

#include <stdio.h>

#include "columns.h"
#include "format.h"

struct help_line {
	const char *keys, *what; /* keys is NULL for a heading */
};

static const struct help_line help[] = {
    {NULL, "Keys"},
    {"Up Down j k PgUp PgDn g G", "move the cursor"},
    {"Tab, Shift-Tab, 1 to 6", "jobs, workers, storage, GPUs, daemon, own cost"},
    {"Enter", "a job's detail: shares, decision, last slow step"},
    {"F3 /, n", "search; go to the next match"},
    {"F4 \\", "show only rows with this text; empty or Esc: all rows"},
    {"F5 t", "tree of processes: job, ranks, workers"},
    {"F6 > <, I", "sort by the next or previous column; reverse the order"},
    {"H", "also show the trainer's threads in the workers view"},
    {"Space z", "pause and continue"},
    {"+ -", "more or less time between samples"},
    {"F2", "setup: colours, characters"},
    {"F10 q, Esc", "quit, or close the open window"},
    {NULL, "Replay (-r FILE)"},
    {"Right t, Left T", "one sample forward or back"},
    {"b", "jump to a time of day, or by +SECONDS, -SECONDS"},
    {"r, Z", "go to the first or last sample"},
    {NULL, "Shares of the trainer's wall time"},
    {"device (d)", "computing, launching work, waiting for the device"},
    {"fetch (F)", "waiting for data, because of storage or network"},
    {"prep (P)", "waiting for data for another reason: decoding, ..."},
    {"checkpoint (C)", "writing or syncing a checkpoint"},
    {"compiling (K)", "compiling by torch.compile or JAX, once; N/A with BPF"},
    {"starved (S)", "ready to run, but without a core"},
    {"other (o)", "none of these"},
    {NULL, "N/A means not known, rather than 0. Sampled shares (BY sampled) are approximate."},
    {NULL, "Columns of the jobs (-s COLUMN sorts by one)"},
};
#define N_HELP (sizeof(help) / sizeof(help[0]))

static void draw_line(struct screen *screen, int y, const struct help_line *line)
{
	if (!line->keys) {
		screen_text(screen, y, 0, screen->cols, STYLE_BOLD, line->what);
		return;
	}
	screen_text(screen, y, 2, 25, STYLE_GOOD, line->keys);
	screen_text(screen, y, 28, screen->cols - 28, STYLE_NORMAL, line->what);
}

void view_help(struct model *model, struct screen *screen, int y, int rows)
{
	const struct columns *columns = model_job_columns(model);
	size_t n = N_HELP + columns->n, shown = (size_t)rows;

	if (shown < n && rows > 1)
		shown--; /* reserves the last line, which says that there is more */
	if (model->overlay_top + shown > n)
		model->overlay_top = n > shown ? n - shown : 0;
	model->page = shown;
	for (size_t i = 0; i < shown && model->overlay_top + i < n; i++) {
		size_t at = model->overlay_top + i;
		struct help_line line;

		if (at < N_HELP)
			line = help[at];
		else
			line = (struct help_line){columns->items[at - N_HELP].title,
						  columns->items[at - N_HELP].meaning};
		draw_line(screen, y + (int)i, &line);
	}
	if (shown < n)
		screen_text(screen, y + (int)shown, 0, screen->cols, STYLE_DIM,
			    model->overlay_top + shown < n ? "more: Down, PgDn" : "the end; back: Up, PgUp");
}

void view_setup(struct model *model, struct screen *screen, int y, int rows)
{
	char interval[FORMAT_BYTES];

	if (rows < 6)
		return;
	screen_text(screen, y, 0, screen->cols, STYLE_BOLD, "Setup");
	screen_print(screen, y + 2, 2, screen->cols - 2, STYLE_NORMAL, "c    [%c] colours",
		     model->charset.colour ? 'x' : ' ');
	screen_print(screen, y + 3, 2, screen->cols - 2, STYLE_NORMAL, "u    [%c] characters beyond ASCII",
		     model->charset.unicode ? 'x' : ' ');
	screen_print(screen, y + 4, 2, screen->cols - 2, STYLE_NORMAL,
		     "i d  a sample every %s: longer, shorter", format_seconds(interval, model->interval_s));
	screen_text(screen, y + 5, 2, screen->cols - 2, STYLE_DIM, "F2 or Esc closes this window");
}
