/* SPDX-License-Identifier: Apache-2.0 */
#include "attachment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/diesel.h"
#include "dataset/subset.h"
#include "lib/cleanup.h"
#include "lib/huge_pages.h"
#include "client/launcher/origin.h"
#include "private_copies.h"

_Static_assert(WIRE_SLOTS_MAX == RING_MAX_SLOTS && DIESEL_SLOTS_MAX == RING_MAX_SLOTS, "one limit");
_Static_assert(DIESEL_BATCH_MAX == WIRE_BATCH_MAX && DIESEL_GROUP_MAX == WIRE_GROUP_BYTES - 1 &&
		   DIESEL_CLUSTER_MAX == WIRE_CLUSTER_BYTES - 1,
	       "one limit");
_Static_assert(sizeof(struct diesel_item) == sizeof(struct ring_item),
	       "batches pass items between the two without conversion");
_Static_assert(offsetof(struct diesel_item, sample) == offsetof(struct ring_item, sample), "as is");
_Static_assert(offsetof(struct diesel_item, label) == offsetof(struct ring_item, label), "as is");

/* Returns true if the file is as long as the reply says: reading beyond its end would be a SIGBUS. The size
 * cannot change: the file is sealed. */
static bool has_bytes(int fd, uint64_t bytes)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (uint64_t)st.st_size >= bytes;
}

int attachment_connect(const char *socket_path, const struct shown *shown, uint64_t version,
		       struct transport *ret, int *ret_snapshot_fd, struct error *err)
{
	struct transport t = TRANSPORT_INIT;
	union wire_message request, reply;
	struct wire_fds fds = {.n = 0};
	int r = transport_connect(socket_path, &t, err);

	if (r == 0)
		r = transport_hello(&t, err);
	if (r == 0) {
		protocol_init(&request, WIRE_OPEN_DATASET);
		request.open_dataset.version = version;
		request.open_dataset.flags = shown->channel_fd >= 0 ? WIRE_DATASET_FETCHED : 0;
		r = transport_call(&t, &request, &(struct wire_fds){{shown->dir_fd, shown->snapshot_fd}, 2},
				   WIRE_DATASET_REPLY, &reply, &fds, err);
	}
	if (r == 0 && version && reply.dataset_reply.version != version)
		r = transport_refuse(&t, err, "answer for another version of the dataset");
	if (r == 0 && !has_bytes(fds.fd[0], reply.dataset_reply.snapshot_bytes))
		r = transport_refuse(&t, err, "the snapshot is shorter than its header states");
	if (r < 0) {
		wire_fds_close(&fds);
		transport_close(&t);
		return r;
	}
	*ret_snapshot_fd = fds.fd[0];
	*ret = t;
	return 0;
}

static int map_shared(struct attachment *a, const union wire_message *reply, const struct wire_fds *fds,
		      struct error *err)
{
	unsigned long long bytes = a->n_buffers * a->layout.slot_bytes;
	void *p;

	if (!has_bytes(fds->fd[0], sizeof(*a->control)) || !has_bytes(fds->fd[1], bytes))
		return error_set(err, -EPROTO, "dieseld sent less batch memory than it announced");
	p = mmap(NULL, sizeof(*a->control), PROT_READ | PROT_WRITE, MAP_SHARED, fds->fd[0], 0);
	if (p == MAP_FAILED)
		return error_errno(err, -errno, "cannot map the session's control memory");
	a->control = p;
	/* Private: the holder of a batch may change it in place; the daemon and other holders never see it.
	 */
	p = huge_map(fds->fd[1], bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE);
	if (p == MAP_FAILED)
		return error_errno(err, -errno, "cannot map the session's batch memory (%llu bytes)", bytes);
	a->buffers = p;
	a->batch_buffers_fd = fcntl(fds->fd[1], F_DUPFD_CLOEXEC, 3);
	if (a->batch_buffers_fd < 0)
		return error_errno(err, -errno,
				   "cannot duplicate the descriptor of the session's batch memory");
	if (a->control->magic != RING_MAGIC || reply->session_reply.slot_bytes != a->layout.slot_bytes)
		return error_set(
		    err, -EPROTO,
		    "dieseld uses a different memory layout: install the same version of client and daemon");
	return 0;
}

static int adopt_reply(struct attachment *a, const union wire_message *reply, const struct wire_fds *fds,
		       struct error *err)
{
	const struct wire_session_reply *m = &reply->session_reply;

	if (m->n_slots > RING_MAX_SLOTS || m->n_buffers > RING_MAX_FRAMES)
		return error_set(
		    err, -EPROTO,
		    "dieseld offers %u slots and %u batch buffers, more than the limits of %u and %u",
		    m->n_slots, m->n_buffers, RING_MAX_SLOTS, RING_MAX_FRAMES);
	a->n_slots = m->n_slots;
	a->n_buffers = m->n_buffers;
	a->batch = m->batch;
	a->item_bytes = m->item_bytes;
	a->window_chunks = m->window_chunks;
	a->fits = m->fits;
	a->n_batches = m->n_batches;
	a->layout = ring_layout(m->batch, m->item_bytes);
	memcpy(a->notice, m->notice, sizeof(a->notice));
	for (uint32_t i = 0; i < a->n_slots; i++)
		a->leases[i] = (struct lease){.attachment = a, .slot = i};
	a->has_views = a->has_views || a->item_bytes == 0;
	if (a->has_views) {
		a->items = calloc((size_t)a->n_slots * a->batch + 1, sizeof(*a->items));
		if (!a->items)
			return error_errno(err, -ENOMEM, "cannot open the session");
	}
	return map_shared(a, reply, fds, err);
}

/* Sends the subset in parts. Omits parts without samples. */
static int send_subset(struct attachment *a, const struct subset *subset, struct error *err)
{
	static const uint64_t none[WIRE_SUBSET_WORDS];
	uint64_t n_words = subset_words(subset_n_samples(subset));
	const uint64_t *words = subset_data(subset);

	for (uint64_t first = 0; first < n_words; first += WIRE_SUBSET_WORDS) {
		uint64_t n = n_words - first < WIRE_SUBSET_WORDS ? n_words - first : WIRE_SUBSET_WORDS;
		union wire_message request, reply;
		int r;

		if (memcmp(words + first, none, n * sizeof(*words)) == 0)
			continue;
		protocol_init(&request, WIRE_SUBSET);
		request.subset.part = first / WIRE_SUBSET_WORDS;
		memcpy(request.subset.words, words + first, n * sizeof(*words));
		r = transport_call(&a->transport, &request, NULL, WIRE_SUBSET_REPLY, &reply, NULL, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int tell_origin(struct attachment *a, struct error *err)
{
	union wire_message request, reply;

	protocol_init(&request, WIRE_ORIGIN);
	if (a->transport.version < 8 || !origin_fill(&request.origin))
		return 0;
	return transport_call(&a->transport, &request, NULL, WIRE_ORIGIN_REPLY, &reply, NULL, err);
}

static int tell_field(struct attachment *a, const char *field, struct error *err)
{
	union wire_message request, reply;

	if (!field[0])
		return 0;
	if (a->transport.version < 8)
		return error_set(err, -EPROTO,
				 "this dieseld cannot decode fields: upgrade it (apt install diesel), or "
				 "leave the transforms to Python (decode=Decode(native=False))");
	a->has_views = true;
	protocol_init(&request, WIRE_FIELD);
	snprintf(request.field.name, sizeof(request.field.name), "%s", field);
	return transport_call(&a->transport, &request, NULL, WIRE_FIELD_REPLY, &reply, NULL, err);
}

int attachment_open(const char *socket_path, const struct shown *shown, uint64_t version,
		    const struct attachment_request *asked, struct attachment **ret, struct error *err)
{
	union wire_message message, reply;
	struct wire_fds fds = {.n = 0};
	struct attachment *a = calloc(1, sizeof(*a));
	int copy_fd = -EBADF;
	int r;

	if (!a)
		return error_errno(err, -ENOMEM, "cannot open the session");
	a->refs = 1;
	a->owner = getpid();
	a->batch_buffers_fd = -EBADF;
	a->transport = (struct transport)TRANSPORT_INIT;
	r = attachment_connect(socket_path, shown, version, &a->transport, &copy_fd, err);
	closep(&copy_fd); /* the dataset object has a descriptor of its own */
	if (r == 0 && asked->subset)
		r = send_subset(a, asked->subset, err);
	if (r == 0)
		r = tell_origin(a, err);
	if (r == 0)
		r = tell_field(a, asked->field, err);
	if (r == 0) {
		message.open_session = *asked->session;
		r = transport_call(&a->transport, &message, NULL, WIRE_SESSION_REPLY, &reply, &fds, err);
	}
	if (r == 0) {
		r = adopt_reply(a, &reply, &fds, err);
		wire_fds_close(&fds);
	}
	if (r < 0) {
		attachment_unref(a);
		return r;
	}
	*ret = a;
	return 0;
}

static void unmap_all(struct attachment *a)
{
	segment_table_free(&a->segments);
	if (a->control)
		munmap(a->control, sizeof(*a->control));
	if (a->buffers)
		munmap(a->buffers, a->n_buffers * a->layout.slot_bytes);
	a->control = NULL;
	a->buffers = NULL;
}

void attachment_unref(struct attachment *a)
{
	if (!a || atomic_fetch_sub(&a->refs, 1) > 1)
		return;
	/* A forked process also holds the socket, so without shutdown() the daemon would not see the
	 * connection end. */
	if (a->transport.fd >= 0 && a->owner == getpid())
		shutdown(a->transport.fd, SHUT_RDWR);
	unmap_all(a);
	closep(&a->batch_buffers_fd);
	transport_close(&a->transport);
	free(a->items);
	free(a);
}

void attachment_forget(struct attachment *a)
{
	closep(&a->batch_buffers_fd);
	a->batch_buffers_fd = -EBADF;
	transport_close(&a->transport);
	if (atomic_load(&a->n_held) == 0)
		unmap_all(a);
}

int attachment_segment_fd(struct attachment *a, uint32_t segment, int *ret_fd, uint64_t *ret_bytes,
			  struct error *err)
{
	union wire_message request, reply;
	struct wire_fds fds;
	int r;

	protocol_init(&request, WIRE_SEGMENT);
	request.segment.segment = segment;
	r = transport_call(&a->transport, &request, NULL, WIRE_SEGMENT_REPLY, &reply, &fds, err);
	if (r < 0)
		return r;
	if (reply.segment.segment != segment || !has_bytes(fds.fd[0], reply.segment.bytes)) {
		wire_fds_close(&fds);
		return transport_refuse(&a->transport, err, "answer for another chunk segment");
	}
	*ret_fd = fds.fd[0];
	*ret_bytes = reply.segment.bytes;
	return 0;
}

void attachment_kick(struct attachment *a, uint32_t ready)
{
	union wire_message message;

	if (!ring_wants_kick(a->control, ready))
		return;
	protocol_init(&message, WIRE_KICK);
	/* A failure means that the daemon is gone; the next wait detects this. */
	(void)transport_send(a->transport.fd, &message, NULL, 0);
}

void lease_release(struct lease *lease)
{
	struct attachment *a;
	uint8_t *buffer;

	if (!lease || !atomic_exchange(&lease->held, false))
		return;
	a = lease->attachment;
	/* Without this, the buffer's next batch would show the holder's writes. */
	buffer = a->buffers + lease->buffer * a->layout.slot_bytes;
	private_copies_drop(buffer, a->layout.slot_bytes);
	ring_release(a->control, lease->slot);
	atomic_fetch_sub(&a->n_held, 1);
	attachment_kick(a, ring_ready(a->control, atomic_load(&a->control->consumed)));
	attachment_unref(a);
}
