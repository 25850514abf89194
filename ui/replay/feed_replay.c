/* SPDX-License-Identifier: Apache-2.0 */
#include "ui/feed/feed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/error.h"
#include "top_recording.h"
#include "ui/state/sample.h"

struct replay {
	struct feed feed;
	struct top_recording_reader *reader;
	size_t first, end; /* range of records that is shown */
	size_t next;
};

static void work(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns)
{
}

static int next_sample(struct feed *feed, unsigned int wanted, uint64_t now_ns,
		       struct top_sample **ret_sample, struct error *err)
{
	struct replay *replay = (struct replay *)feed;

	while (replay->next < replay->end) {
		int r = top_recording_read(replay->reader, replay->next++, ret_sample, err);

		if (r != -EBADMSG)
			return r;
	}
	return error_set(err, -ENODATA, "the recording ends here");
}

/* Finds the record for the time given by the user. */
static int find(const struct replay *replay, const char *text, size_t *ret_at, struct error *err)
{
	size_t now = replay->next > replay->first ? replay->next - 1 : replay->first;
	double time_s;

	if (top_recording_time_parse(text, top_recording_time_s(replay->reader, now), &time_s))
		return error_set(err, -EINVAL,
				 "\"%.40s\" is not a time: must be HH:MM[:SS], YYYY-MM-DDTHH:MM[:SS], "
				 "+SECONDS or -SECONDS",
				 text);
	*ret_at = top_recording_find(replay->reader, time_s);
	return 0;
}

static int seek(struct feed *feed, enum feed_seek where, const char *time, struct error *err)
{
	struct replay *replay = (struct replay *)feed;
	size_t to = replay->next, back;
	int r;

	switch (where) {
	case FEED_SEEK_FIRST: to = replay->first; break;
	case FEED_SEEK_LAST: to = replay->end - 1; break;
	case FEED_SEEK_BACK: to = replay->next >= replay->first + 2 ? replay->next - 2 : replay->first; break;
	case FEED_SEEK_TIME:
		r = find(replay, time, &to, err);
		if (r < 0)
			return r;
		break;
	case FEED_SEEK_REWIND:
		back = (size_t)strtoul(time, NULL, 10);
		if (back > replay->next - replay->first)
			back = replay->next - replay->first;
		replay->next -= back;
		return (int)back;
	}
	if (to < replay->first)
		to = replay->first;
	replay->next = to < replay->end ? to : replay->end - 1;
	return 0;
}

static size_t n_skipped(const struct feed *feed)
{
	return top_recording_n_skipped(((const struct replay *)feed)->reader);
}

static void replay_close(struct feed *feed)
{
	struct replay *replay = (struct replay *)feed;

	top_recording_reader_close(replay->reader);
	free(replay);
}

static const struct feed_ops replay_ops = {
    .work = work, .sample = next_sample, .seek = seek, .n_skipped = n_skipped, .close = replay_close};

/* Limits the replay to the given begin and end. +SECONDS counts from the first record. */
static int cut(struct replay *replay, const struct replay_options *options, struct error *err)
{
	size_t at;
	int r;

	if (options->end) {
		r = find(replay, options->end, &at, err);
		if (r < 0)
			return error_set(err, r,
					 "-e %.40s: must be a time, HH:MM[:SS] or YYYY-MM-DDTHH:MM[:SS]",
					 options->end);
		replay->end = at + 1;
	}
	if (!options->begin)
		return 0;
	r = find(replay, options->begin, &at, err);
	if (r < 0)
		return error_set(err, r, "--begin %.40s: must be a time, HH:MM[:SS] or YYYY-MM-DDTHH:MM[:SS]",
				 options->begin);
	if (at >= replay->end)
		return error_set(err, -EINVAL, "--begin %.40s: the requested part ends before it begins",
				 options->begin);
	replay->first = replay->next = at;
	return 0;
}

int feed_replay_open(const struct replay_options *options, struct feed **ret_feed, struct error *err)
{
	struct replay *replay = calloc(1, sizeof(*replay));
	int r;

	if (!replay)
		return error_set(err, -ENOMEM, "not enough memory to start diesel-top");
	replay->feed.ops = &replay_ops;
	r = top_recording_open(options->path, &replay->reader, err);
	if (r == 0) {
		replay->end = top_recording_n(replay->reader);
		r = cut(replay, options, err);
	}
	if (r < 0) {
		replay_close(&replay->feed);
		return r;
	}
	*ret_feed = &replay->feed;
	return 0;
}
