/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that worker processes map, which is segments, the slots of a session, and results. Also memory from
 * which a device reads. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/ring.h"
#include "client/share.h"
#include "client/session.h"
#include "lib/file_open.h"

#define N_SLOTS 3u
#define BATCH   4u
#define ITEM    100u

static int memory_of(const void *data, size_t bytes, off_t at, size_t whole)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)whole), 0);
	assert_int_equal(pwrite(fd, data, bytes, at), bytes);
	return fd;
}

TEST(packed_batches_read_as_written)
{
	const struct diesel_memory memory = {
	    .life = 1, .n_buffers = N_SLOTS, .batch = BATCH, .item_bytes = ITEM};
	struct ring_layout layout = ring_layout(BATCH, ITEM);
	uint8_t payload[BATCH * ITEM], read_back;
	struct diesel_mirror *mirror = NULL;
	struct diesel_batch batch;
	int fd, small;

	memset(payload, 5, sizeof(payload));
	fd = memory_of(payload, sizeof(payload), (off_t)(2 * layout.slot_bytes + layout.payload_offset),
		       N_SLOTS * layout.slot_bytes);
	assert_int_equal(diesel_mirror_open(&memory, fd, &mirror), 0);
	assert_int_equal(diesel_mirror_batch(mirror, N_SLOTS, 1, &batch), -EPROTO);
	assert_int_equal(diesel_mirror_batch(mirror, 2, BATCH + 1, &batch), -EPROTO);
	assert_int_equal(diesel_mirror_batch(mirror, 2, BATCH, &batch), 0);
	assert_memory_equal(batch.packed, payload, sizeof(payload));
	/* A worker's writes are private, and gone after the release. */
	batch.packed[0] = 9;
	assert_int_equal(pread(fd, &read_back, 1, (off_t)(2 * layout.slot_bytes + layout.payload_offset)), 1);
	assert_int_equal(read_back, 5);
	diesel_mirror_release(mirror, 2);
	assert_int_equal(batch.packed[0], 5);
	diesel_mirror_release(mirror, N_SLOTS);
	diesel_mirror_close(mirror);
	close(fd);

	small = memory_of(payload, 1, 0, N_SLOTS * layout.slot_bytes - 1);
	assert_int_equal(diesel_mirror_open(&memory, small, &mirror), -EPROTO);
	close(small);
}

/* A device reads the daemon's latest write. It sees neither the writes of an earlier batch's holder nor old
 * pages of the private mapping. */
TEST(a_device_reads_what_the_daemon_wrote_last)
{
	struct ring_layout layout = ring_layout(BATCH, ITEM);
	size_t bytes = N_SLOTS * layout.slot_bytes;
	off_t at = (off_t)(layout.slot_bytes + layout.payload_offset);
	int fd = memory_of("first", 5, at, bytes), reader;
	struct attachment a = {.n_slots = N_SLOTS, .n_buffers = N_SLOTS, .layout = layout, .life = 7};
	struct diesel_session session = {.attachment = NULL};
	struct diesel_pinnable pinnable;
	char path[FD_PATH_BYTES];

	assert_int_equal(diesel_session_map_pinnable(&session, &pinnable), -ENOTCONN);
	fd_path(fd, path);
	reader = open(path, O_RDONLY | O_CLOEXEC); /* as the daemon hands it out */
	assert_true(reader >= 0);
	a.buffers = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0);
	assert_ptr_not_equal(a.buffers, MAP_FAILED);
	a.batch_buffers_fd = reader;
	session.attachment = &a;
	assert_int_equal(diesel_session_map_pinnable(&session, &pinnable), 0);
	assert_int_equal(pinnable.life, 7);
	assert_int_equal(pinnable.bytes, bytes);
	assert_ptr_equal(pinnable.buffers, a.buffers);
	assert_memory_equal(pinnable.data + at, "first", 5);
	a.buffers[at] = 'F';
	assert_memory_equal(pinnable.data + at, "first", 5);
	assert_int_equal(pwrite(fd, "later", 5, at), 5);
	assert_memory_equal(pinnable.data + at, "later", 5);
	assert_memory_equal(a.buffers + at, "First", 5);
	/* The device's mapping stays when the session's own mapping goes. */
	munmap(a.buffers, bytes);
	close(reader);
	assert_memory_equal(pinnable.data + at, "later", 5);
	diesel_pinnable_unmap(pinnable.data, pinnable.bytes);
	diesel_pinnable_unmap(NULL, 0);
	a.batch_buffers_fd = -EBADF;
	assert_int_equal(diesel_session_map_pinnable(&session, &pinnable), -EBADF);
	close(fd);
}

TEST(views_lead_to_their_segments)
{
	const struct diesel_memory memory = {.life = 1, .n_buffers = 1, .batch = BATCH, .has_views = 1};
	const struct diesel_memory of_field = {
	    .life = 1, .n_buffers = 1, .batch = BATCH, .item_bytes = ITEM, .has_views = 1};
	const uint32_t segment = 70, newer = 70 | 1u << 20; /* the same index, used again */
	struct ring_item items[2] = {{.location = (uint64_t)segment << 32 | 10, .bytes = 6, .sample = 3},
				     {.location = (uint64_t)segment << 32 | 0, .bytes = 16, .label = -1}};
	struct diesel_mirror *mirror = NULL;
	struct diesel_batch batch;
	int slots = memory_of(items, sizeof(items), 0, ring_layout(BATCH, 0).slot_bytes);
	int data = memory_of("0123456789abcdef", 16, 0, 16);

	assert_int_equal(diesel_mirror_open(&memory, slots, &mirror), 0);
	assert_int_equal(diesel_mirror_batch(mirror, 0, 2, &batch), -EPROTO); /* not known yet */
	assert_int_equal(diesel_mirror_segment(mirror, segment, data, 16), 0);
	assert_int_equal(diesel_mirror_batch(mirror, 0, 2, &batch), 0);
	assert_null(batch.packed);
	assert_memory_equal(batch.items[0].data, "abcdef", 6);
	assert_int_equal(batch.items[0].sample, 3);
	assert_int_equal(batch.items[1].label, -1);
	/* An item must lie within its segment. */
	items[0].bytes = 7;
	assert_int_equal(pwrite(slots, items, sizeof(items), 0), sizeof(items));
	assert_int_equal(diesel_mirror_batch(mirror, 0, 2, &batch), -EPROTO);
	items[0].bytes = 6;
	assert_int_equal(pwrite(slots, items, sizeof(items), 0), sizeof(items));
	assert_int_equal(diesel_mirror_segment(mirror, newer, data, 16), 0);
	assert_int_equal(diesel_mirror_batch(mirror, 0, 2, &batch), -EPROTO); /* the older segment is gone */
	diesel_mirror_close(mirror);
	close(slots);

	/* A batch of a decoded field is packed, and has views of the samples, too. */
	slots = memory_of(items, sizeof(items), 0, ring_layout(BATCH, ITEM).slot_bytes);
	assert_int_equal(diesel_mirror_open(&of_field, slots, &mirror), 0);
	assert_int_equal(diesel_mirror_segment(mirror, segment, data, 16), 0);
	assert_int_equal(diesel_mirror_batch(mirror, 0, 2, &batch), 0);
	assert_ptr_equal(batch.packed, (const uint8_t *)batch.labels +
					   ring_layout(BATCH, ITEM).payload_offset -
					   ring_layout(BATCH, ITEM).labels_offset);
	assert_memory_equal(batch.items[0].data, "abcdef", 6);
	diesel_mirror_close(mirror);
	close(slots);
	close(data);
}

TEST(results_have_a_least_and_a_right_size)
{
	uint8_t *writer = NULL, *reader = NULL;
	int fd = -1;

	assert_int_equal(diesel_result_new(DIESEL_RESULT_HEADER - 1, &writer, &fd), -EINVAL);
	assert_int_equal(diesel_result_new(8192, &writer, &fd), 0);
	assert_int_equal(diesel_result_map(fd, 8193, &reader), -EPROTO);
	assert_int_equal(diesel_result_map(fd, 8192, &reader), 0);
	close(fd);
	assert_false(diesel_result_is_free(writer));
	writer[DIESEL_RESULT_HEADER] = 77;
	assert_int_equal(reader[DIESEL_RESULT_HEADER], 77);
	diesel_result_free(reader);
	assert_true(diesel_result_is_free(writer));
	diesel_result_borrow(writer);
	assert_false(diesel_result_is_free(reader));
	diesel_result_unmap(writer, 8192);
	diesel_result_unmap(reader, 8192);
	diesel_result_unmap(NULL, 8192);
}
