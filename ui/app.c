/* SPDX-License-Identifier: Apache-2.0 */
#include "app.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "ui/feed/budget.h"
#include "ui/feed/feed.h"
#include "ui/view/frame.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "ui/view/model.h"
#include "options.h"
#include "ui/replay/top_recording.h"
#include "terminal.h"

/* Number of records before a jump in a replay that are also read, for the plot. */
#define REWIND_RECORDS "120"
#define REWIND_N       120

struct app {
	struct feed *feed;
	struct top_recording_writer *recording;
	struct model model;
	struct screen *screen;
	int signal_fd;
	uint64_t next_sample_ns;
	bool is_dirty;
	int signal_number; /* the signal that ends the program */
	bool quits;
	uint64_t draw_ns, n_cells;             /* totals of drawing so far */
	uint64_t draw_before_ns, cells_before; /* totals of drawing at the last sample */
};

static void take_own_cost(struct app *app, struct top_sample *sample)
{
	double s = sample->interval_s;

	if (app->model.is_replay || !(s > 0))
		return;
	sample->self.draw_ratio = (double)(app->draw_ns - app->draw_before_ns) / 1e9 / s;
	sample->self.cells_per_s = (double)(app->n_cells - app->cells_before) / s;
	app->draw_before_ns = app->draw_ns;
	app->cells_before = app->n_cells;
}

static int take_sample(struct app *app, uint64_t now_ns, struct error *err)
{
	struct top_sample *sample;
	struct error why = ERROR_INIT;
	int r = app->feed->ops->sample(app->feed, model_wants(&app->model), now_ns, &sample, err);

	app->model.at_end = r == -ENODATA;
	if (r == -ENODATA) {
		app->is_dirty = true;
		app->model.paused = true;
		return 0;
	}
	if (r < 0)
		return r;
	take_own_cost(app, sample);
	if (app->recording && top_recording_write(app->recording, sample, &why)) {
		snprintf(app->model.message, sizeof(app->model.message), "%.150s", why.text);
		app->recording = NULL; /* the caller of app_run() closes the recording */
		app->model.is_recording = false;
	}
	app->model.n_skipped = app->feed->ops->n_skipped ? app->feed->ops->n_skipped(app->feed) : 0;
	app->is_dirty = true;
	return model_take(&app->model, sample) ? error_set(err, -ENOMEM, "no memory for a sample") : 0;
}

/* Jumps in a replay. Also reads the records before, as far back as the plot reaches. */
static int seek(struct app *app, enum feed_seek where, const char *time, struct error *err)
{
	struct error why = ERROR_INIT;
	int r = app->feed->ops->seek(app->feed, where, time, &why);

	if (r == -EINVAL) {
		snprintf(app->model.message, sizeof(app->model.message), "%.150s", why.text);
		app->is_dirty = true;
		return 0;
	}
	history_clear(&app->model.history);
	app->model.sample = sample_free(app->model.sample);
	app->model.paused = true;
	r = app->feed->ops->seek(app->feed, FEED_SEEK_REWIND, REWIND_RECORDS, err);
	for (int i = 0; r >= 0 && i <= r; i++) {
		int taken = take_sample(app, clock_monotonic_ns(), err);

		if (taken)
			return taken;
	}
	return r < 0 ? r : 0;
}

static int act(struct app *app, enum model_action action, struct error *err)
{
	if (action == MODEL_NOTHING)
		return 0;
	app->is_dirty = true;
	switch (action) {
	case MODEL_REFRESH: app->next_sample_ns = app->model.paused ? app->next_sample_ns : 0; break;
	case MODEL_QUIT: app->quits = true; break;
	case MODEL_FORWARD: app->model.paused = true; return take_sample(app, clock_monotonic_ns(), err);
	case MODEL_BACKWARD: return seek(app, FEED_SEEK_BACK, NULL, err);
	case MODEL_FIRST: return seek(app, FEED_SEEK_FIRST, NULL, err);
	case MODEL_LAST: return seek(app, FEED_SEEK_LAST, NULL, err);
	case MODEL_JUMP: return seek(app, FEED_SEEK_TIME, app->model.input, err);
	case MODEL_NOTHING:
	case MODEL_REDRAW: break;
	}
	return 0;
}

static int take_keys(struct app *app, struct error *err)
{
	unsigned int key;
	int r = 0;

	while (r == 0 && !app->quits && (key = terminal_key()))
		r = act(app, model_key(&app->model, key), err);
	return r;
}

static void take_signals(struct app *app)
{
	struct signalfd_siginfo info;

	while (read(app->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGTSTP:
			terminal_suspend();
			app->is_dirty = true;
			break;
		case SIGCONT:
			terminal_redraw();
			app->is_dirty = true;
			break;
		case SIGWINCH: app->is_dirty = true; break;
		default: app->signal_number = (int)info.ssi_signo; break;
		}
	}
}

static int draw(struct app *app, struct error *err)
{
	uint64_t cpu_ns = budget_cpu_ns();
	int rows, cols;

	terminal_size(&rows, &cols);
	if (!app->screen || app->screen->rows != rows || app->screen->cols != cols) {
		screen_free(app->screen);
		app->screen = screen_new(rows, cols, app->model.charset);
		if (!app->screen)
			return error_set(err, -ENOMEM, "no memory for the screen");
	}
	frame_draw(&app->model, app->screen);
	app->n_cells += terminal_show(app->screen);
	app->is_dirty = false;
	app->draw_ns += budget_cpu_ns() - cpu_ns;
	return 0;
}

static int wait_ms(const struct app *app, uint64_t now_ns, uint64_t work_ns)
{
	uint64_t until_ns =
	    app->model.paused || app->next_sample_ns > work_ns ? work_ns : app->next_sample_ns;

	return until_ns > now_ns ? (int)((until_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS) : 0;
}

static int loop(struct app *app, struct error *err)
{
	struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
			       {.fd = app->signal_fd, .events = POLLIN}};
	int r = 0;

	while (r == 0 && !app->quits && !app->signal_number) {
		uint64_t now_ns = clock_monotonic_ns(), work_ns = now_ns + 60 * NS_PER_S;

		app->feed->ops->work(app->feed, now_ns, &work_ns);
		if (!app->model.paused && now_ns >= app->next_sample_ns) {
			r = take_sample(app, now_ns, err);
			app->next_sample_ns = now_ns + (uint64_t)(app->model.interval_s * 1e9);
		}
		if (r == 0 && app->is_dirty)
			r = draw(app, err);
		if (r < 0)
			break;
		if (poll(fds, 2, wait_ms(app, clock_monotonic_ns(), work_ns)) < 0 && errno != EINTR)
			return error_errno(err, -errno, "cannot wait for keys from the terminal");
		take_signals(app);
		/* After a hangup, a terminal is readable but has no keys. */
		if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL))
			app->signal_number = SIGHUP;
		if (fds[0].revents & POLLIN)
			r = take_keys(app, err);
	}
	return r;
}

static int take_signals_by_fd(struct app *app, struct error *err)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
	sigset_t signals;

	sigemptyset(&signals);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&signals, numbers[i]);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	app->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	return app->signal_fd < 0 ? error_errno(err, -errno, "cannot take signals") : 0;
}

static void set_up_model(struct app *app, const struct top_options *options)
{
	model_init(&app->model, terminal_charset(), options->interval_s);
	if (options->source == OPTIONS_NODES)
		model_set_fleet(&app->model);
	if (options->sort)
		model_sort_by(&app->model, VIEW_JOBS, options->sort);
	if (options->filter)
		snprintf(app->model.filter, sizeof(app->model.filter), "%s", options->filter);
	app->model.is_replay = options->read_path != NULL;
	app->model.is_recording = app->recording != NULL;
	if (options->tree) {
		app->model.tree = true;
		app->model.view = VIEW_WORKERS;
	}
}

int app_run(struct feed *feed, const struct top_options *options, struct top_recording_writer *recording,
	    int *ret_signal, struct error *err)
{
	struct app app = {.feed = feed, .recording = recording, .signal_fd = -1, .is_dirty = true};
	int r = take_signals_by_fd(&app, err);

	if (r == 0)
		r = terminal_open(&(struct terminal_options){options->no_colour, options->ascii}, err);
	if (r == 0) {
		set_up_model(&app, options);
		r = loop(&app, err);
		terminal_close();
		model_destroy(&app.model);
	}
	screen_free(app.screen);
	closep(&app.signal_fd);
	*ret_signal = app.signal_number;
	return r;
}
