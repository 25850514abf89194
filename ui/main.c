/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "app.h"
#include "batch.h"
#include "ui/view/columns.h"
#include "ui/feed/feed.h"
#include "lib/error.h"
#include "lib/log.h"
#include "options.h"
#include "ui/replay/top_recording.h"

static int open_feed(const struct top_options *options, struct feed **ret_feed, struct error *err)
{
	const struct node_options look = {options->pids, options->n_pids, options->unprivileged};
	struct feed *node = NULL, *daemon = NULL;
	int r;

	if (options->read_path)
		return feed_replay_open(
		    &(struct replay_options){options->read_path, options->begin, options->end}, ret_feed,
		    err);
	if (options->source == OPTIONS_NODES)
		return feed_nodes_open(options->redis, ret_feed, err);
	if (options->source == OPTIONS_DAEMON)
		return feed_daemon_open(options->socket, ret_feed, err);
	if (options->source == OPTIONS_NODE)
		return feed_node_open(&look, ret_feed, err);
	r = feed_node_open(&look, &node, err);
	if (r == 0)
		r = feed_daemon_open(options->socket, &daemon, err);
	if (r == 0)
		return feed_both_open(node, daemon, ret_feed, err);
	feed_close(node);
	return r;
}

static int run(const struct top_options *options, int *ret_signal, struct error *err)
{
	struct feed *feed = NULL;
	struct top_recording_writer *recording = NULL;
	int r = open_feed(options, &feed, err);

	if (r == 0 && options->write_path)
		r = top_recording_create(options->write_path, &recording, err);
	if (r == 0 && options->once)
		r = batch_once(feed, options, recording, err);
	else if (r == 0 && options->batch)
		r = batch_run(feed, options, recording, err);
	else if (r == 0)
		r = app_run(feed, options, recording, ret_signal, err);
	feed_close(feed);
	top_recording_writer_close(recording);
	return r;
}

/* Checks the column to sort by. An unknown one is an error in the command line. */
static int check_sort(const struct top_options *options)
{
	const struct columns *columns = options->source == OPTIONS_NODES ? &columns_fleet : &columns_jobs;

	if (!options->sort || columns_find(columns, options->sort) >= 0)
		return 0;
	fprintf(stderr, "diesel-top: no column '%s'. The columns are:", options->sort);
	for (size_t i = 0; i < columns->n; i++)
		fprintf(stderr, " %s", columns->items[i].key);
	fputc('\n', stderr);
	return TOP_USAGE;
}

/* Ends by the signal, so that the parent process sees the signal. */
static void die_by(int signal_number)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, signal_number);
	signal(signal_number, SIG_DFL);
	raise(signal_number);
	sigprocmask(SIG_UNBLOCK, &signals, NULL);
}

int main(int argc, char **argv)
{
	struct top_options options;
	struct error err = ERROR_INIT;
	int r, signal_number = 0;

	if (argc == 3 && strcmp(argv[1], "--print-options") == 0)
		return options_print(argv[2]);
	setlocale(LC_CTYPE, "");
	signal(SIGXFSZ, SIG_IGN); /* ignored, because write() also reports a file that gets too large */
	log_init("diesel-top", LOG_LEVEL_INFO);
	r = options_parse(argc, argv, &options);
	if (r != 0)
		return r - 1;
	r = check_sort(&options);
	if (r != 0)
		return r;
	r = run(&options, &signal_number, &err);
	if (r != 0)
		log_error("%s", err.text);
	else if (signal_number)
		die_by(signal_number);
	return r != 0 ? TOP_FAILED : 0;
}
