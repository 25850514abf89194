/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk whose owner is another node of the job's (peers/sharers.h). Like what is staged, it comes from
 * there when the reader has just opened the chunk's own file with all its checks, and is verified like
 * anything from storage. What does not come in time, or is not the chunk, is read.
 */
#include "load.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lib/clock.h"
#include "daemon/cache/peers/sharers.h"

/* The owner may have to read the chunk first, which takes as long as it takes here; several that are asked
 * for together wait for each other. While nothing is known of the storage, it may be slow. */
#define ASK_MIN_NS     (3 * NS_PER_S / 2)
#define ASK_MAX_NS     (30 * NS_PER_S)
#define ASK_UNKNOWN_NS (10 * NS_PER_S)
#define ASK_TIMES      8

void load_note_peer(struct load *l, const struct cached_want *want)
{
	struct cached_dataset *d = l->dataset;
	struct sharer *m = want->for_peer ? NULL : sharers_find(d, l->job);

	if (load_is_known(l) || !sharer_has_elsewhere(m, l->chunk))
		return;
	l->sharer = sharer_ref(m);
	l->is_asking = true;
	d->n_asking++;
}

static uint64_t patience_ns(const struct load *l)
{
	double usual_s = read_latency_quantile_s(&l->job->counters.latency, NULL, 0.5, 1);
	uint64_t ns = isnan(usual_s) ? ASK_UNKNOWN_NS : (uint64_t)(ASK_TIMES * usual_s * (double)NS_PER_S);

	return ns < ASK_MIN_NS ? ASK_MIN_NS : ns < ASK_MAX_NS ? ns : ASK_MAX_NS;
}

/* The node is waited for no longer; nothing more is asked of it. */
static void load_end_waiting(struct load *l)
{
	if (!l->is_asking)
		return;
	l->is_asking = false;
	l->dataset->n_asking--;
	l->dataset->chunks[l->chunk].is_asked = false;
}

static void on_done(struct cluster_read *read, int result, const struct error *err)
{
	struct load *l = (struct load *)((char *)read - offsetof(struct load, ask));
	void (*done)(struct load * l, int result) = l->asked;

	l->asked = NULL;
	(void)err; /* it is counted, and said by the module */
	job_ask_end(l->job, l->begin_ns, clock_monotonic_ns(), result, read->bytes);
	if (result == 0)
		load_end_waiting(l);
	done(l, result);
}

int load_ask(struct load *l, void (*done)(struct load *l, int result))
{
	int r;

	l->asked = done;
	l->begin_ns = clock_monotonic_ns();
	l->ask = (struct cluster_read){.group = l->sharer->group,
				       .chunk = l->meta.id,
				       .place = sharer_asks(l->sharer, l->chunk),
				       .bytes = l->meta.file_bytes,
				       .memory_fd = l->segment->memory.fd,
				       .patience_ns = patience_ns(l),
				       .done = on_done};
	r = cluster_fetch(&l->ask);
	if (r == 0)
		job_ask_begin(l->job, l->begin_ns);
	else
		l->asked = NULL;
	return r;
}

void load_end_asking(struct load *l)
{
	load_end_waiting(l);
	sharer_unref(l->sharer);
	l->sharer = NULL;
}

void load_peer_spoilt(struct load *l)
{
	l->job->counters.peer_failed++;
	cluster_spoilt(&l->ask);
}
