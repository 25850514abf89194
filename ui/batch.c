/* SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ui/feed/feed.h"
#include "ui/view/format.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/text.h"
#include "ui/view/model.h"
#include "options.h"
#include "ui/replay/top_recording.h"
#include "ui/state/sample_json.h"
#include "ui/view/views.h"

#define ONCE_S    3.0 /* time of a --once sample in seconds; in less, most jobs have too few steps */
#define COLS_PIPE 160

static void wait_until(struct feed *feed, uint64_t until_ns)
{
	for (;;) {
		uint64_t now_ns = clock_monotonic_ns(), next_ns = until_ns;

		if (now_ns >= until_ns)
			return;
		feed->ops->work(feed, now_ns, &next_ns);
		next_ns = next_ns < until_ns ? next_ns : until_ns;
		now_ns = clock_monotonic_ns();
		if (next_ns > now_ns)
			poll(NULL, 0, (int)((next_ns - now_ns) / NS_PER_MS) + 1);
	}
}

static void sample_freep(struct top_sample **sample)
{
	sample_free(*sample);
}

static int take(struct feed *feed, struct top_recording_writer *recording, unsigned int wanted,
		struct top_sample **ret_sample, struct error *err)
{
	_cleanup_(sample_freep) struct top_sample *sample = NULL;
	int r = feed->ops->sample(feed, wanted, clock_monotonic_ns(), &sample, err);

	if (r == 0 && recording)
		r = top_recording_write(recording, sample, err);
	if (r == 0)
		*ret_sample = steal_pointer(sample);
	return r;
}

/* Flushes the output, and reports a full disk or a closed pipe as a failure. */
static int flush(struct error *err)
{
	return fflush(stdout) || ferror(stdout)
		   ? error_errno(err, errno ? -errno : -EIO, "cannot write the output")
		   : 0;
}

int batch_once(struct feed *feed, const struct top_options *options, struct top_recording_writer *recording,
	       struct error *err)
{
	double s = options->interval_given ? options->interval_s : ONCE_S;
	struct top_sample *sample = NULL;
	_cleanup_(freep) char *json = NULL;
	int r = feed->ops->sample(feed, FEED_WANT_ALL, clock_monotonic_ns(), &sample, err);

	if (r < 0)
		return r;
	if (!feed->ops->seek) {
		sample_free(sample);
		wait_until(feed, clock_monotonic_ns() + (uint64_t)(s * 1e9));
		r = take(feed, recording, FEED_WANT_ALL, &sample, err);
		if (r < 0)
			return r;
	}
	json = sample_to_json(sample, true);
	sample_free(sample);
	if (!json)
		return error_set(err, -ENOMEM, "no memory for the output");
	text_put_json(stdout, json);
	return flush(err);
}

static int columns_of_output(void)
{
	struct winsize size;

	return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col >= 40 ? size.ws_col : COLS_PIPE;
}

/* Prints why a named daemon gives no data, because a table without its jobs looks like a daemon without jobs.
 */
static void print_problem(const struct daemon_sample *daemon, const struct top_options *options)
{
	char text[sizeof(daemon->problem)];

	if ((options->source == OPTIONS_DAEMON || options->source == OPTIONS_NODES || options->socket) &&
	    daemon->problem[0])
		puts(text_line(text, sizeof(text), daemon->problem));
}

/* Prints the time, and the table of jobs as on a screen with `cols` columns. */
static int print_table(struct model *model, const struct top_options *options, int cols, struct error *err)
{
	struct screen *screen = screen_new((int)model->sample->n_jobs + 2, cols, model->charset);
	const char *place = view_daemon_place(&model->sample->daemon);
	char time[FORMAT_BYTES], lost[FORMAT_BYTES], text[sizeof(model->sample->daemon.socket)];

	if (!screen)
		return error_set(err, -ENOMEM, "no memory for the output");
	printf("diesel-top %s  %s  %s  LOST %s%s%s%s\n", format_time(time, model->sample->time_s),
	       model->sample->host.name, model->sample->self.source,
	       format_count(lost, model->sample->self.n_lost), model->is_replay ? "  REPLAY" : "",
	       *place ? "  dieseld at " : "", text_line(text, sizeof(text), place));
	print_problem(&model->sample->daemon, options);
	model->cursor[VIEW_JOBS] = 0;
	view_table(model, screen, 0, screen->rows, "no training job");
	for (int y = 0; y < screen->rows; y++) {
		_cleanup_(freep) char *line = screen_line(screen, y);

		if (line && (line[0] || y + 1 < screen->rows))
			puts(line);
	}
	putchar('\n');
	screen_free(screen);
	return flush(err);
}

int batch_run(struct feed *feed, const struct top_options *options, struct top_recording_writer *recording,
	      struct error *err)
{
	struct model model;
	uint64_t next_ns = clock_monotonic_ns();
	int cols = columns_of_output(), r = 0;

	model_init(&model, (struct charset){.unicode = !options->ascii && MB_CUR_MAX > 1},
		   options->interval_s);
	if (options->source == OPTIONS_NODES)
		model_set_fleet(&model);
	if (options->sort)
		model_sort_by(&model, VIEW_JOBS, options->sort);
	if (options->filter)
		snprintf(model.filter, sizeof(model.filter), "%s", options->filter);
	model.is_replay = feed->ops->seek != NULL;
	for (long n = 0; r == 0 && (!options->n_samples || n < options->n_samples); n++) {
		struct top_sample *sample;

		next_ns += (uint64_t)(options->interval_s * 1e9);
		if (!model.is_replay)
			wait_until(feed, next_ns);
		r = take(feed, recording, recording ? FEED_WANT_ALL : 0, &sample, err);
		if (r == 0)
			r = model_take(&model, sample);
		if (r == 0)
			r = print_table(&model, options, cols, err);
	}
	model_destroy(&model);
	return r == -ENODATA ? 0 : r; /* a recording ends with -ENODATA, which is no failure */
}
