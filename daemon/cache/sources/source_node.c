/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: chunks whose owner is another node of the job (peers/memberships.h). */
#include "source.h"

#include <stdlib.h>

#include "daemon/cache/peers/memberships.h"
#include "lib/clock.h"

/* Bounds on the wait for the owner. The owner may have to read the chunk first, which takes as long as here,
 * and simultaneous requests wait for each other. Unknown storage may be slow. */
#define ASK_MIN_NS     (3 * NS_PER_S / 2)
#define ASK_MAX_NS     (30 * NS_PER_S)
#define ASK_UNKNOWN_NS (10 * NS_PER_S)
#define ASK_TIMES      8

struct node_copy {
	struct cluster_read read;
	struct chunk_load *load;
	struct membership *membership;
	bool is_awaited; /* this read is counted in the dataset's n_asking */
};

static void *node_find(struct chunk_load *l, const struct cached_want *want)
{
	struct cached_dataset *d = l->dataset;
	/* Nothing could verify another node's copy of a chunk without checksums. */
	bool is_own = want->for_peer || l->meta.is_external;
	struct membership *m = is_own ? NULL : memberships_find(d, l->job);
	struct node_copy *n = membership_has_elsewhere(m, l->chunk) ? calloc(1, sizeof(*n)) : NULL;

	if (!n)
		return NULL;
	n->load = l;
	n->membership = membership_ref(m);
	n->is_awaited = true;
	d->loads.n_asking++;
	/* The file is never read, whatever it contains: the owner's data is verified. */
	load_expect(l, &(struct access_stamp){.dev = d->identity.chunks_dev, .bytes = l->meta.file_bytes});
	l->read.order.only_check = true;
	return n;
}

/* Stops waiting for the node. */
static void end_waiting(struct node_copy *n)
{
	n->load->dataset->loads.n_asking -= n->is_awaited;
	n->is_awaited = false;
}

static void on_done(struct cluster_read *read, int result, const struct error *err)
{
	struct node_copy *n = (struct node_copy *)read;
	struct chunk_load *l = n->load;

	(void)err; /* counted and logged by the cluster module */
	job_ask_end(l->job, l->begin_ns, clock_monotonic_ns(), result, read->bytes);
	end_waiting(n);
	load_brought(l, result);
}

static int node_begin(struct chunk_load *l)
{
	struct node_copy *n = l->copy.state;
	int r;

	l->begin_ns = clock_monotonic_ns();
	n->read = (struct cluster_read){
	    .group = n->membership->group,
	    .chunk = l->meta.id,
	    .place = membership_asks(n->membership, l->chunk),
	    .bytes = l->meta.file_bytes,
	    .memory_fd = l->segment->memory.fd,
	    .patience_ns = load_patience_ns(l, ASK_TIMES, ASK_UNKNOWN_NS, ASK_MIN_NS, ASK_MAX_NS),
	    .done = on_done};
	r = cluster_fetch(&n->read);
	if (r == 0)
		job_ask_begin(l->job, l->begin_ns);
	return r;
}

static void node_end(struct chunk_load *l, enum source_end how)
{
	struct node_copy *n = l->copy.state;

	if (how == SOURCE_SPOILT) {
		l->job->counters.peer_failed++;
		cluster_spoilt(&n->read);
	}
	end_waiting(n);
	membership_unref(n->membership);
	free(n);
}

const struct chunk_source source_node = {
    .kind = SOURCE_FAR,
    .from = CHUNK_FROM_NODE,
    .copied_by = "a copy from another node",
    .find = node_find,
    .begin = node_begin,
    .end = node_end,
};
