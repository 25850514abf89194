/* SPDX-License-Identifier: Apache-2.0 */
#include "resident_reader.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client/attachment.h"
#include "client/dataset.h"
#include "client/residents.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/copy_ahead.h"
#include "lib/huge_pages.h"

#define RETRY_NS  NS_PER_S        /* time without another try after the daemon was not reached */
#define CHECK_NS  (NS_PER_S / 10) /* how late a lost daemon is noticed, whose memory is held until then */
#define N_AT_ONCE 64              /* samples that are copied before their entries are compared */
/* Maximum number of mappings, a quarter of those that the kernel allows a process. */
#define MAPS_MAX 16384

/* A chunk's memory during one stay. */
struct resident_map {
	uint64_t entry; /* the table's entry during this stay; 0: none was tried */
	uint8_t *data;  /* NULL: not mapped */
	uint64_t bytes;
};

struct resident_reader {
	pthread_rwlock_t
	    lock; /* held for reading while mappings are read, for writing to change the fields below */
	struct transport transport;
	const resident_entry *entries; /* NULL: not connected */
	resident_use *uses;            /* [n_chunks] */
	struct resident_map *maps;     /* [n_chunks] */
	uint64_t n_chunks;
	uint32_t n_maps; /* number of mapped chunks */
	uint64_t retry_ns;
	_Atomic uint64_t checked_ns;
};

int resident_reader_new(struct resident_reader **ret)
{
	struct resident_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	pthread_rwlock_init(&r->lock, NULL);
	r->transport = (struct transport)TRANSPORT_INIT;
	*ret = r;
	return 0;
}

static void unmap(struct resident_reader *r, struct resident_map *map)
{
	if (map->data) {
		munmap(map->data, map->bytes);
		r->n_maps--;
	}
	*map = (struct resident_map){0};
}

/* Unmaps chunks whose stay has ended. */
static void unmap_left(struct resident_reader *r)
{
	for (uint64_t i = 0; i < r->n_chunks; i++)
		if (r->maps[i].entry != residents_look(&r->entries[i]))
			unmap(r, &r->maps[i]);
}

static void disconnect(struct resident_reader *r)
{
	for (uint64_t i = 0; r->maps && i < r->n_chunks; i++)
		unmap(r, &r->maps[i]);
	free(r->maps);
	r->maps = NULL;
	if (r->entries)
		munmap((void *)(uintptr_t)r->entries, r->n_chunks * sizeof(*r->entries));
	r->entries = NULL;
	if (r->uses)
		munmap(r->uses, r->n_chunks);
	r->uses = NULL;
	transport_close(&r->transport);
	r->transport = (struct transport)TRANSPORT_INIT;
}

void resident_reader_free(struct resident_reader *r)
{
	if (!r)
		return;
	disconnect(r);
	pthread_rwlock_destroy(&r->lock);
	free(r);
}

static bool has_bytes(int fd, uint64_t bytes)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (uint64_t)st.st_size >= bytes;
}

static int map_table(struct resident_reader *r, uint64_t n_chunks)
{
	union wire_message request, reply;
	struct wire_fds fds;
	void *p = MAP_FAILED, *uses = MAP_FAILED;
	int e;

	if (r->transport.version < 8)
		return -EPROTO;
	protocol_init(&request, WIRE_RESIDENTS);
	e = transport_call(&r->transport, &request, NULL, WIRE_RESIDENTS_REPLY, &reply, &fds, NULL);
	if (e < 0)
		return e;
	if (reply.residents_reply.n_chunks == n_chunks &&
	    has_bytes(fds.fd[0], n_chunks * sizeof(*r->entries)) && has_bytes(fds.fd[1], n_chunks)) {
		p = mmap(NULL, n_chunks * sizeof(*r->entries), PROT_READ, MAP_SHARED, fds.fd[0], 0);
		uses = mmap(NULL, n_chunks, PROT_READ | PROT_WRITE, MAP_SHARED, fds.fd[1], 0);
	}
	wire_fds_close(&fds);
	r->entries = p == MAP_FAILED ? NULL : p;
	r->uses = uses == MAP_FAILED ? NULL : uses;
	r->n_chunks = n_chunks;
	if (!r->entries || !r->uses)
		return -ENOMEM;
	r->maps = calloc(n_chunks, sizeof(*r->maps));
	return r->maps ? 0 : -ENOMEM;
}

/* Call with the lock held for writing. */
static void connect_now(struct resident_reader *r, const struct diesel_dataset *d)
{
	const struct snapshot_info *info = snapshot_info(d->snapshot);
	int copy_fd = -EBADF, e;

	if (r->entries || clock_monotonic_ns() < r->retry_ns || info->n_chunks == 0)
		return;
	e = attachment_connect(d->socket_path, &d->shown, info->version, &r->transport, &copy_fd, NULL);
	closep(&copy_fd);
	if (e == 0)
		e = map_table(r, info->n_chunks);
	if (e < 0) {
		disconnect(r);
		r->retry_ns = clock_monotonic_ns() + RETRY_NS;
	}
	atomic_store(&r->checked_ns, clock_monotonic_ns());
}

/* Returns true if the daemon is gone. It sends nothing unasked on this connection. */
static bool is_lost(struct resident_reader *r)
{
	struct pollfd p = {.fd = r->transport.fd, .events = POLLIN | POLLRDHUP};
	uint64_t now_ns = clock_monotonic_ns();

	if (r->transport.broken)
		return true;
	if (now_ns < atomic_load(&r->checked_ns) + CHECK_NS)
		return false;
	atomic_store(&r->checked_ns, now_ns);
	return poll(&p, 1, 0) > 0 && p.revents != 0;
}

/* Locks for reading. Returns false if there is no daemon; then nothing is locked. */
static bool begin(struct resident_reader *r, const struct diesel_dataset *d)
{
	const resident_entry *lost;

	pthread_rwlock_rdlock(&r->lock);
	if (r->entries && !is_lost(r))
		return true;
	lost = r->entries;
	pthread_rwlock_unlock(&r->lock);
	pthread_rwlock_wrlock(&r->lock);
	if (r->entries == lost) /* else another thread has connected again */
		disconnect(r);
	connect_now(r, d);
	pthread_rwlock_unlock(&r->lock);
	pthread_rwlock_rdlock(&r->lock);
	if (r->entries)
		return true;
	pthread_rwlock_unlock(&r->lock);
	return false;
}

/* Maps a chunk's memory, unless it has left meanwhile. Call with the lock held for writing. */
static void map_chunk(struct resident_reader *r, uint32_t chunk)
{
	uint64_t entry = residents_look(&r->entries[chunk]);
	struct resident_map *map = &r->maps[chunk];
	union wire_message request, reply;
	struct wire_fds fds;
	void *p = MAP_FAILED;

	if (!entry || map->entry == entry)
		return;
	unmap(r, map);
	if (r->n_maps >= MAPS_MAX)
		unmap_left(r);
	map->entry = entry; /* if it fails, it is not tried again during this stay */
	if (r->n_maps >= MAPS_MAX)
		return;
	protocol_init(&request, WIRE_SEGMENT);
	request.segment.segment = resident_segment(entry);
	if (transport_call(&r->transport, &request, NULL, WIRE_SEGMENT_REPLY, &reply, &fds, NULL) < 0)
		return;
	/* The id is that of this stay's memory only if the stay has not ended. */
	if (residents_again(&r->entries[chunk]) == entry && has_bytes(fds.fd[0], reply.segment.bytes))
		p = huge_map(fds.fd[0], reply.segment.bytes, PROT_READ, MAP_SHARED);
	wire_fds_close(&fds);
	if (p == MAP_FAILED)
		return;
	map->data = p;
	map->bytes = reply.segment.bytes;
	r->n_maps++;
}

/* Returns the sample in this process's memory; NULL: its chunk is not mapped or not in memory. Sets
 * *ret_entry to what the table has. */
static const uint8_t *sample_at(const struct resident_reader *r, const struct snapshot_sample *s,
				uint64_t *ret_entry)
{
	const struct resident_map *map = &r->maps[s->chunk];

	*ret_entry = residents_look(&r->entries[s->chunk]);
	return *ret_entry && map->data && map->entry == *ret_entry && s->encoding == CHUNK_ENCODING_RAW &&
		       s->offset <= map->bytes && s->bytes <= map->bytes - s->offset
		   ? map->data + s->offset
		   : NULL;
}

/* Maps the chunks of these samples that are in memory. Call with the lock held for reading, and so returns;
 * false: the daemon is lost, and nothing is locked. */
static bool map_missing(struct resident_reader *r, const struct diesel_dataset *d,
			const struct snapshot_sample *found, uint32_t n)
{
	bool is_missing = false;

	for (uint32_t i = 0; i < n && !is_missing; i++) {
		const struct resident_map *map = &r->maps[found[i].chunk];
		uint64_t entry = residents_look(&r->entries[found[i].chunk]);

		is_missing = entry && map->entry != entry;
	}
	if (!is_missing)
		return true;
	pthread_rwlock_unlock(&r->lock);
	pthread_rwlock_wrlock(&r->lock);
	for (uint32_t i = 0; i < n && r->entries; i++)
		map_chunk(r, found[i].chunk);
	pthread_rwlock_unlock(&r->lock);
	return begin(r, d);
}

/* Call with the lock held for reading. */
static uint32_t copy_some(const struct resident_reader *r, const struct snapshot_sample *found,
			  void *const *buffers, uint32_t n, bool *done)
{
	const uint8_t *from[N_AT_ONCE];
	uint64_t entries[N_AT_ONCE];
	uint32_t n_done = 0;

	for (uint32_t i = 0; i < n; i++)
		from[i] = sample_at(r, &found[i], &entries[i]);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t next = i + copy_ahead_distance(found[i].bytes);

		if (from[i] && found[i].bytes > 0)
			copy_ahead(buffers[i], from[i], found[i].bytes,
				   next < n && from[next] ? from[next] : from[i]);
	}
	for (uint32_t i = 0; i < n; i++) {
		done[i] = from[i] && residents_again(&r->entries[found[i].chunk]) == entries[i];
		if (done[i])
			residents_use(&r->uses[found[i].chunk]);
		n_done += done[i];
	}
	return n_done;
}

uint32_t resident_reader_copy(struct resident_reader *r, struct diesel_dataset *d,
			      const struct snapshot_sample *found, void *const *buffers, uint32_t n,
			      bool *done)
{
	uint32_t n_done = 0, n_now;

	for (uint32_t i = 0; i < n; i++)
		done[i] = false;
	for (uint32_t i = 0; i < n; i += n_now) {
		n_now = n - i < N_AT_ONCE ? n - i : N_AT_ONCE;
		if (!begin(r, d))
			break;
		if (!map_missing(r, d, found + i, n_now))
			break;
		n_done += copy_some(r, found + i, buffers + i, n_now, done + i);
		pthread_rwlock_unlock(&r->lock);
	}
	return n_done;
}
