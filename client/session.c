/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset.h"
#include "lib/cleanup.h"
#include "lib/units.h"
#include "lib/clock.h"
#include "patience.h"
#include "subset.h"

/* Longest sleep before the socket is checked: bounds how late a dead daemon is noticed. */
#define SLEEP_MS 50

__attribute__((format(printf, 2, 3))) static void session_notice(struct diesel_session *s, const char *format,
								 ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(s->notice, sizeof(s->notice), format, arguments);
	va_end(arguments);
	s->has_notice = true;
}

_Static_assert(DIESEL_ASK_MAX == WIRE_ASK_SAMPLES, "one limit");
_Static_assert(DIESEL_ASK_FEW == WIRE_ASK_FEW, "one number");

static const struct asked_numbers *asked_at(const struct diesel_session *s, uint64_t index)
{
	return &s->asked[index % RING_MAX_SLOTS];
}

static void tell_batch(const struct diesel_session *s, uint64_t index)
{
	const struct asked_numbers *a = asked_at(s, index);
	union wire_message message;

	protocol_init(&message, WIRE_ASK);
	message.ask.index = index;
	message.ask.n_samples = a->n;
	message.ask.ahead = a->ahead < WIRE_ASK_AHEAD || a->ahead == WIRE_ASK_FEW ? a->ahead : WIRE_ASK_AHEAD;
	memcpy(message.ask.samples, a->samples, a->n * sizeof(*a->samples));
	(void)transport_send(s->attachment->transport.fd, &message, NULL, 0);
}

/* Sends pending requests. If sending fails, the daemon has exited, which the next wait detects. A new daemon
 * gets the requests again, and may have fewer slots. */
static void tell_asked(struct diesel_session *s)
{
	while (s->attachment && s->asked_told < s->asked_end &&
	       s->asked_told - s->index < s->attachment->n_slots)
		tell_batch(s, s->asked_told++);
}

static int session_fail(struct diesel_session *s, const struct error *err, int code)
{
	return report_error(err, code, s->error, sizeof(s->error));
}

/* Returns the first index >= batch that belongs to this session's stride. */
static uint64_t session_align(const struct diesel_session *s, uint64_t batch)
{
	uint64_t offset = s->request.offset, stride = s->request.stride;

	if (s->epoch == s->start_epoch && batch < s->start_batch)
		batch = s->start_batch;
	if (batch <= offset)
		return offset;
	if (batch >= s->n_batches) /* beyond the end: the sum below could overflow */
		return batch;
	return offset + (batch - offset + stride - 1) / stride * stride;
}

/* Returns true if the daemon opened the requested session: n_batches follows from the dataset, and a
 * window, once known, must not change. */
static bool is_as_asked(const struct diesel_session *s, const struct attachment *a)
{
	uint32_t asked = s->request.window_chunks;

	return a->n_batches == s->n_batches &&
	       (!s->request.recipe.kind || a->item_bytes == recipe_item_bytes(&s->request.recipe)) &&
	       (asked == 0 || a->window_chunks == (asked < s->n_chunks ? asked : s->n_chunks));
}

static int session_attach(struct diesel_session *s, struct error *err)
{
	const struct attachment_request asked = {&s->request, s->subset, s->field};
	struct attachment *a = NULL;
	int r;

	s->request.epoch = s->epoch;
	s->request.first_batch = s->index;
	s->request.start = s->epoch == s->start_epoch ? s->start : 0;
	r = attachment_open(s->socket_path, &s->shown, s->version, &asked, &a, err);
	if (r == -ENOMEM && s->request.recipe.kind && !(s->request.flags & DIESEL_PINNABLE)) {
		/* The address space may be limited, and private memory is smaller than shared memory. */
		s->request.flags |= DIESEL_PINNABLE;
		r = attachment_open(s->socket_path, &s->shown, s->version, &asked, &a, err);
	}
	if (r < 0)
		return r;
	if (!is_as_asked(s, a)) {
		attachment_unref(a);
		return error_set(
		    err, -EPROTO,
		    "dieseld opened a session with other batches or another window than requested");
	}
	s->attachment = a;
	a->life = ++s->lives;
	s->request.window_chunks = a->window_chunks;
	diesel_session_report(s, &s->work);
	diesel_session_report_checkpoints(s, &s->checkpoints);
	s->asked_told = s->index;
	tell_asked(s);
	if (a->notice[0])
		session_notice(s, "%s", a->notice);
	return 0;
}

/* Counts the chunks with at least one sample of the subset. */
static int count_chunks(const struct snapshot *snapshot, const struct subset *subset, uint64_t *ret)
{
	uint64_t count = 0;

	for (uint64_t i = 0; i < snapshot_info(snapshot)->n_chunks; i++) {
		struct snapshot_chunk chunk;
		int r = snapshot_chunk_get(snapshot, i, &chunk);

		if (r < 0)
			return r;
		count +=
		    subset_count_range(subset, chunk.first_sample, chunk.first_sample + chunk.n_samples) > 0;
	}
	*ret = count;
	return 0;
}

/* Determines the session's samples, and the number of chunks and batches that hold them. */
static int session_choose(struct diesel_session *s, const struct diesel_dataset *dataset,
			  const struct diesel_subset *subset, struct error *err)
{
	const struct snapshot_info *info = snapshot_info(dataset->snapshot);
	uint64_t n_samples = info->n_samples;
	int r = 0;

	s->n_chunks = info->n_chunks;
	if (subset) {
		n_samples = subset_count(subset->chosen);
		if (n_samples == 0)
			return error_set(err, -EINVAL, "the subset of %s has no samples", dataset->path);
		if (subset_n_samples(subset->chosen) != info->n_samples)
			return error_set(err, -EINVAL,
					 "the subset belongs to another dataset than %s, or to "
					 "another version of it",
					 dataset->path);
		s->request.subset_samples = n_samples;
		r = subset_copy(subset->chosen, &s->subset);
		if (r == 0)
			r = count_chunks(dataset->snapshot, s->subset, &s->n_chunks);
	}
	if (s->request.lanes > n_samples)
		return error_set(err, -EINVAL,
				 "%s%s has %llu sample%s, too few for %u lanes: give lanes=%llu or fewer",
				 subset ? "the subset of " : "", dataset->path, (unsigned long long)n_samples,
				 units_plural(n_samples), s->request.lanes, (unsigned long long)n_samples);
	s->n_samples = info->n_samples;
	s->n_batches = s->request.flags & DIESEL_ASKED ? UINT64_MAX
						       : diesel_n_batches(n_samples, s->request.world,
									  s->request.batch, s->request.flags);
	if (s->start && diesel_first_batch(n_samples, s->start, s->request.world, s->request.batch,
					   s->request.flags, &s->start_batch) < 0)
		return error_set(err, -EINVAL,
				 "%llu samples are left in epoch %llu of %s, too few for %u ranks: continue "
				 "with fewer ranks, or with the next epoch",
				 (unsigned long long)(s->start < n_samples ? n_samples - s->start : 0),
				 (unsigned long long)s->start_epoch, dataset->path, s->request.world);
	return r < 0 ? error_errno(err, r, "cannot open the session") : 0;
}

static int take_field(struct diesel_session *s, const struct diesel_dataset *dataset, const char *field,
		      struct error *err)
{
	bool has_fields = snapshot_info(dataset->snapshot)->layout != CHUNK_LAYOUT_PLAIN;

	if (has_fields && s->request.recipe.kind && !field)
		return error_set(err, -EINVAL, "samples of %s have fields: name the one to decode",
				 dataset->path);
	if (field && (!has_fields || !s->request.recipe.kind))
		return error_set(err, -EINVAL,
				 has_fields ? "a field of %s is named, without a recipe for it"
					    : "samples of %s have no fields",
				 dataset->path);
	if (field && (!field[0] || strlen(field) >= sizeof(s->field)))
		return error_set(err, -EINVAL, "the field's name must have 1 to %zu bytes",
				 sizeof(s->field) - 1);
	if (field)
		strcpy(s->field, field);
	return 0;
}

static int session_init(struct diesel_session *s, const struct diesel_dataset *dataset,
			const struct diesel_session_options *o, struct error *err)
{
	union wire_message message;
	const char *wrong;
	int r;

	protocol_init(&message, WIRE_OPEN_SESSION);
	s->request = message.open_session;
	s->request.seed = o->seed;
	s->request.flags = o->flags;
	s->request.rank = o->rank;
	s->request.world = o->world;
	s->request.batch = o->batch;
	s->request.stride = o->stride ? o->stride : 1;
	s->request.offset = o->offset;
	s->request.window_chunks = o->window_chunks;
	s->request.lanes = o->lanes;
	s->request.drift = o->drift;
	if (o->start > UINT32_MAX)
		return error_set(err, -EINVAL, "%llu samples are more than a dataset can have",
				 (unsigned long long)o->start);
	s->request.start = (uint32_t)o->start;
	s->request.slots = o->slots < WIRE_SLOTS_MAX ? o->slots : WIRE_SLOTS_MAX;
	if (o->recipe)
		s->request.recipe = *o->recipe;
	if (o->group && strlen(o->group) >= sizeof(s->request.group))
		return error_set(err, -EINVAL, "the group name is longer than %zu bytes",
				 sizeof(s->request.group) - 1);
	if (o->group)
		strcpy(s->request.group, o->group);
	r = take_field(s, dataset, o->field, err);
	if (r == 0)
		r = session_cluster_name(o, s->request.cluster, err);
	if (r < 0)
		return r;
	s->request.nodes = session_cluster_nodes(o);
	message.open_session = s->request;
	message.header.sequence = 1;
	wrong = recipe_check(&s->request.recipe);
	if (wrong)
		return error_set(err, -EINVAL, "invalid recipe: %s", wrong);
	if (protocol_check(&message, sizeof(s->request), 0) < 0 ||
	    (o->flags & DIESEL_ASKED && (o->epoch || o->first_batch || o->subset)))
		return error_set(
		    err, -EINVAL,
		    o->flags & DIESEL_ASKED
			? "invalid session options: with DIESEL_ASKED, world must be 1, batch 1 to %u, and "
			  "all other options except slots and reconnect_ms 0 (with DIESEL_WARM, world and "
			  "cluster are free)"
			: "invalid session options: must be world >= 1, rank < world, 1 <= batch <= %u, "
			  "offset < "
			  "stride, window <= %u chunks, lanes and drift <= %u, no unknown flags, no recipe "
			  "with DIESEL_VIEWS",
		    o->flags & DIESEL_ASKED ? WIRE_ASK_SAMPLES : WIRE_BATCH_MAX, WIRE_WINDOW_MAX,
		    WIRE_LANES_MAX);
	s->epoch = s->start_epoch = o->epoch;
	s->start = s->request.start;
	s->index = o->first_batch;
	s->reconnect_ms = o->reconnect_ms;
	s->version = snapshot_info(dataset->snapshot)->version;
	if (o->flags & DIESEL_ASKED) {
		s->asked = calloc(RING_MAX_SLOTS, sizeof(*s->asked));
		s->asked_end = s->index;
		if (!s->asked)
			return error_errno(err, -ENOMEM, "cannot open the session");
	}
	r = session_choose(s, dataset, o->subset, err);
	if (r < 0)
		return r;
	s->socket_path = strdup(dataset->socket_path);
	r = s->socket_path ? shown_dup(&dataset->shown, &s->shown) : -ENOMEM;
	return r < 0 ? error_errno(err, r, "cannot open the session") : 0;
}

/* The daemon was running when the dataset was opened: if it has exited since, another one may start. */
static int session_attach_first(struct diesel_session *s, struct error *err)
{
	struct patience patience = patience_begin(s->reconnect_ms, clock_monotonic_ns());
	int r = session_attach(s, err);

	while (patience_helps(r) && s->reconnect_ms) {
		int pause = patience_pause(&patience);

		if (pause == -ETIMEDOUT)
			return error_set(err, r,
					 "dieseld at %s went away before the session was open, and did not "
					 "come back within %.1f s: start it and try again",
					 s->socket_path, s->reconnect_ms / 1000.0);
		if (pause < 0)
			return error_errno(err, pause, "dieseld at %s went away", s->socket_path);
		r = session_attach(s, err);
	}
	return r;
}

int diesel_session_open(struct diesel_dataset *dataset, const struct diesel_session_options *options,
			struct diesel_session **ret, char *error, size_t error_size)
{
	struct error err = ERROR_INIT;
	struct diesel_session *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return report_error(&err, -ENOMEM, error, error_size);
	s->shown = SHOWN_NOTHING;
	r = session_init(s, dataset, options, &err);
	if (r == 0)
		r = session_attach_first(s, &err);
	if (r < 0) {
		diesel_session_close(s);
		return report_error(&err, r, error, error_size);
	}
	s->index = session_align(s, s->index);
	*ret = s;
	return 0;
}

/* Asks the daemon to produce nothing more; held batches stay. */
static void attachment_stop(struct attachment *a)
{
	union wire_message request, reply;

	protocol_init(&request, WIRE_STOP);
	(void)transport_call(&a->transport, &request, NULL, WIRE_STOP_REPLY, &reply, NULL, NULL);
}

void diesel_session_close(struct diesel_session *s)
{
	if (!s)
		return;
	/* Leases keep the connection open, and the daemon should not prepare batches that nobody will
	 * take. */
	if (s->attachment && atomic_load(&s->attachment->n_held) > 0)
		attachment_stop(s->attachment);
	attachment_unref(s->attachment);
	subset_free(s->subset);
	free(s->asked);
	shown_close(&s->shown);
	free(s->socket_path);
	free(s);
}

/* The next call opens the session again. */
static void session_drop(struct diesel_session *s)
{
	attachment_unref(s->attachment);
	s->attachment = NULL;
	s->lost_ns = clock_monotonic_ns();
}

static void session_lose(struct diesel_session *s, int r)
{
	session_drop(s);
	session_notice(s, "dieseld at %s %s; waiting up to %.1f s for it to come back", s->socket_path,
		       r == -ETIMEDOUT ? "does not answer" : "went away", s->reconnect_ms / 1000.0);
}

static int session_reattach(struct diesel_session *s)
{
	struct patience patience = patience_begin(s->reconnect_ms, s->lost_ns);
	struct error err = ERROR_INIT;
	bool full;

	for (;;) {
		uint64_t gone_ms = patience_gone_ms(&patience);
		int r = session_attach(s, &err);

		if (r == 0) {
			session_notice(s,
				       "dieseld at %s went away and is back after %.1f s; continuing at "
				       "epoch %llu batch %llu",
				       s->socket_path, (double)gone_ms / 1000.0, (unsigned long long)s->epoch,
				       (unsigned long long)s->index);
			return 0;
		}
		/* The session fitted before, so a later try may succeed: its lost memory, or that of others,
		 * is still in use. */
		full = r == -ENOSPC;
		if (!patience_helps(r) && !full)
			return session_fail(s, &err, r);
		r = patience_pause(&patience);
		if (r == -ETIMEDOUT && full)
			return session_fail(s, &err, -ENOSPC);
		if (r == -ETIMEDOUT) {
			snprintf(s->error, sizeof(s->error),
				 "dieseld at %s went away and did not come back within %.1f s: start it and "
				 "call again to continue at epoch %llu batch %llu",
				 s->socket_path, s->reconnect_ms / 1000.0, (unsigned long long)s->epoch,
				 (unsigned long long)s->index);
			s->lost_ns = clock_monotonic_ns(); /* the next call waits again */
			return -ETIMEDOUT;
		}
		if (r < 0)
			return r;
	}
}

/* Reports the length of this sleep, by which the daemon tunes if it cannot load BPF programs. */
static void tell_wait(struct ring_control *control, uint32_t cause, uint64_t begin_ns)
{
	_Atomic uint64_t *sum = ring_cause_fetches(cause) ? &control->wait_fetch_ns : &control->wait_prep_ns;

	atomic_fetch_add_explicit(sum, clock_monotonic_ns() - begin_ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&control->n_waits, 1, memory_order_relaxed);
	atomic_store_explicit(&control->wait_since_ns, 0, memory_order_relaxed);
}

_Static_assert((int)RING_CAUSE_FETCH == DIESEL_MARK_CAUSE_FETCH &&
		   (int)RING_CAUSE_PREP == DIESEL_MARK_CAUSE_PREP &&
		   (int)RING_CAUSE_PEERS == DIESEL_MARK_CAUSE_PEERS &&
		   (int)RING_CAUSE_STAGING == DIESEL_MARK_CAUSE_STAGING,
	       "handed on as it is");

/* Returns true if the connection has ended. */
static bool attachment_is_lost(const struct attachment *a)
{
	struct pollfd p = {.fd = a->transport.fd, .events = POLLIN | POLLRDHUP};

	/* The daemon sends nothing unasked on this socket, so if it is readable, it has ended. */
	return a->transport.broken || (poll(&p, 1, 0) > 0 && p.revents != 0);
}

/* Sleeps until a batch is published. Returns 0, -EINTR, or -ECONNRESET if the daemon is lost. The marks
 * show diesel-analyze the reason for the sleep. */
static int session_sleep(struct diesel_session *s)
{
	struct attachment *a = s->attachment;
	uint32_t cause = RING_CAUSE_NONE;
	uint64_t begin_ns = clock_monotonic_ns();
	int r = 0;

	atomic_store_explicit(&a->control->wait_since_ns, begin_ns, memory_order_relaxed);
	attachment_kick(a, 0);
	diesel_mark(DIESEL_MARK_WAIT_BEGIN, 0);
	while (ring_ready(a->control, a->consumed) == 0) {
		cause = ring_cause_of_both(cause, atomic_load(&a->control->cause));
		r = ring_wait(a->control, a->consumed, SLEEP_MS);
		if (r == -EINTR)
			break;
		if (r == -ETIMEDOUT && attachment_is_lost(a)) {
			r = -ECONNRESET;
			break;
		}
		r = 0;
	}
	diesel_mark(DIESEL_MARK_WAIT_END, cause ? cause : RING_CAUSE_PREP);
	tell_wait(a->control, cause, begin_ns);
	return r;
}

/* Returns the mapped segment; requests it from the daemon the first time. */
static int attachment_segment(struct attachment *a, uint32_t segment, const struct segment_map **ret,
			      struct error *err)
{
	const struct segment_map *known = segment_table_find(&a->segments, segment);
	_cleanup_(closep) int fd = -EBADF;
	uint64_t bytes = 0;
	int r;

	if (known) {
		*ret = known;
		return 0;
	}
	r = attachment_segment_fd(a, segment, &fd, &bytes, err);
	if (r < 0)
		return r;
	r = segment_table_map(&a->segments, segment, fd, bytes, ret);
	return r < 0 ? error_errno(err, r, "cannot map chunk segment %u", segment) : 0;
}

/* n: items; n_left_out: damaged samples after them. */
static int fill_views(struct diesel_session *s, struct diesel_item *items, const struct ring_item *in,
		      uint32_t n, uint32_t n_left_out)
{
	struct error err = ERROR_INIT;
	const struct segment_map *map = NULL;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t segment = (uint32_t)(in[i].location >> 32), offset = (uint32_t)in[i].location;

		if (!map || map->id != segment) {
			int r = attachment_segment(s->attachment, segment, &map, &err);

			if (r < 0)
				return session_fail(s, &err, r);
		}
		if ((uint64_t)offset + in[i].bytes > map->bytes) {
			snprintf(s->error, sizeof(s->error), "dieseld placed a sample outside its segment");
			return -EPROTO;
		}
		items[i] = (struct diesel_item){.data = map->data + offset,
						.sample = in[i].sample,
						.bytes = in[i].bytes,
						.label = in[i].label};
	}
	for (uint32_t i = n; i < n + n_left_out; i++)
		items[i] = (struct diesel_item){.sample = in[i].sample, .label = in[i].label};
	return 0;
}

/* Returns true if this is the expected next batch. If not, later batches cannot be trusted either. */
static bool is_expected(struct diesel_session *s, const struct ring_descriptor *d)
{
	if (d->epoch == s->epoch && d->index == s->index)
		return true;
	snprintf(s->error, sizeof(s->error),
		 "dieseld published batch %llu of epoch %llu, expected batch %llu of epoch %llu",
		 (unsigned long long)d->index, (unsigned long long)d->epoch, (unsigned long long)s->index,
		 (unsigned long long)s->epoch);
	return false;
}

/* Lends the slot, whose batch is in the buffer: *ret holds a reference until lease_release(). */
static struct lease *attachment_borrow(struct attachment *a, uint32_t slot, uint32_t buffer)
{
	struct lease *lease = &a->leases[slot];

	lease->buffer = buffer;
	atomic_fetch_add(&a->refs, 1);
	atomic_fetch_add(&a->n_held, 1);
	atomic_store(&lease->held, true);
	return lease;
}

/*
 * Takes the ring's next descriptor. Returns 0 with the batch; 1 if the batch could not be made, with the
 * reason in *ret_status and s->error; -EAGAIN if it is from before a seek, and already released. On any other
 * failure the batch was not delivered.
 */
static int session_take(struct diesel_session *s, struct diesel_batch *ret, int *ret_status)
{
	struct attachment *a = s->attachment;
	struct ring_descriptor d = a->control->descriptors[a->consumed & (RING_MAX_SLOTS - 1)];
	struct lease *lease;
	uint8_t *buffer;
	int r = 0;

	if (d.slot >= a->n_slots || d.buffer >= a->n_buffers || d.n_items > a->batch ||
	    d.item_bytes != a->item_bytes || d.n_damaged > a->batch ||
	    (s->request.recipe.damage == RECIPE_DAMAGE_SKIP && d.n_damaged > a->batch - d.n_items)) {
		snprintf(s->error, sizeof(s->error), "dieseld published an invalid batch");
		return -EPROTO;
	}
	if (!ring_take(a->control, d.slot))
		return -ECONNRESET;
	atomic_store_explicit(&a->control->consumed, ++a->consumed, memory_order_relaxed);
	lease = attachment_borrow(a, d.slot, d.buffer);
	buffer = a->buffers + d.buffer * a->layout.slot_bytes;
	if (d.generation != a->generation) {
		lease_release(lease);
		return -EAGAIN;
	}
	struct diesel_batch batch = {.epoch = d.epoch,
				     .index = d.index,
				     .n_items = d.n_items,
				     .item_bytes = d.item_bytes,
				     .labels = (const int64_t *)(buffer + a->layout.labels_offset),
				     .lease = lease,
				     .n_damaged = d.n_damaged};
	if (!is_expected(s, &d)) {
		r = -EPROTO;
	} else if (d.status < 0) {
		snprintf(s->error, sizeof(s->error), "%.*s", (int)sizeof(s->error) - 1, (const char *)buffer);
		*ret_status = d.status;
		batch = (struct diesel_batch){.epoch = d.epoch, .index = d.index};
		r = 1;
	} else {
		batch.packed = d.item_bytes ? buffer + a->layout.payload_offset : NULL;
		batch.items = (const struct diesel_item *)buffer;
		if (a->has_views) {
			struct diesel_item *items = a->items + (size_t)d.slot * a->batch;

			batch.items = items;
			r = fill_views(s, items, (const struct ring_item *)buffer, d.n_items,
				       s->request.recipe.damage == RECIPE_DAMAGE_SKIP ? d.n_damaged : 0);
		}
	}
	if (r != 0)
		lease_release(lease);
	if (r >= 0) { /* else *ret is unchanged: the batch is requested again */
		*ret = batch;
		s->index = d.index + s->request.stride;
	}
	tell_asked(s);
	return r;
}

/* If the daemon is gone or does not answer, the caller gets -EINTR and a notice, and waits in its next call.
 * Any other failure is returned unchanged, and the next call requests the batch again, over another
 * connection. */
static int session_failed(struct diesel_session *s, int r)
{
	if (r != -ECONNRESET && r != -ETIMEDOUT) {
		session_drop(s);
		return r;
	}
	session_lose(s, r);
	return -EINTR;
}

int diesel_session_next(struct diesel_session *s, struct diesel_batch *ret)
{
	if (s->asked && s->index == s->asked_end)
		return 1;
	if (s->index >= s->n_batches) {
		s->epoch++;
		s->index = session_align(s, 0);
		return 1;
	}
	for (;;) {
		int status = 0, r;

		if (!s->attachment) {
			r = session_reattach(s);
			if (r < 0)
				return r;
		}
		if (ring_ready(s->attachment->control, s->attachment->consumed) == 0) {
			r = session_sleep(s);
			if (r == -EINTR)
				return r;
			if (r < 0)
				return session_failed(s, r);
			continue;
		}
		r = session_take(s, ret, &status);
		if (r == -EAGAIN)
			continue;
		if (r < 0)
			return session_failed(s, r);
		return r > 0 ? status : 0;
	}
}

/* Continues at another batch. Afterwards a->generation is that of all later batches. */
static int attachment_seek(struct attachment *a, uint64_t epoch, uint64_t batch, struct error *err)
{
	union wire_message request, reply;
	int r;

	protocol_init(&request, WIRE_SEEK);
	request.seek.epoch = epoch;
	request.seek.batch = batch;
	r = transport_call(&a->transport, &request, NULL, WIRE_SEEK_REPLY, &reply, NULL, err);
	if (r < 0)
		return r;
	if (reply.seek_reply.generation != a->generation + 1)
		return transport_refuse(&a->transport, err, "answer to another seek");
	a->generation = reply.seek_reply.generation;
	return 0;
}

int diesel_session_seek(struct diesel_session *s, uint64_t epoch, uint64_t batch)
{
	struct error err = ERROR_INIT;
	int r;

	if (s->asked)
		return -EINVAL;
	s->epoch = epoch;
	s->index = session_align(s, batch);
	if (!s->attachment)
		return 0; /* the position is sent when a daemon is back */
	r = attachment_seek(s->attachment, epoch, s->index, &err);
	if (r == 0)
		return 0;
	(void)session_fail(s, &err, r);
	return session_failed(s, r) == -EINTR ? 0 : r;
}

int diesel_session_ask(struct diesel_session *s, const uint64_t *samples, uint32_t n, uint32_t ahead)
{
	uint32_t n_slots = s->attachment ? s->attachment->n_slots : RING_MIN_SLOTS;
	uint32_t n_held = diesel_session_n_held(s);
	struct asked_numbers *a;

	if (!s->asked || n == 0 || n > s->request.batch)
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++) {
		if (samples[i] >= s->n_samples)
			return -ERANGE;
	}
	if (s->asked_end - s->index + n_held >= n_slots)
		return -EBUSY;
	a = &s->asked[s->asked_end++ % RING_MAX_SLOTS];
	*a = (struct asked_numbers){.n = n, .ahead = ahead};
	memcpy(a->samples, samples, n * sizeof(*samples));
	tell_asked(s);
	return 0;
}
