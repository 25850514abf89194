/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a chunk in memory, whatever its source, with the snapshot's record of it. Runs on a worker
 * thread. */
#include "source.h"

#include <errno.h>
#include <string.h>

#include "dataset/chunk.h"
#include "lib/fd_io.h"
#include "lib/list.h"

/* Returns true if the whole file was verified, not only its head and samples, and no part of it is in use at
 * the destination. */
static bool is_handed_over_whole(const struct chunk_load *l)
{
	return l->meta.has_sha256 && !l->into;
}

/* Copies verified bytes to the segment that clients may map. If a part of the chunk is in use there, it stays
 * unchanged. */
static void hand_over(const struct chunk_load *l, uint64_t offset, uint64_t bytes, bool has)
{
	if (l->mapped && !has)
		memcpy(l->mapped->memory.data + offset, l->segment->memory.data + offset, bytes);
}

/* Returns true if a sample agrees with its record in the head, which the snapshot's chunk table vouches for.
 * The snapshot's own records were not verified at open if there are many. */
static bool agrees(const struct chunk_load *l, const struct chunk_record *record, const char *names,
		   const struct snapshot_sample *s)
{
	return record->offset == s->offset && record->stored_bytes == s->stored_bytes &&
	       record->bytes == s->bytes && record->xxh3 == s->xxh3 &&
	       snapshot_class_fits(l->dataset->snapshot, s->class_index, names + record->name_offset,
				   record->name_length);
}

/* Clears bytes of a part that were read but not verified. */
static void wipe(const struct chunk_load *l, uint64_t from, uint64_t to)
{
	uint8_t *data = l->segment->memory.data;
	uint64_t first = (from + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN, last = to - to % CHUNK_ALIGN;

	if (!l->part || from >= to)
		return;
	if (first >= last) {
		memset(data + from, 0, to - from);
		return;
	}
	memset(data + from, 0, first - from);
	shared_memory_punch(&l->segment->memory, first, last - first);
	memset(data + last, 0, to - last);
}

static int verify_samples(struct chunk_load *l, const struct chunk_view *view)
{
	const uint64_t *part =
	    l->dataset->chunks[l->chunk].part; /* samples that `into` has; stays valid while we read */
	uint64_t end = view->header->payload_offset;
	int64_t last = -1;

	for (uint64_t i = 0; i < l->meta.n_samples; i++) {
		struct snapshot_sample s;
		const struct chunk_record *record;
		unsigned long long number = l->meta.first_sample + i;
		int r;

		if (!cached_part_has(l->part, i))
			continue;
		r = snapshot_sample_get(l->dataset->snapshot, number, &s);

		/* Records must be in the chunk's order, so that none is verified twice. */
		if (r < 0 || s.record >= view->header->n_records || s.record <= last)
			return error_set(
			    &l->error, -EBADMSG,
			    "%s: the chunk has no record for sample %llu: run `dieselctl verify`",
			    l->read.order.origin, number);
		last = s.record;
		record = &view->records[s.record];
		if (!agrees(l, record, view->names, &s))
			return error_set(&l->error, -EBADMSG,
					 "%s: sample %.*s differs from the snapshot: run `dieselctl verify`",
					 l->read.order.origin, (int)record->name_length,
					 view->names + record->name_offset);
		r = chunk_verify_record(view, s.record, l->segment->memory.data + s.offset,
					l->read.order.origin, &l->error);
		if (r < 0)
			return r;
		wipe(l, end, s.offset);
		end = s.offset + s.stored_bytes > end ? s.offset + s.stored_bytes : end;
		hand_over(l, s.offset, s.stored_bytes,
			  is_handed_over_whole(l) || (l->into && cached_part_has(part, i)));
	}
	wipe(l, end, l->segment->memory.bytes);
	return 0;
}

/* Runs before anything is handed over: the chunk's own checksums protect against accidents only. */
static int verify_digest(struct chunk_load *l)
{
	const struct iovec file = {l->segment->memory.data, l->meta.file_bytes};
	struct digest found;
	int r = l->meta.has_sha256 ? digest_of(&file, 1, &found) : 0;

	if (r < 0)
		return error_errno(&l->error, r, "%s: cannot compute its SHA-256", l->read.order.origin);
	if (l->meta.has_sha256 && !digest_equal(&found, &l->meta.sha256))
		return error_set(&l->error, -EBADMSG,
				 "%s is not the file that was packed (its SHA-256 differs from the "
				 "snapshot's): restore the file",
				 l->read.order.origin);
	return 0;
}

/* Copies first, as from a file, and verifies the copy: the source memory may change at any time. */
static int copy_memory(struct chunk_load *l)
{
	size_t done;

	if (!l->copy.source || !l->copy.source->memory)
		return 0;
	if (fd_read_at(l->copy.source->memory(l), l->segment->memory.data, l->meta.file_bytes, 0, &done) <
		0 ||
	    done < l->meta.file_bytes)
		return error_set(&l->error, -EBADMSG, "%s: cannot read the chunk's copy in memory",
				 l->read.order.origin);
	return 0;
}

void load_verify_work(struct pool_task *task)
{
	struct chunk_load *l = container_of(task, struct chunk_load, verify);
	struct chunk_view view;
	int r = copy_memory(l);

	if (r == 0)
		r = chunk_parse_plain(l->segment->memory.data, l->meta.file_bytes, l->read.order.origin,
				      &view, &l->error);
	if (r == 0 && (memcmp(&view.header->id, &l->meta.id, sizeof(l->meta.id)) != 0 ||
		       view.header->head_xxh3 != l->meta.head_xxh3))
		r = error_set(&l->error, -EBADMSG,
			      "%s is not the chunk that the snapshot describes: run `dieselctl verify`",
			      l->read.order.origin);
	if (r == 0)
		r = verify_digest(l);
	/* Includes the bytes between samples, because copies of that memory are compared with the digest
	 * again. */
	if (r == 0)
		hand_over(l, 0, is_handed_over_whole(l) ? l->meta.file_bytes : view.header->payload_offset,
			  l->into != NULL);
	l->result = r < 0 ? r : verify_samples(l, &view);
}
