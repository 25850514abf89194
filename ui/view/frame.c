/* SPDX-License-Identifier: Apache-2.0 */
#include "frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format.h"
#include "views.h"

static const char *const view_names[VIEW_COUNT] = {
    [VIEW_JOBS] = "Jobs", [VIEW_WORKERS] = "Workers", [VIEW_STORAGE] = "Storage",
    [VIEW_GPU] = "GPU",   [VIEW_DAEMON] = "Daemon",   [VIEW_SELF] = "Self",
};

/* Writes a word so that it ends at column `end`. Returns the end for the next word to its left. */
static int put_left_of(struct screen *screen, int y, int end, enum style style, const char *text)
{
	int width = screen_text_width(text, screen->charset);

	if (width > end)
		return end;
	screen_text(screen, y, end - width, width, style, text);
	return end - width - 2;
}

static void draw_title(const struct model *model, struct screen *screen)
{
	const struct top_sample *s = model->sample;
	char text[SAMPLE_ERROR_BYTES + 96], time[FORMAT_BYTES], age[FORMAT_BYTES];
	int end = screen->cols;

	screen_style(screen, 0, 0, screen->cols, STYLE_TITLE);
	format_time(time, s ? s->time_s : NAN);
	if (model->is_replay)
		end = put_left_of(screen, 0, end, STYLE_WARNING, model->at_end ? "REPLAY end" : "REPLAY");
	if (model->is_recording)
		end = put_left_of(screen, 0, end, STYLE_BAD, "REC");
	if (model->paused)
		end = put_left_of(screen, 0, end, STYLE_WARNING, "PAUSED");
	if (model->n_skipped) {
		snprintf(text, sizeof(text), "SKIPPED %zu", model->n_skipped);
		end = put_left_of(screen, 0, end, STYLE_BAD, text);
	}
	if (s) {
		snprintf(text, sizeof(text), "LOST %s", format_count(age, s->self.n_lost));
		end = put_left_of(
		    screen, 0, end,
		    s->self.n_lost && s->self.n_lost != SAMPLE_UNKNOWN ? STYLE_BAD : STYLE_TITLE, text);
	}
	snprintf(text, sizeof(text), "%s  every %s", time, format_seconds(age, model->interval_s));
	end = put_left_of(screen, 0, end, STYLE_TITLE, text);
	snprintf(text, sizeof(text), "diesel-top  %.60s  %s", s ? s->host.name : "", s ? s->self.source : "");
	screen_text(screen, 0, 0, end + 1, STYLE_TITLE, text);
}

static void draw_daemon_word(const struct daemon_sample *d, bool brief, char *text, size_t size)
{
	char used[FORMAT_BYTES], budget[FORMAT_BYTES];
	const char *place = view_daemon_place(d);

	if (!strcmp(d->state, "up"))
		snprintf(text, size, "dieseld%s%.20s%s %s/%s%s%s", brief ? "" : " ", brief ? "" : d->version,
			 brief ? "" : " cache", format_bytes(used, d->cache_used_bytes),
			 format_bytes(budget, d->cache_budget_bytes), *place ? " at " : "", place);
	else
		snprintf(text, size, "%s", !strcmp(d->state, "away") ? "dieseld went away" : "no dieseld");
}

static void draw_host(const struct model *model, struct screen *screen)
{
	const struct host_sample *h = &model->sample->host;
	char busy[FORMAT_BYTES], cpus[FORMAT_BYTES], load[FORMAT_BYTES], used[FORMAT_BYTES],
	    all[FORMAT_BYTES];
	char psi[3][FORMAT_BYTES], daemon[100 + sizeof(model->sample->daemon.socket)];

	draw_daemon_word(&model->sample->daemon, screen->cols < 100, daemon, sizeof(daemon));
	screen_print(screen, 1, 0, screen->cols, STYLE_NORMAL,
		     "cores %s/%s  load %s  mem %s/%s  PSI cpu %s io %s mem %s %%  %s",
		     format_rate(busy, h->cpu_ratio), format_count(cpus, h->n_cpus),
		     format_rate(load, h->load1), format_bytes(used, h->memory_bytes - h->available_bytes),
		     format_bytes(all, h->memory_bytes), format_percent(psi[0], h->psi_cpu),
		     format_percent(psi[1], h->psi_io), format_percent(psi[2], h->psi_memory), daemon);
}

static void draw_tabs(const struct model *model, struct screen *screen)
{
	int x = 0;

	for (int i = 0; i < VIEW_COUNT; i++) {
		bool open = i == (int)model->view;

		x += screen_print(screen, 2, x, screen->cols - x, open ? STYLE_SELECTED : STYLE_DIM,
				  "%c%d %s%c", open ? '[' : ' ', i + 1, view_names[i], open ? ']' : ' ');
	}
}

static void draw_keys(const struct model *model, struct screen *screen)
{
	static const char *const live[] = {"F1", "Help", "F2", "Setup", "F3",  "Search", "F4",  "Filter",
					   "F5", "Tree", "F6", "Sort",  "Tab", "View",   "F10", "Quit"};
	static const char *const replay[] = {"<-", "Back", "->",  "Forward", "b",   "Jump", "r",   "First",
					     "Z",  "Last", "Spc", "Pause",   "Tab", "View", "F10", "Quit"};
	const char *const *keys = model->is_replay ? replay : live;
	int x = 0, y = screen->rows - 1;

	for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i += 2) {
		x += screen_text(screen, y, x, screen->cols - x, STYLE_KEY, keys[i]);
		x += screen_print(screen, y, x, screen->cols - x, STYLE_LABEL, "%-6s", keys[i + 1]);
	}
}

static void draw_last_line(const struct model *model, struct screen *screen)
{
	static const char *const prompts[] = {
	    [PROMPT_SEARCH] = "Search: ",
	    [PROMPT_FILTER] = "Filter: ",
	    [PROMPT_TIME] = "Jump to (HH:MM[:SS] or +-SECONDS): ",
	};
	int y = screen->rows - 1, x;

	if (model->prompt != PROMPT_NONE) {
		x = screen_text(screen, y, 0, screen->cols, STYLE_KEY, prompts[model->prompt]);
		x += screen_text(screen, y, x, screen->cols - x - 1, STYLE_NORMAL, model->input);
		screen_put(screen, y, x, STYLE_SELECTED, L' ');
	} else if (model->message[0]) {
		screen_text(screen, y, 0, screen->cols, STYLE_WARNING, model->message);
	} else {
		draw_keys(model, screen);
	}
}

static void draw_view(struct model *model, struct screen *screen, int y, int rows)
{
	switch (model->view) {
	case VIEW_JOBS: view_jobs(model, screen, y, rows); break;
	case VIEW_WORKERS: view_workers(model, screen, y, rows); break;
	case VIEW_STORAGE: view_storage(model, screen, y, rows); break;
	case VIEW_GPU: view_gpu(model, screen, y, rows); break;
	case VIEW_DAEMON: view_daemon(model, screen, y, rows); break;
	case VIEW_SELF: view_self(model, screen, y, rows); break;
	case VIEW_COUNT: break;
	}
}

void frame_draw(struct model *model, struct screen *screen)
{
	int rows = screen->rows - 4;

	screen_clear(screen);
	screen->charset = model->charset;
	if (screen->rows < FRAME_ROWS_MIN || screen->cols < FRAME_COLS_MIN) {
		screen_print(screen, 0, 0, screen->cols, STYLE_BAD,
			     "%dx%d is too small: needs at least %dx%d", screen->cols, screen->rows,
			     FRAME_COLS_MIN, FRAME_ROWS_MIN);
		return;
	}
	draw_title(model, screen);
	draw_tabs(model, screen);
	if (!model->sample) {
		screen_text(screen, 3, 0, screen->cols, STYLE_DIM, "taking the first sample ...");
	} else {
		draw_host(model, screen);
		switch (model->overlay) {
		case OVERLAY_HELP: view_help(model, screen, 3, rows); break;
		case OVERLAY_SETUP: view_setup(model, screen, 3, rows); break;
		case OVERLAY_DETAIL: view_detail(model, screen, 3, rows); break;
		case OVERLAY_NONE: draw_view(model, screen, 3, rows); break;
		}
	}
	draw_last_line(model, screen);
}
