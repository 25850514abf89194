/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader's side of reader.h: opens and checks the chunks of one dataset, and reads them in pieces in
 * parallel. If this process blocks, nothing else does.
 *
 * A piece is read into a reusable buffer of this process, and written to the segment from there. Reading into
 * new shared memory directly takes twice the CPU time: the kernel zeroes each page, maps it here for the
 * read, and unmaps it again. A piece is a huge page of the segment where there is one. Threads write, so that
 * reads continue at the same time. Pieces of compressed chunks are read into memory that the processes that
 * decompress them can see, too (unpack.h).
 */
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/blocks.h"
#include "daemon/storage/io.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "daemon/helpers/helper.h"
#include "daemon/helpers/message.h"
#include "lib/huge_pages.h"
#include "lib/clock.h"
#include "lib/container_of.h"
#include "lib/kernel_calls.h"
#include "lib/sandbox.h"
#include "daemon/storage/shared_memory.h"
#include "daemon/sandboxed/work/unpack.h"

#define IO_DEPTH 32
/* Threads that write: libuv's default number. */
#define N_THREADS 4
/* CPU time limit of decompressing a run. A megabyte of zeros takes a thousandth of this. */
#define UNPACK_CPU_NS (5 * NS_PER_S)
/* Bytes written to the segment at one time. */
#define PIECE_BYTES ((uint32_t)HUGE_PAGE_BYTES)
/* Reads in flight: enough to keep a disk busy. The other pieces are being written to the segment at that
 * time. Reads that begin together end together, so without spare pieces storage would idle until the first
 * is written. */
#define MAX_READS 8
#define N_PIECES  (READER_OWN_BYTES / PIECE_BYTES)

struct read_request;

struct chunk {
	struct read_request *reading;
	struct reader_order order;
	struct reader_report report;
	int folder_fd, memory_fd, fd;
	uint32_t range; /* index of the range that is being read */
	uint64_t at;    /* file offset of the next piece */
	uint32_t n_pending;
	struct chunk *next; /* next in the list of chunks that have pieces left to read */
	struct io_op open;
	/* Only for a compressed chunk. */
	uint64_t file_bytes;
	uint8_t *head;
	struct io_op head_read;
	struct chunk_blocks blocks;
	uint32_t block; /* first block of the next piece; starts at `at` */
};

/* A buffer and the read into it. */
struct read_piece {
	struct io_op op;
	uv_work_t work;
	struct read_request *reading;
	struct chunk *chunk;
	struct read_piece *next_free;
	uint8_t *buffer;
	bool is_shown;   /* the buffer is in memory that the processes that decompress can see */
	uint64_t offset; /* offset in the chunk's file */
	uint32_t bytes;
	uint32_t block, n_blocks; /* compressed chunk: the blocks that the piece contains */
	uint32_t skip;            /* offset of these blocks in the piece */
	uint64_t cpu_ns;          /* CPU time used to decompress the blocks */
	int result;               /* result of writing the piece to the segment */
};

struct read_request {
	int fd;
	uint32_t uid; /* user for whom this process reads */
	uv_loop_t loop;
	uv_poll_t poll;
	struct io *io;
	struct read_piece pieces[N_PIECES], *free_pieces;
	struct shared_memory shown; /* buffers of the pieces, from the first compressed chunk on */
	struct unpackers *unpackers;
	uint32_t n_reads; /* reads in flight */
	struct chunk *first, **last;
};

/* Reports the result and frees the chunk. There are never more reports than orders, so send() blocks only
 * while the daemon is stopped. */
static void chunk_report(struct chunk *c)
{
	ssize_t n;

	closep(&c->memory_fd);
	closep(&c->folder_fd);
	closep(&c->fd);
	free(c->head);
	do
		n = send(c->reading->fd, &c->report, sizeof(c->report), MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	free(c);
}

/* Returns true if all reads of the chunk have been issued. */
static bool is_asked_for(const struct chunk *c)
{
	return c->order.is_compressed ? c->block == c->blocks.n : c->range == c->order.n_ranges;
}

/* Advances by `bytes`, and moves to the next range at the end of this one. */
static void advance(struct chunk *c, uint32_t bytes)
{
	const struct reader_range *r = &c->order.ranges[c->range];

	c->at += bytes;
	if (c->at == r->offset + r->bytes && ++c->range < c->order.n_ranges)
		c->at = c->order.ranges[c->range].offset;
}

/* Returns true if any part of the block lies in a range. */
static bool is_block_wanted(const struct chunk *c, uint32_t block)
{
	uint64_t begin = c->blocks.payload_offset + (uint64_t)block * c->blocks.block_bytes,
		 end = begin + chunk_block_plain(&c->blocks, block);

	for (uint32_t i = 0; i < c->order.n_ranges; i++) {
		const struct reader_range *r = &c->order.ranges[i];

		if (r->offset < end && begin < r->offset + r->bytes)
			return true;
	}
	return false;
}

static void next_block(struct chunk *c)
{
	c->at += chunk_block_stored(&c->blocks, c->block);
	c->block++;
}

static void skip_blocks(struct chunk *c)
{
	while (c->block < c->blocks.n && !is_block_wanted(c, c->block))
		next_block(c);
}

/* Cuts a piece of as many whole blocks as fit, extended to page boundaries. */
static void cut_blocks(struct read_piece *p, struct chunk *c)
{
	uint64_t begin = c->at - c->at % CHUNK_ALIGN, end = begin;

	p->offset = begin;
	p->skip = (uint32_t)(c->at - begin);
	p->block = c->block;
	while (c->block < c->blocks.n && is_block_wanted(c, c->block)) {
		uint64_t to = c->at + chunk_block_stored(&c->blocks, c->block);

		to = (to + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
		if (to - begin > PIECE_BYTES)
			break;
		end = to;
		next_block(c);
	}
	p->n_blocks = c->block - p->block;
	p->bytes = (uint32_t)(end - begin);
	c->report.read_bytes += p->bytes;
	skip_blocks(c);
}

static void cut_range(struct read_piece *p, struct chunk *c)
{
	const struct reader_range *r = &c->order.ranges[c->range];
	uint64_t left = r->offset + r->bytes - c->at;

	p->offset = c->at;
	p->bytes = (uint32_t)(left < PIECE_BYTES ? left : PIECE_BYTES);
	advance(c, p->bytes);
}

static void read_piece(struct read_piece *p, struct chunk *c)
{
	p->chunk = c;
	if (c->order.is_compressed)
		cut_blocks(p, c);
	else
		cut_range(p, c);
	c->n_pending++;
	if (c->reading->shown.data && !p->is_shown) {
		(void)madvise(p->buffer, PIECE_BYTES, MADV_DONTNEED);
		p->buffer = c->reading->shown.data + (p - c->reading->pieces) * (ptrdiff_t)PIECE_BYTES;
		p->is_shown = true;
	}
	p->op.fd = c->fd;
	p->op.buffer = p->buffer;
	p->op.bytes = p->bytes;
	p->op.offset = p->offset;
	c->reading->n_reads++;
	io_submit(c->reading->io, &p->op);
}

/* Issues as many reads as allowed. A chunk is read to its end before the next one, so that the first is
 * complete early. */
static void read_on(struct read_request *r)
{
	while (r->first && r->free_pieces && r->n_reads < MAX_READS) {
		struct chunk *c = r->first;
		struct read_piece *p = r->free_pieces;

		r->free_pieces = p->next_free;
		read_piece(p, c);
		if (!is_asked_for(c))
			continue;
		r->first = c->next;
		if (!r->first)
			r->last = &r->first;
	}
}

/* Cancels all reads of the chunk that are not issued yet. */
static void give_up(struct chunk *c)
{
	struct read_request *r = c->reading;
	struct chunk **link = &r->first;

	while (*link && *link != c)
		link = &(*link)->next;
	if (*link) {
		*link = c->next;
		if (!*link)
			r->last = link;
	}
	c->range = c->order.n_ranges;
	c->block = c->blocks.n;
}

static void piece_done(struct read_piece *p)
{
	struct chunk *c = p->chunk;
	struct read_request *r = c->reading;

	p->next_free = r->free_pieces;
	r->free_pieces = p;
	if (c->report.result < 0)
		give_up(c);
	if (--c->n_pending == 0 && is_asked_for(c))
		chunk_report(c);
	read_on(r);
}

static bool is_stored_plain(const struct chunk_blocks *b, uint32_t i)
{
	return chunk_block_stored(b, i) == chunk_block_plain(b, i);
}

/* Cuts a run: as many blocks of i..end - 1 as can be decompressed at one time. */
static void cut_run(const struct chunk_blocks *b, uint32_t i, uint32_t end, struct unpack_run *run)
{
	uint32_t space = UNPACK_SPACE_BYTES;

	for (run->n = 0; run->n < UNPACK_MAX_BLOCKS && i < end && !is_stored_plain(b, i); i++) {
		if (chunk_block_plain(b, i) > space)
			return;
		space -= chunk_block_plain(b, i);
		run->stored[run->n] = chunk_block_stored(b, i);
		run->plain[run->n++] = chunk_block_plain(b, i);
	}
}

/* Writes a piece's blocks to the segment, decompressed by other processes. This process may read everybody's
 * files, so it does not interpret the blocks itself. */
static int write_blocks(struct read_piece *p)
{
	const struct chunk *c = p->chunk;
	const struct chunk_blocks *b = &c->blocks;
	struct unpackers *unpackers = c->reading->unpackers;
	uint32_t at = p->skip, end = p->block + p->n_blocks;
	struct unpacker *k = NULL;
	int r = 0;

	p->cpu_ns = 0;
	for (uint32_t i = p->block; i < end && r == 0;) {
		struct unpack_run run = {.offset = (uint64_t)(p->buffer - c->reading->shown.data) + at};
		const uint8_t *plain = p->buffer + at;
		uint32_t first = i, n = 1;
		size_t bytes = 0;

		if (!is_stored_plain(b, i)) {
			cut_run(b, i, end, &run);
			n = run.n;
			r = unpackers_run(unpackers, &k, &run, &plain, &p->cpu_ns);
		}
		for (; i < first + n; i++) {
			at += chunk_block_stored(b, i);
			bytes += chunk_block_plain(b, i);
		}
		if (r == 0)
			r = fd_write_at(c->memory_fd, plain, bytes,
					b->payload_offset + (uint64_t)first * b->block_bytes);
	}
	unpackers_give_back(unpackers, k);
	return r;
}

static void write_work(uv_work_t *work)
{
	struct read_piece *p = work->data;

	if (p->chunk->order.is_compressed)
		p->result = write_blocks(p);
	else
		p->result = huge_write_at(p->chunk->memory_fd, p->buffer, p->bytes, p->offset);
}

static void write_done(uv_work_t *work, int status)
{
	struct read_piece *p = work->data;
	struct reader_report *report = &p->chunk->report;

	(void)status;
	if (p->chunk->order.is_compressed)
		report->cpu_ns += p->cpu_ns;
	if (p->result == -EBADMSG && report->result == 0)
		report->result = error_set(&report->error, -EBADMSG,
					   "%s: a block between bytes %llu and %llu is damaged (cannot be "
					   "decompressed)",
					   p->chunk->order.origin, (unsigned long long)p->offset,
					   (unsigned long long)(p->offset + p->bytes));
	else if ((p->result == -ETIMEDOUT || p->result == -EAGAIN) && report->result == 0)
		report->result =
		    error_errno(&report->error, p->result, "%s: the decompression process does not answer",
				p->chunk->order.origin);
	else if (p->result < 0 && report->result == 0)
		report->result = error_errno(&report->error, p->result,
					     "%s: cannot write this chunk to memory", p->chunk->order.origin);
	piece_done(p);
}

static void on_piece(struct io_op *op)
{
	struct read_piece *p = (struct read_piece *)op;
	struct chunk *c = p->chunk;
	struct reader_report *report = &c->report;

	if (op->result > 0 && (uint32_t)op->result < op->bytes && report->result == 0) {
		/* A short read: continue after it. */
		op->buffer = (uint8_t *)op->buffer + op->result;
		op->offset += (uint32_t)op->result;
		op->bytes -= (uint32_t)op->result;
		io_submit(c->reading->io, op);
		return;
	}
	c->reading->n_reads--;
	if (op->result == 0 && report->result == 0)
		report->result = error_set(&report->error, -EBADMSG, "%s: truncated at byte %llu",
					   c->order.origin, (unsigned long long)op->offset);
	if (op->result < 0 && report->result == 0)
		report->result = error_errno(&report->error, op->result, "%s: cannot read at %llu",
					     c->order.origin, (unsigned long long)op->offset);
	if (report->result < 0) {
		piece_done(p);
		return;
	}
	(void)uv_queue_work(&c->reading->loop, &p->work, write_work, write_done);
	read_on(c->reading);
}

/* Returns true if the ranges ascend, do not overlap, and lie within the chunk. */
static bool are_ranges(const struct reader_order *o)
{
	uint64_t end = 0;

	if (o->n_ranges > READER_MAX_RANGES)
		return false;
	for (uint32_t i = 0; i < o->n_ranges; i++) {
		const struct reader_range *r = &o->ranges[i];

		if (r->offset < end || r->bytes == 0 || r->bytes > o->bytes ||
		    r->offset > o->bytes - r->bytes)
			return false;
		end = r->offset + r->bytes;
	}
	return true;
}

static void chunk_begin(struct chunk *c)
{
	struct read_request *r = c->reading;

	*r->last = c;
	r->last = &c->next;
	read_on(r);
}

static int head_use(struct chunk *c)
{
	const struct reader_order *o = &c->order;
	const struct chunk_header *h = (const void *)c->head;
	struct error *err = &c->report.error;
	int r = chunk_blocks_in_unknown(c->head, o->payload_offset, o->head_xxh3, &c->blocks);

	if (r < 0 || h->file_bytes != o->bytes)
		return error_set(err, -EBADMSG,
				 "%s: is not the chunk that the snapshot describes: run `dieselctl verify`",
				 o->origin);
	if (h->stored_bytes != c->file_bytes)
		return error_set(err, -EBADMSG, "%s: has %llu bytes instead of %llu: truncated or replaced",
				 o->origin, (unsigned long long)c->file_bytes,
				 (unsigned long long)h->stored_bytes);
	r = fd_write_at(c->memory_fd, c->head, o->payload_offset, 0);
	if (r < 0)
		return error_errno(err, r, "%s: cannot write this chunk to memory", o->origin);
	c->report.read_bytes = o->payload_offset;
	c->at = o->payload_offset;
	skip_blocks(c);
	return 0;
}

static void on_head(struct io_op *op)
{
	struct chunk *c = container_of(op, struct chunk, head_read);
	struct reader_report *report = &c->report;

	if (op->result > 0 && (uint32_t)op->result < op->bytes) {
		op->buffer = (uint8_t *)op->buffer + op->result;
		op->offset += (uint32_t)op->result;
		op->bytes -= (uint32_t)op->result;
		io_submit(c->reading->io, op);
		return;
	}
	if (op->result == 0)
		report->result = error_set(&report->error, -EBADMSG, "%s: truncated at byte %llu",
					   c->order.origin, (unsigned long long)op->offset);
	else if (op->result < 0)
		report->result = error_errno(&report->error, op->result, "%s: cannot read at %llu",
					     c->order.origin, (unsigned long long)op->offset);
	else
		report->result = head_use(c);
	if (report->result < 0 || is_asked_for(c))
		chunk_report(c);
	else
		chunk_begin(c);
}

/* Asks the daemon for a decompressing process. The daemon sends it with an order of id READER_UNPACKER. */
static void ask(void *user)
{
	static const struct reader_report wanted = {.id = READER_UNPACKER};
	const struct read_request *r = user;
	ssize_t n;

	do
		n = send(r->fd, &wanted, sizeof(wanted), MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
}

/* Allocates buffers that the processes that decompress can see. Called for the first compressed chunk. */
static int show_buffers(struct read_request *r)
{
	struct unpackers_options options = {.memory_bytes = READER_OWN_BYTES,
					    .n_threads = N_THREADS,
					    .cpu_limit_ns = UNPACK_CPU_NS,
					    .ask = ask,
					    .user = r};
	struct shared_memory shown;
	int result;

	if (r->shown.data)
		return 0;
	result = shared_memory_new("diesel-read", READER_OWN_BYTES, SHARED_MAPPABLE, &shown);
	if (result < 0)
		return result;
	result = shared_memory_reader(shown.fd, &options.memory_fd);
	if (result == 0)
		result = unpackers_new(&options, &r->unpackers);
	if (result < 0)
		shared_memory_free(&shown);
	else
		r->shown = shown;
	return result;
}

/* Reads the head first, because it has the positions of the blocks. */
static void head_read(struct chunk *c)
{
	uint32_t bytes = c->order.payload_offset;
	int r = show_buffers(c->reading);

	if (r < 0) {
		c->report.result =
		    error_errno(&c->report.error, r, "%s: cannot allocate memory to decompress this chunk",
				c->order.origin);
		chunk_report(c);
		return;
	}
	if (bytes > 0 && bytes <= CHUNK_COMPRESSED_HEAD_MAX && bytes % CHUNK_ALIGN == 0)
		c->head = aligned_alloc(CHUNK_ALIGN, bytes);
	if (!c->head) {
		c->report.result = error_errno(&c->report.error, -ENOMEM, "%s: its head", c->order.origin);
		chunk_report(c);
		return;
	}
	c->head_read =
	    (struct io_op){.kind = IO_READ, .fd = c->fd, .buffer = c->head, .bytes = bytes, .done = on_head};
	io_submit(c->reading->io, &c->head_read);
}

static void chunk_read(struct chunk *c)
{
	struct reader_order *o = &c->order;

	if (!are_ranges(o)) {
		c->report.result = -EINVAL;
		chunk_report(c);
		return;
	}
	/* Otherwise data that another chunk left in this memory would look like this chunk's. */
	if (o->n_ranges > 0)
		(void)fallocate(c->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)o->bytes);
	if (o->n_ranges == 0)
		o->ranges[o->n_ranges++] = (struct reader_range){0, o->bytes};
	c->at = o->ranges[0].offset;
	if (o->is_compressed)
		head_read(c);
	else
		chunk_begin(c);
}

static int check_opened(struct chunk *c)
{
	struct error *err = &c->report.error;
	const char *origin = c->order.origin;
	struct access_rights rights;
	struct stat st;
	int r;

	if (fstat(c->fd, &st) < 0)
		return error_errno(err, -errno, "%s: cannot get the status of this file", origin);
	if (!S_ISREG(st.st_mode))
		return error_set(err, -EBADMSG, "%s: not a regular file", origin);
	r = access_rights_get(c->fd, &st, origin, &rights, err);
	if (r < 0)
		return r;
	if (!access_is_no_stricter(&rights, ACCESS_READ, &c->order.rights))
		return access_stricter_error(err, origin, &rights, ACCESS_READ, &c->order.rights);
	c->file_bytes = (uint64_t)st.st_size;
	if (c->order.is_compressed ? c->file_bytes >= c->order.bytes : c->file_bytes != c->order.bytes)
		return error_set(err, -EBADMSG, "%s: has %lld bytes instead of %llu: truncated or replaced",
				 origin, (long long)st.st_size, (unsigned long long)c->order.bytes);
	c->report.stamp = access_stamp(&st);
	c->report.stamp.bytes = c->order.bytes;
	c->report.unchanged = c->order.is_known && !c->order.only_check &&
			      access_stamp_equal(&c->report.stamp, &c->order.known);
	return 0;
}

static void chunk_open(struct chunk *c);

static void on_open(struct io_op *op)
{
	struct chunk *c = container_of(op, struct chunk, open);
	struct reader_report *report = &c->report;

	/* Some file systems do not support O_DIRECT: then the page cache is used. */
	if (op->result == -EINVAL && !report->buffered) {
		report->buffered = true;
		chunk_open(c);
		return;
	}
	if (op->result < 0) {
		report->result = access_open_error(&report->error, op->result, c->order.origin);
		if (op->result == -ENOENT)
			error_advise(&report->error, CHUNK_MISSING);
	} else {
		c->fd = op->result;
		report->result = check_opened(c);
	}
	if (report->result < 0 || report->unchanged || c->order.only_check || c->order.bytes == 0)
		chunk_report(c);
	else
		chunk_read(c);
}

static void chunk_open(struct chunk *c)
{
	c->open = (struct io_op){
	    .kind = IO_OPEN,
	    .fd = c->folder_fd,
	    .path = c->order.name,
	    /* O_NONBLOCK: a pipe in the chunk's place must not hold us up. */
	    .how = access_how((uint64_t)(O_RDONLY | O_NONBLOCK | (c->report.buffered ? 0 : O_DIRECT))),
	    .done = on_open};
	io_submit(c->reading->io, &c->open);
}

/* Returns 1: received an order; 0: none is waiting, or a decompressing process arrived; negative: the
 * daemon has exited. */
static int receive_order(int fd, struct chunk *c)
{
	int fds[2], r = message_receive(fd, &c->order, sizeof(c->order), MSG_DONTWAIT, fds, 2);

	if (r == -EAGAIN)
		return 0;
	if (r == 0 && c->order.id == READER_UNPACKER) {
		if (c->reading->unpackers)
			unpackers_add(c->reading->unpackers, fds[0]);
		return 0;
	}
	if (r < 0 || fds[1] < 0)
		return -ECONNRESET;
	c->folder_fd = fds[0];
	c->memory_fd = fds[1];
	return 1;
}

static void on_order(uv_poll_t *poll, int status, int events)
{
	struct read_request *r = poll->data;
	struct chunk *c = calloc(1, sizeof(*c));
	int got;

	(void)status;
	(void)events;
	if (!c)
		_exit(1);
	c->fd = -EBADF;
	c->reading = r;
	got = receive_order(r->fd, c);
	if (got < 0)
		_exit(0); /* nobody waits for the remaining reads */
	if (got == 0) {
		free(c);
		return;
	}
	if (c->order.uid != r->uid)
		helper_title(HELPER_READER, c->order.uid);
	r->uid = c->order.uid;
	c->report.id = c->order.id;
	chunk_open(c);
}

static void populate_work(uv_work_t *work)
{
	const struct read_piece *p = work->data;

	/* If the kernel is too old for that, the first read takes longer, since it allocates the pages. */
	(void)kernel_populate(p->buffer, PIECE_BYTES);
}

static void populate_done(uv_work_t *work, int status)
{
	struct read_piece *p = work->data;

	(void)status;
	p->next_free = p->reading->free_pieces;
	p->reading->free_pieces = p;
	read_on(p->reading);
}

/* Allocates the buffers, as huge pages where there are any, so that a read has few pages. On a virtual
 * machine whose host has to find memory first, each can take milliseconds. So threads populate them,
 * mostly before the first order arrives. */
static bool make_buffers(struct read_request *r)
{
	uint8_t *memory = mmap(NULL, READER_OWN_BYTES + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return false;
	huge_leave_out_of_core(memory, READER_OWN_BYTES + HUGE_PAGE_BYTES);
	memory += HUGE_PAGE_BYTES - (uintptr_t)memory % HUGE_PAGE_BYTES;
	(void)madvise(memory, READER_OWN_BYTES, MADV_HUGEPAGE);
	for (uint32_t i = 0; i < N_PIECES; i++) {
		struct read_piece *p = &r->pieces[i];

		p->op = (struct io_op){.kind = IO_READ, .done = on_piece};
		p->reading = r;
		p->work.data = p;
		p->buffer = memory + (size_t)i * PIECE_BYTES;
		(void)uv_queue_work(&r->loop, &p->work, populate_work, populate_done);
	}
	r->last = &r->first;
	return true;
}

int reader_run(int fd)
{
	struct read_request r = {.fd = fd, .uid = HELPER_NOBODYS};
	bool use_uring;

	if (message_receive(fd, &use_uring, sizeof(use_uring), 0, NULL, 0) < 0)
		return 1;
	if (!use_uring)
		(void)sandbox_filter(SANDBOX_READER);
	/* Lowers the I/O priority, or checkpoints would wait for prefetches. Storage without I/O priorities
	 * ignores it. */
	(void)kernel_io_last();
	if (uv_loop_init(&r.loop) < 0 || io_new(&r.loop, use_uring, IO_DEPTH, &r.io) < 0)
		return 1;
	/* Must be called before there are threads. */
	if (use_uring && helper_settle(HELPER_READER) < 0)
		return 1;
	if (!make_buffers(&r) || uv_poll_init(&r.loop, &r.poll, fd) < 0)
		return 1;
	r.poll.data = &r;
	uv_poll_start(&r.poll, UV_READABLE, on_order);
	uv_run(&r.loop, UV_RUN_DEFAULT);
	return 0;
}
