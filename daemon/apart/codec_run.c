/* SPDX-License-Identifier: Apache-2.0 */
/* The helper's side of codec.h: a loop in a sandbox. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "codec.h"
#include "codec_message.h"
#include "daemon/helpers/process.h"
#include "image/decoder.h"
#include "image/tensor.h"
#include "lib/fd_message.h"
#include "lib/huge_pages.h"
#include "lib/sandbox.h"
#include "plugin_load.h"
#include "whole_form.h"

#define MEMORY_BYTES (UINT64_C(512) << 20)

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
	struct plugin_codec plugin; /* of a recipe for a codec */
	uint8_t *pixels;
	uint64_t pixels_bytes;
	struct mapped segments[CODEC_MAX_SEGMENTS]; /* of the order to come */
	uint32_t n_segments;
	struct mapped grant; /* {0}: there is none */
	struct recipe form_key;
	enum recipe_form form;
};

/* An order, as far as it is carried out. */
struct work {
	const struct codec_order *order;
	uint64_t grant_at;
	uint32_t n_done; /* items */
	struct codec_done *done;
};

static void unmap_segments(struct helper *h)
{
	for (uint32_t i = 0; i < h->n_segments; i++)
		munmap(h->segments[i].data, h->segments[i].bytes);
	h->n_segments = 0;
	if (h->grant.data)
		munmap(h->grant.data, h->grant.bytes);
	h->grant = (struct mapped){.data = NULL};
}

static int map_grant(struct helper *h, int fd, uint64_t bytes)
{
	void *data =
	    h->grant.data ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (data == MAP_FAILED)
		return -EPROTO;
	huge_leave_out_of_core(data, bytes);
	h->grant = (struct mapped){.data = data, .bytes = bytes};
	return 0;
}

static int map_segment(struct helper *h, int fd, uint64_t bytes)
{
	void *data;

	if (h->n_segments == CODEC_MAX_SEGMENTS)
		return -EPROTO;
	data = huge_map(fd, bytes, PROT_READ, MAP_SHARED);
	if (data == MAP_FAILED)
		return -errno;
	huge_leave_out_of_core(data, bytes);
	h->segments[h->n_segments++] = (struct mapped){.data = data, .bytes = bytes};
	return 0;
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

static int decode_by_plugin(struct helper *h, const uint8_t *data, uint32_t bytes, uint64_t epoch,
			    uint64_t sample, uint8_t *out, struct error *err)
{
	int r = plugin_decode(&h->plugin, data, bytes, recipe_seed(h->begin.seed, epoch, sample), err);

	if (r < 0) {
		error_prefix(err, "codec %s", h->begin.recipe.codec.name);
		return r;
	}
	memcpy(out, h->plugin.out, h->item_bytes);
	return 0;
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Where a sample or a form of at least so many bytes lies, or NULL. */
static const uint8_t *find(const struct helper *h, uint64_t location, uint64_t bytes)
{
	uint64_t segment = location >> 32, offset = (uint32_t)location;

	if (segment < 1 || segment > h->n_segments || offset + bytes > h->segments[segment - 1].bytes)
		return NULL;
	return h->segments[segment - 1].data + offset;
}

/* Bytes of a form. */
static uint64_t form_bytes(const struct helper *h, const struct image_whole *whole)
{
	const struct recipe *r = &h->begin.recipe;

	return sizeof(struct codec_form) + (h->form == RECIPE_FORM_MADE
						? (uint64_t)r->width * r->height * IMAGE_CHANNELS
						: image_whole_bytes(whole));
}

static void write_form(uint8_t *room, const struct image_whole *whole)
{
	const struct codec_form form = {.width = whole->info.width,
					.height = whole->info.height,
					.kind = whole->info.kind,
					.is_planes = whole->is_planes,
					.h = whole->info.h,
					.v = whole->info.v,
					.by = whole->by};

	memcpy(room, &form, sizeof(form));
}

/* Another decoder made the form, or none did: it is an image of a size that could be, or there is none. */
static bool take_form(const struct helper *h, uint64_t location, struct image_whole *ret,
		      const uint8_t **ret_pixels)
{
	const uint8_t *data = location ? find(h, location, sizeof(struct codec_form)) : NULL;
	struct codec_form form;

	if (!data || h->form == RECIPE_FORM_NONE)
		return false;
	memcpy(&form, data, sizeof(form));
	*ret = (struct image_whole){.info = {.kind = (enum image_kind)form.kind,
					     .width = form.width,
					     .height = form.height,
					     .h = form.h,
					     .v = form.v},
				    .by = form.by,
				    .is_planes = form.is_planes};
	if (!form.width || !form.height || (uint64_t)form.width * form.height > IMAGE_PIXELS_MAX ||
	    (form.by != 1 && form.by != 2 && form.by != 4 && form.by != 8) ||
	    (form.is_planes && form.by != 1) || !find(h, location, form_bytes(h, ret)))
		return false;
	*ret_pixels = data + sizeof(form);
	return true;
}

/* Returns true if what becomes of the image in this epoch comes out of a form that lies so. */
static bool is_served(const struct helper *h, const struct image_whole *whole, uint64_t epoch,
		      uint64_t sample)
{
	const struct recipe *recipe = &h->begin.recipe;
	struct image_request request;
	struct recipe_place place;

	if (h->form != RECIPE_FORM_WHOLE)
		return h->form == RECIPE_FORM_MADE;
	recipe_place(recipe, h->begin.seed, epoch, sample, whole->info.width, whole->info.height, &place);
	request = whole_form_request(recipe, &place);
	return image_scale(&whole->info, &request) == whole->by;
}

/* What comes after all that a form holds: colours, then numbers. */
static int finish(struct helper *h, const struct recipe_place *place, const uint8_t *pixels, uint64_t epoch,
		  uint64_t sample, uint8_t *out)
{
	const struct recipe *recipe = &h->begin.recipe;
	size_t n = (size_t)recipe->width * recipe->height;
	struct recipe_colours colours;

	recipe_draw_colours(recipe, h->begin.seed, epoch, sample, &colours);
	if (colours.n > 0 || colours.grey) {
		if (pixels != h->pixels) {
			if (make_room(h, recipe->width, recipe->height) < 0)
				return -ENOMEM;
			memcpy(h->pixels, pixels, n * IMAGE_CHANNELS);
		}
		recipe_colour(&colours, h->pixels, n);
		pixels = h->pixels;
	}
	recipe_store(recipe, &h->table, place, pixels, out);
	return 0;
}

/* What comes out of a form that serves. 0 or a negative errno. */
static int use_form(struct helper *h, const struct image_whole *form, const uint8_t *pixels, uint64_t epoch,
		    uint64_t sample, uint8_t *out, struct error *err)
{
	const struct recipe *recipe = &h->begin.recipe;
	struct image_request request;
	struct recipe_place place;
	int r;

	recipe_place(recipe, h->begin.seed, epoch, sample, form->info.width, form->info.height, &place);
	if (h->form == RECIPE_FORM_WHOLE) {
		request = whole_form_request(recipe, &place);
		if (make_room(h, recipe->width, recipe->height) < 0)
			return -ENOMEM;
		r = image_resize(h->decoder, form, pixels, &request, h->pixels, err);
		if (r < 0)
			return r;
		pixels = h->pixels;
	}
	return finish(h, &place, pixels, epoch, sample, out);
}

/* Where the form of a sample without one goes; NULL: it gets none now. */
static uint8_t *form_room(const struct helper *h, const struct image_whole *whole, struct work *w)
{
	uint64_t bytes = form_bytes(h, whole);

	if (!h->grant.data || bytes > h->grant.bytes)
		return NULL;
	if (bytes <= h->grant.bytes - w->grant_at)
		return h->grant.data + w->grant_at;
	w->done->full = true;
	return NULL;
}

static void count(struct work *w, enum codec_way way, uint64_t begin_ns)
{
	w->done->ways[way].n++;
	w->done->ways[way].cpu_ns += cpu_ns() - begin_ns;
}

/* Decodes all of the image; as pixels, if it has no planes after all, and there is room for them. */
static int decode_into(struct helper *h, const uint8_t *data, uint32_t bytes, const struct work *w,
		       struct image_whole *whole, uint8_t *to)
{
	struct error unused = ERROR_INIT;
	int r = image_decode_whole(h->decoder, data, bytes, whole, to, &unused);

	if (r != -EOPNOTSUPP || !whole->is_planes)
		return r;
	whole->is_planes = false;
	if (form_bytes(h, whole) > h->grant.bytes - w->grant_at) {
		/* Or it would be offered the same room in each epoch. */
		w->done->full = w->done->full || form_bytes(h, whole) <= h->grant.bytes;
		return -ENOSPC;
	}
	return image_decode_whole(h->decoder, data, bytes, whole, to, &unused);
}

/* Decodes the whole image into its form, and takes the crop out of that. 0; -ENOENT: it cannot be had that
 * way. */
static int decode_whole(struct helper *h, const uint8_t *data, uint32_t bytes, struct image_whole *whole,
			uint64_t epoch, uint64_t sample, uint8_t *room, uint8_t *out, struct work *w,
			uint64_t *ret_made)
{
	struct error unused = ERROR_INIT;
	uint64_t begin_ns;

	/* What is damaged behind the crop does not matter to the crop. */
	if (decode_into(h, data, bytes, w, whole, room + sizeof(struct codec_form)) < 0)
		return -ENOENT;
	begin_ns = cpu_ns();
	if (use_form(h, whole, room + sizeof(struct codec_form), epoch, sample, out, &unused) < 0)
		return -ENOENT;
	count(w, CODEC_OUT_OF_IT, begin_ns);
	write_form(room, whole);
	*ret_made = form_bytes(h, whole);
	return 0;
}

/* Decodes the crop alone; room: where its pixels are to be kept, or NULL. */
static int decode_crop(struct helper *h, const uint8_t *data, uint32_t bytes, const struct image_whole *whole,
		       uint64_t epoch, uint64_t sample, uint8_t *room, uint8_t *out, struct work *w,
		       struct error *err)
{
	const struct image_info *info = &whole->info;
	const struct recipe *recipe = &h->begin.recipe;
	struct image_request request;
	struct recipe_place place;
	uint64_t begin_ns;
	int r;

	recipe_place(recipe, h->begin.seed, epoch, sample, info->width, info->height, &place);
	request = whole_form_request(recipe, &place);
	if (make_room(h, recipe->width, recipe->height) < 0)
		return error_set(err, -ENOMEM, "an image of %u x %u pixels takes too much memory",
				 info->width, info->height);
	r = image_decode(h->decoder, data, bytes, &request, h->pixels, err);
	if (r < 0)
		return r;
	if (room) {
		write_form(room, whole);
		memcpy(room + sizeof(struct codec_form), h->pixels,
		       (size_t)recipe->width * recipe->height * IMAGE_CHANNELS);
	}
	begin_ns = cpu_ns();
	r = finish(h, &place, h->pixels, epoch, sample, out);
	if (r == 0 && room)
		count(w, CODEC_OUT_OF_IT, begin_ns);
	return r;
}

/* For samples that no form is kept of by this process. */
static int decode_other(struct helper *h, const uint8_t *data, const struct ring_item *item, struct work *w,
			uint8_t *out, struct error *err)
{
	uint64_t epoch = w->order->epoch, begin_ns = cpu_ns();
	int r = h->plugin.codec ? decode_by_plugin(h, data, item->bytes, epoch, item->sample, out, err)
				: tensor_make(&h->begin.recipe, h->begin.seed, epoch, item->sample, data,
					      item->bytes, out, err);

	if (r == 0)
		count(w, CODEC_FRESH, begin_ns);
	return r;
}

/* The form that the image could have; false: none. */
static bool choose_form(const struct helper *h, const struct image_info *info, struct image_whole *ret)
{
	*ret = (struct image_whole){.info = *info, .by = 1};
	return h->form == RECIPE_FORM_WHOLE ? whole_form_choose(&h->begin.recipe, info, ret)
					    : h->form == RECIPE_FORM_MADE;
}

static void count_prospect(const struct helper *h, struct work *w, const struct image_whole *whole,
			   bool serves)
{
	struct codec_prospect *p = &w->done->prospect;

	p->n++;
	p->n_served += serves;
	p->bytes += whole ? form_bytes(h, whole) : 0;
}

/* *ret_made: bytes of the form that was made; as it was if none was. -EAGAIN: its form does not fit behind
 * the others, but would fit elsewhere. */
static int decode(struct helper *h, const uint8_t *data, const struct ring_item *item, uint64_t location,
		  struct work *w, uint8_t *out, uint64_t *ret_made, struct error *err)
{
	uint64_t epoch = w->order->epoch, sample = item->sample, begin_ns = cpu_ns(), made = 0;
	bool has_form, serves = false;
	struct image_whole whole;
	const uint8_t *pixels;
	struct image_info info;
	uint8_t *room = NULL;
	int r;

	if (h->plugin.codec || recipe_is_tensor(&h->begin.recipe))
		return decode_other(h, data, item, w, out, err);
	has_form = take_form(h, location, &whole, &pixels);
	serves = has_form && is_served(h, &whole, epoch, sample);
	if (serves && use_form(h, &whole, pixels, epoch, sample, out, err) == 0) {
		count(w, CODEC_FROM_FORM, begin_ns);
		count_prospect(h, w, &whole, true);
		return 0;
	}
	r = image_probe(data, item->bytes, &info, err);
	if (r < 0)
		return r;
	whole.info = info; /* and not what another decoder says of it */
	if (!has_form) {
		has_form = choose_form(h, &info, &whole);
		serves = has_form && is_served(h, &whole, epoch, sample);
		/* Where this epoch's crop is decoded at another scale, another epoch's makes the form. */
		room = serves && !location ? form_room(h, &whole, w) : NULL;
	}
	if (w->done->full && w->n_done > 0)
		return -EAGAIN;
	r = -ENOENT;
	if (room && h->form == RECIPE_FORM_WHOLE)
		r = decode_whole(h, data, item->bytes, &whole, epoch, sample, room, out, w, &made);
	if (w->done->full && w->n_done > 0)
		return -EAGAIN;
	if (r < 0) {
		if (h->form == RECIPE_FORM_WHOLE)
			room = NULL;
		r = decode_crop(h, data, item->bytes, &whole, epoch, sample, room, out, w, err);
		made = form_bytes(h, &whole);
	}
	if (r < 0)
		return r;
	if (room)
		*ret_made = made;
	count(w, room ? CODEC_MADE_FORM : serves ? CODEC_FRESH : CODEC_APART, begin_ns);
	count_prospect(h, w, has_form ? &whole : NULL, serves);
	return 0;
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
	static const struct itimerval limit = {.it_value = {.tv_sec = CODEC_SAMPLE_CPU_S}};
	uint8_t *slot = h->slots + (size_t)o->slot * h->begin.layout.slot_bytes;
	struct ring_item *items = (struct ring_item *)slot;
	int64_t *labels = (int64_t *)(slot + h->begin.layout.labels_offset);
	uint8_t *payload = slot + h->begin.layout.payload_offset;
	struct work w = {.order = o, .grant_at = o->grant_offset, .done = done};
	uint64_t begin_ns = cpu_ns();
	uint32_t i = o->first;

	*done = (struct codec_done){.error = ERROR_INIT};
	if (o->slot >= h->begin.n_slots || o->end > h->begin.batch ||
	    (h->grant.data && o->grant_offset > h->grant.bytes))
		return -EPROTO;
	for (; i < o->end && cpu_ns() - begin_ns < CODEC_SLICE_NS; i++) {
		const uint8_t *data = find(h, items[i].location, items[i].bytes);
		uint8_t *out = payload + i * h->item_bytes;
		struct error err = ERROR_INIT;
		uint64_t made = 0;
		int r = -EPROTO;

		if (!data)
			return r;
		setitimer(ITIMER_PROF, &limit, NULL);
		r = decode(h, data, &items[i], (uint64_t)labels[i], &w, out, &made, &err);
		if (r == -EAGAIN)
			break;
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
		labels[i] = r < 0 ? 0 : (int64_t)made;
		w.grant_at +=
		    (uint64_t)(labels[i] + CODEC_FORM_ALIGN - 1) / CODEC_FORM_ALIGN * CODEC_FORM_ALIGN;
		w.grant_at = w.grant_at < h->grant.bytes ? w.grant_at : h->grant.bytes;
		w.n_done++;
		__atomic_store_n(&items[i].location, 0, __ATOMIC_RELEASE);
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
				r = m.type != CODEC_SEGMENTS ? -EPROTO
				    : m.segments.grant       ? map_grant(h, fds[i], m.segments.bytes[i])
							     : map_segment(h, fds[i], m.segments.bytes[i]);
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

	h->slots = huge_map(slots_fd, b->n_slots * b->layout.slot_bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
	close(slots_fd);
	if (h->slots == MAP_FAILED)
		return -errno;
	huge_leave_out_of_core(h->slots, b->n_slots * b->layout.slot_bytes);
	h->item_bytes = recipe_item_bytes(&b->recipe);
	if (b->recipe.kind == RECIPE_CODEC)
		return plugin_room(&h->plugin, h->item_bytes);
	recipe_table_make(&b->recipe, &h->table);
	h->form = recipe_form(&b->recipe, &h->form_key);
	return image_decoder_new(IMAGE_PIXELS_MAX, &h->decoder);
}

static int say_started(int fd)
{
	struct codec_message m = {.type = CODEC_STARTED, .pid = (int32_t)getpid()};
	int pidfd = helper_own_pidfd(), r;

	if (pidfd < 0)
		return pidfd;
	r = fd_message_send(fd, &m, sizeof(m), &pidfd, 1, 0);
	close(pidfd);
	return r;
}

static int daemon_fd; /* for on_late(), which gets no argument */

/* The sample has had its time. What was interrupted does not go on. */
static void on_late(int number)
{
	static struct codec_message m = {.type = CODEC_LATE};

	(void)number;
	(void)fd_message_send(daemon_fd, &m, sizeof(m), NULL, 0, MSG_DONTWAIT);
	_exit(1);
}

/* What comes out must be what the session was opened for. */
static int open_plugin(struct helper *h, struct error *err)
{
	static const struct itimerval limit = {.it_value = {.tv_sec = CODEC_SAMPLE_CPU_S}};
	const struct recipe *recipe = &h->begin.recipe;
	struct recipe_codec opened = recipe->codec;
	uint32_t type;
	int r;

	setitimer(ITIMER_PROF, &limit, NULL);
	r = plugin_open(&h->plugin, recipe->codec.options, &type, &opened, err);
	if (r == 0 && (type != recipe->type || memcmp(&opened, &recipe->codec, sizeof(opened)) != 0))
		return error_set(err, -ESTALE,
				 "what comes out of it is not what it was when the loader was made: make "
				 "another one");
	return r;
}

static int say_ready(struct helper *h, int plugin_fd)
{
	const struct sandbox_limits limits = {.memory_bytes = MEMORY_BYTES, .serves = true};
	struct codec_message m = {.type = CODEC_READY};
	struct codec_done *done = &m.done;

	done->error = ERROR_INIT;
	if (plugin_fd >= 0)
		done->status = plugin_load(plugin_fd, &h->plugin.codec, &done->error);
	daemon_fd = h->fd;
	signal(SIGPROF, on_late);
	heap_bytes(); /* glibc prepares its heap by calls that the sandbox does not have, where a sanitizer
			 has its own */
	m.sandbox = sandbox_enter(&limits);
	if (h->plugin.codec && done->status == 0)
		done->status = open_plugin(h, &done->error);
	return fd_message_send(h->fd, &m, sizeof(m), NULL, 0, 0);
}

int codec_run(int fd)
{
	static struct helper h;
	struct codec_message m;
	int fds[FD_MESSAGE_MAX_FDS];
	size_t n_fds;

	h.fd = fd;
	if (receive(fd, &m, fds, &n_fds) < 0 || m.type != CODEC_BEGIN ||
	    n_fds != (m.begin.recipe.kind == RECIPE_CODEC ? 2 : 1))
		return 1;
	h.begin = m.begin;
	if (prepare(&h, fds[0]) < 0 || say_started(fd) < 0 || say_ready(&h, n_fds == 2 ? fds[1] : -EBADF) < 0)
		return 1;
	return serve(&h) == -ECONNRESET ? 0 : 1;
}
