/* SPDX-License-Identifier: Apache-2.0 */
/* The helper's side of codec.h: a loop in a sandbox. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "codec.h"
#include "codec_message.h"
#include "image/decoder.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"
#include "lib/sandbox.h"

#define MEMORY_BYTES (UINT64_C(512) << 20)
#define SAMPLE_CPU_S 10 /* then the kernel ends the process */

struct mapped {
	uint8_t *data;
	uint64_t bytes;
};

struct helper {
	int fd;
	struct codec_begin begin;
	uint64_t item_bytes;
	uint8_t *slots;
	struct recipe_table table;
	struct image_decoder *decoder;
	uint8_t *pixels;
	uint64_t pixels_bytes;
	struct mapped segments[CODEC_MAX_SEGMENTS]; /* of the order to come */
	uint32_t n_segments;
};

static void unmap_segments(struct helper *h)
{
	for (uint32_t i = 0; i < h->n_segments; i++)
		munmap(h->segments[i].data, h->segments[i].bytes);
	h->n_segments = 0;
}

static int map_segment(struct helper *h, int fd, uint64_t bytes)
{
	void *data;

	if (h->n_segments == CODEC_MAX_SEGMENTS)
		return -EPROTO;
	data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return -errno;
	h->segments[h->n_segments++] = (struct mapped){.data = data, .bytes = bytes};
	return 0;
}

static enum image_filter filter_of(const struct recipe *r)
{
	return r->filter == RECIPE_BICUBIC ? IMAGE_BICUBIC : IMAGE_BILINEAR;
}

/* Room for an image of this size. 0 or -ENOMEM. */
static int make_room(struct helper *h, uint64_t width, uint64_t height)
{
	uint64_t bytes = width * height * IMAGE_CHANNELS;

	if (bytes <= h->pixels_bytes)
		return 0;
	free(h->pixels);
	h->pixels_bytes = 0;
	h->pixels = malloc(bytes);
	if (!h->pixels)
		return -ENOMEM;
	h->pixels_bytes = bytes;
	return 0;
}

/* Cuts what comes out from what was made, in place. */
static void cut(uint8_t *pixels, const struct recipe_place *place, uint32_t width, uint32_t height)
{
	size_t row = (size_t)width * IMAGE_CHANNELS, made_row = (size_t)place->made_width * IMAGE_CHANNELS;

	if (width == place->made_width && height == place->made_height)
		return;
	for (uint32_t y = 0; y < height; y++)
		memmove(pixels + y * row,
			pixels + (place->y + y) * made_row + (size_t)place->x * IMAGE_CHANNELS, row);
}

static int decode(struct helper *h, const uint8_t *data, uint32_t bytes, uint64_t epoch, uint64_t sample,
		  uint8_t *out, struct error *err)
{
	const struct recipe *recipe = &h->begin.recipe;
	struct image_request request = {.filter = filter_of(recipe), .layout = IMAGE_HWC};
	struct image_info info;
	struct recipe_place place;
	struct recipe_colours colours;
	int r = image_probe(data, bytes, &info, err);

	if (r < 0)
		return r;
	recipe_place(recipe, h->begin.seed, epoch, sample, info.width, info.height, &place);
	request.crop = (struct image_box){place.left, place.top, place.width, place.height};
	request.width = place.made_width;
	request.height = place.made_height;
	if (make_room(h, request.width, request.height) < 0)
		return error_set(err, -ENOMEM, "an image of %u x %u pixels takes too much memory", info.width,
				 info.height);
	r = image_decode(h->decoder, data, bytes, &request, h->pixels, err);
	if (r < 0)
		return r;
	cut(h->pixels, &place, recipe->width, recipe->height);
	recipe_draw_colours(recipe, h->begin.seed, epoch, sample, &colours);
	recipe_colour(&colours, h->pixels, (size_t)recipe->width * recipe->height);
	recipe_store(recipe, &h->table, &place, h->pixels, out);
	return 0;
}

/* Where a sample lies, or NULL. */
static const uint8_t *find(const struct helper *h, const struct ring_item *item)
{
	uint64_t segment = item->location >> 32, offset = (uint32_t)item->location;

	if (segment < 1 || segment > h->n_segments || offset + item->bytes > h->segments[segment - 1].bytes)
		return NULL;
	return h->segments[segment - 1].data + offset;
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Memory that it has from the system, whether it uses it now or not. */
static uint64_t heap_bytes(void)
{
#if __GLIBC_PREREQ(2, 33)
	struct mallinfo2 m = mallinfo2();
#else
	struct mallinfo m = mallinfo(); /* MEMORY_BYTES fits in its int */
#endif

	return (uint64_t)m.arena + (uint64_t)m.hblkhd;
}

static int run_order(struct helper *h, const struct codec_order *o, struct codec_done *done)
{
	static const struct itimerval limit = {.it_value = {.tv_sec = SAMPLE_CPU_S}};
	uint8_t *slot = h->slots + (size_t)o->slot * h->begin.layout.slot_bytes;
	struct ring_item *items = (struct ring_item *)slot;
	uint8_t *payload = slot + h->begin.layout.payload_offset;
	uint64_t begin_ns = cpu_ns();
	uint32_t i = o->first;

	*done = (struct codec_done){.error = ERROR_INIT};
	if (o->slot >= h->begin.n_slots || o->end > h->begin.batch)
		return -EPROTO;
	for (; i < o->end && cpu_ns() - begin_ns < CODEC_SLICE_NS; i++) {
		const uint8_t *data = find(h, &items[i]);
		uint8_t *out = payload + i * h->item_bytes;
		struct error err = ERROR_INIT;
		int r = -EPROTO;

		if (!data)
			return r;
		setitimer(ITIMER_PROF, &limit, NULL);
		r = decode(h, data, items[i].bytes, o->epoch, items[i].sample, out, &err);
		if (r < 0 && h->begin.recipe.damage == RECIPE_DAMAGE_ERROR) {
			done->status = r;
			done->item = i;
			done->error = err;
			break;
		}
		if (r < 0) {
			memset(out, 0, h->item_bytes);
			items[i].bytes = 0;
			if (done->n_damaged++ == 0) {
				done->item = i;
				done->error = err;
			}
		}
		__atomic_store_n(&items[i].location, 0, __ATOMIC_RELAXED);
	}
	done->next = i;
	done->is_large = heap_bytes() > CODEC_IDLE_BYTES;
	return 0;
}

static int receive(int fd, struct codec_message *m, int fds[FD_MESSAGE_MAX_FDS], size_t *n_fds)
{
	int r = fd_message_receive(fd, m, sizeof(*m), 0, fds, n_fds);

	return r == sizeof(*m) ? 0 : r < 0 ? r : -ECONNRESET;
}

static int serve(struct helper *h)
{
	struct codec_message m;
	int fds[FD_MESSAGE_MAX_FDS], r;
	size_t n_fds;

	while ((r = receive(h->fd, &m, fds, &n_fds)) == 0) {
		for (size_t i = 0; i < n_fds; i++) {
			if (r == 0)
				r = m.type == CODEC_SEGMENTS ? map_segment(h, fds[i], m.segments.bytes[i])
							     : -EPROTO;
			close(fds[i]);
		}
		if (r == 0 && m.type == CODEC_ORDER) {
			struct codec_message reply = {.type = CODEC_DONE};

			r = run_order(h, &m.order, &reply.done);
			unmap_segments(h);
			if (r == 0)
				r = fd_message_send(h->fd, &reply, sizeof(reply), NULL, 0, 0);
		}
		if (r < 0)
			return r;
	}
	return r;
}

static int prepare(struct helper *h, int slots_fd)
{
	const struct codec_begin *b = &h->begin;

	h->slots =
	    mmap(NULL, b->n_slots * b->layout.slot_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, slots_fd, 0);
	close(slots_fd);
	if (h->slots == MAP_FAILED)
		return -errno;
	h->item_bytes = recipe_item_bytes(&b->recipe);
	recipe_table_make(&b->recipe, &h->table);
	return image_decoder_new(IMAGE_PIXELS_MAX, &h->decoder);
}

static int say_ready(int fd)
{
	const struct sandbox_limits limits = {.memory_bytes = MEMORY_BYTES, .serves = true};
	struct codec_message m = {.type = CODEC_READY, .pid = (int32_t)getpid()};
	int pidfd = kernel_pidfd_open(getpid()), r;

	if (pidfd < 0)
		return -errno;
	m.sandbox = sandbox_enter(&limits);
	r = fd_message_send(fd, &m, sizeof(m), &pidfd, 1, 0);
	close(pidfd);
	return r;
}

int codec_run(int fd)
{
	static struct helper h;
	struct codec_message m;
	int fds[FD_MESSAGE_MAX_FDS];
	size_t n_fds;

	/* The nursery ends with the daemon, and this process with the nursery. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	h.fd = fd;
	if (receive(fd, &m, fds, &n_fds) < 0 || m.type != CODEC_BEGIN || n_fds != 1)
		return 1;
	h.begin = m.begin;
	if (prepare(&h, fds[0]) < 0 || say_ready(fd) < 0)
		return 1;
	return serve(&h) == -ECONNRESET ? 0 : 1;
}
