/* SPDX-License-Identifier: Apache-2.0 */
/* The entry of a commit in the dataset's log. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/text.h"
#include "writer_private.h"

/* Counting paths takes time, and whoever adds and deletes in turns may do so as often as he likes. */
#define MAX_RUNS 64

void writer_set_command(struct writer *w, const char *command)
{
	text_printable(w->command, sizeof(w->command), command, strlen(command));
}

void writer_change_begin(struct writer *w)
{
	w->change = (struct change){.is_counted = !w->rebuilt};
	w->run_flags = 0;
	w->n_runs = 0;
	w->run_records = 0;
	w->run_paths = w->info.n_paths;
}

/* How many paths are new, and how many were there, follows from how their number changed. */
static void end_run(struct writer *w, uint64_t n_paths)
{
	if (w->run_flags & CHUNK_FLAG_TOMBSTONE) {
		w->change.n_deleted += w->run_paths - n_paths;
	} else {
		w->change.n_added += n_paths - w->run_paths;
		w->change.n_replaced += w->run_records - (n_paths - w->run_paths);
	}
	w->run_paths = n_paths;
	w->run_records = 0;
}

int writer_change_count(struct writer *w, const struct chunk_view *view, struct error *err)
{
	const struct chunk_header *h = view->header;
	uint32_t kind = h->flags & CHUNK_FLAG_TOMBSTONE; /* how it is stored makes no difference */
	struct meta_info now;

	if (kind != w->run_flags && ++w->n_runs > MAX_RUNS)
		w->change.is_counted = false;
	if (kind != w->run_flags && w->run_records && w->change.is_counted) {
		int r = meta_info(w->meta, &now, err);

		if (r < 0)
			return r;
		end_run(w, now.n_paths);
	}
	w->run_flags = kind;
	w->run_records += h->n_records;
	w->change.n_chunks++;
	for (uint32_t i = 0; i < h->n_records; i++)
		w->change.n_bytes += view->records[i].bytes;
	return 0;
}

struct last {
	uint64_t version, oldest;
};

static int take_last(const struct change *change, void *context)
{
	*(struct last *)context = (struct last){change->version, change->oldest};
	return 0;
}

/* Versions before a rebuild, or before one that was not recorded, cannot be told from chunks that were in
 * the store without belonging to them. */
int writer_find_oldest(struct writer *w, uint64_t version, uint64_t *ret, struct error *err)
{
	struct last last = {0};
	int r = w->rebuilt ? 0 : meta_each_change(w->meta, take_last, &last, err);

	if (r == 0)
		*ret = last.version && last.version == w->info.version ? last.oldest : version;
	return r;
}

static void name_writer(struct change *c)
{
	char host[CHANGE_NAME + 1] = "", buffer[1024];
	struct passwd entry, *found = NULL;

	gethostname(host, sizeof(host) - 1);
	text_printable(c->host, sizeof(c->host), host, strlen(host));
	if (getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found) == 0 && found)
		text_printable(c->user, sizeof(c->user), found->pw_name, strlen(found->pw_name));
	else
		snprintf(c->user, sizeof(c->user), "%u", (unsigned)geteuid());
}

int writer_change_end(struct writer *w, uint64_t version, const struct meta_info *now, struct error *err)
{
	struct change *c = &w->change;

	end_run(w, now->n_paths);
	if (!c->is_counted || w->keep_from) /* copies of what was there */
		c->n_added = c->n_replaced = c->n_deleted = 0;
	c->version = version;
	c->time_ns = clock_realtime_ns();
	c->has_newest = now->has_newest;
	c->newest = now->newest;
	c->n_samples = now->n_paths;
	if (!w->command[0])
		writer_set_command(w, program_invocation_short_name);
	memcpy(c->command, w->command, sizeof(c->command));
	name_writer(c);
	c->oldest = w->keep_from;
	return w->keep_from ? 0 : writer_find_oldest(w, version, &c->oldest, err);
}
