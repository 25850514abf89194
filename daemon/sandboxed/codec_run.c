/* SPDX-License-Identifier: Apache-2.0 */
/* The helper's side of codec.h: a loop in a sandbox. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
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
#include "dataset/fields.h"
#include "image/decoder.h"
#include "image/tensor.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "lib/huge_pages.h"
#include "lib/sandbox.h"
#include "lib/text.h"
#include "plugin_load.h"
#include "decoded_scale.h"

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
	struct plugin_codec plugin; /* used if the recipe names a codec */
	uint8_t *pixels;
	uint64_t pixels_bytes;
	struct mapped segments[CODEC_MAX_SEGMENTS]; /* segments of the next order */
	uint32_t n_segments;
	struct mapped grant; /* {0}: none */
	struct recipe decoded_key;
	enum recipe_decoded decoded_copy;
};

/* Progress of an order. */
struct work {
	struct helper *h;
	uint64_t epoch;
	uint64_t grant_at;
	uint32_t n_done; /* items */
	struct codec_done *done;
};

/* One sample of an order. */
struct codec_sample {
	struct work *w;
	const uint8_t *data;
	uint32_t bytes;
	uint64_t sample;
	uint64_t location; /* location of its decoded copy, which another decoder wrote; 0: it has none */
	uint8_t *out;
	struct image_whole whole; /* the decoded copy that the sample has or could have */
	bool has_decoded;         /* the sample has or could have the decoded copy that `whole` describes */
	bool serves;              /* that decoded copy can serve this epoch's crop */
	uint8_t *space;           /* where to write a new decoded copy; NULL: make none */
	uint64_t made;            /* size of the decoded copy that was made */
	uint64_t begin_ns;        /* CPU time at which decoding began */
	struct error err;
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

/* Makes h->pixels large enough for an image of this size. 0 or -ENOMEM. */
static int make_space(struct helper *h, uint64_t width, uint64_t height)
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

/* Returns the address of a sample or a decoded copy, or NULL if `bytes` do not fit in its segment. */
static const uint8_t *find(const struct helper *h, uint64_t location, uint64_t bytes)
{
	uint64_t segment = location >> 32, offset = (uint32_t)location;

	if (segment < 1 || segment > h->n_segments || offset + bytes > h->segments[segment - 1].bytes)
		return NULL;
	return h->segments[segment - 1].data + offset;
}

/* Returns the size of a decoded copy, in bytes. */
static uint64_t decoded_bytes(const struct helper *h, const struct image_whole *whole)
{
	const struct recipe *r = &h->begin.recipe;

	return sizeof(struct codec_decoded) + (h->decoded_copy == RECIPE_DECODED_MADE
						   ? (uint64_t)r->width * r->height * IMAGE_CHANNELS
						   : image_whole_bytes(whole));
}

static void write_decoded(uint8_t *space, const struct image_whole *whole)
{
	const struct codec_decoded decoded_copy = {.width = whole->info.width,
						   .height = whole->info.height,
						   .kind = whole->info.kind,
						   .is_planes = whole->is_planes,
						   .h = whole->info.h,
						   .v = whole->info.v,
						   .by = whole->by};

	memcpy(space, &decoded_copy, sizeof(decoded_copy));
}

/* Reads the header of a decoded copy, which another decoder wrote and which is not trusted. Returns false if
 * there is no decoded copy, or its dimensions are invalid. */
static bool take_decoded(const struct helper *h, uint64_t location, struct image_whole *ret,
			 const uint8_t **ret_pixels)
{
	const uint8_t *data = location ? find(h, location, sizeof(struct codec_decoded)) : NULL;
	struct codec_decoded decoded_copy;

	if (!data || h->decoded_copy == RECIPE_DECODED_NONE)
		return false;
	memcpy(&decoded_copy, data, sizeof(decoded_copy));
	*ret = (struct image_whole){.info = {.kind = (enum image_kind)decoded_copy.kind,
					     .width = decoded_copy.width,
					     .height = decoded_copy.height,
					     .h = decoded_copy.h,
					     .v = decoded_copy.v},
				    .by = decoded_copy.by,
				    .is_planes = decoded_copy.is_planes};
	if (!decoded_copy.width || !decoded_copy.height ||
	    (uint64_t)decoded_copy.width * decoded_copy.height > IMAGE_PIXELS_MAX ||
	    (decoded_copy.by != 1 && decoded_copy.by != 2 && decoded_copy.by != 4 && decoded_copy.by != 8) ||
	    (decoded_copy.is_planes && decoded_copy.by != 1) || !find(h, location, decoded_bytes(h, ret)))
		return false;
	*ret_pixels = data + sizeof(decoded_copy);
	return true;
}

static struct recipe_place place_of(const struct codec_sample *j)
{
	const struct codec_begin *b = &j->w->h->begin;
	struct recipe_place place;

	recipe_place(&b->recipe, b->seed, j->w->epoch, j->sample, j->whole.info.width, j->whole.info.height,
		     &place);
	return place;
}

static bool is_served(const struct codec_sample *j)
{
	const struct helper *h = j->w->h;
	struct image_request request;
	struct recipe_place place;

	if (h->decoded_copy != RECIPE_DECODED_WHOLE)
		return h->decoded_copy == RECIPE_DECODED_MADE;
	place = place_of(j);
	request = decoded_scale_request(&h->begin.recipe, &place);
	return image_scale(&j->whole.info, &request) == j->whole.by;
}

/* Applies the steps that follow a decoded copy: colours, then conversion to numbers. */
static int finish(const struct codec_sample *j, const struct recipe_place *place, const uint8_t *pixels)
{
	struct helper *h = j->w->h;
	const struct recipe *recipe = &h->begin.recipe;
	size_t n = (size_t)recipe->width * recipe->height;
	struct recipe_colours colours;

	recipe_draw_colours(recipe, h->begin.seed, j->w->epoch, j->sample, &colours);
	if (colours.n > 0 || colours.grey) {
		if (pixels != h->pixels) {
			if (make_space(h, recipe->width, recipe->height) < 0)
				return -ENOMEM;
			memcpy(h->pixels, pixels, n * IMAGE_CHANNELS);
		}
		recipe_colour(&colours, h->pixels, n);
		pixels = h->pixels;
	}
	recipe_store(recipe, &h->table, place, pixels, j->out);
	return 0;
}

/* Produces the sample from a decoded copy that serves it. 0 or a negative errno. */
static int use_decoded(struct codec_sample *j, const uint8_t *pixels)
{
	struct helper *h = j->w->h;
	const struct recipe *recipe = &h->begin.recipe;
	struct recipe_place place = place_of(j);
	struct image_request request;
	int r;

	if (h->decoded_copy == RECIPE_DECODED_WHOLE) {
		request = decoded_scale_request(recipe, &place);
		if (make_space(h, recipe->width, recipe->height) < 0)
			return -ENOMEM;
		r = image_resize(h->decoder, &j->whole, pixels, &request, h->pixels, &j->err);
		if (r < 0)
			return r;
		pixels = h->pixels;
	}
	return finish(j, &place, pixels);
}

static void count(struct work *w, enum codec_way way, uint64_t begin_ns)
{
	w->done->ways[way].n++;
	w->done->ways[way].cpu_ns += clock_process_ns() - begin_ns;
}

static void count_prospect(const struct codec_sample *j)
{
	struct codec_prospect *p = &j->w->done->prospect;

	p->n++;
	p->n_served += j->serves;
	p->bytes += j->has_decoded ? decoded_bytes(j->w->h, &j->whole) : 0;
}

/* The steps of decoding. Each returns 0, a negative errno, or NEXT: this step does not apply. -EAGAIN: the
 * decoded copy does not fit after the others, but would fit in another grant. */
#define NEXT 1

/* Produces samples that never have a decoded copy here: a plug-in's and tensors. */
static int make_without_decoded(struct codec_sample *j)
{
	struct helper *h = j->w->h;
	const struct codec_begin *b = &h->begin;
	int r;

	if (!h->plugin.codec && !recipe_is_tensor(&b->recipe))
		return NEXT;
	if (h->plugin.codec) {
		r = plugin_decode(&h->plugin, j->data, j->bytes, recipe_seed(b->seed, j->w->epoch, j->sample),
				  &j->err);
		if (r < 0)
			error_prefix(&j->err, "codec %s", b->recipe.codec.name);
		else
			memcpy(j->out, h->plugin.out, h->item_bytes);
	} else {
		const struct tensor_visit visit = {b->seed, j->w->epoch, j->sample};

		r = tensor_make(&b->recipe, &visit, j->data, j->bytes, j->out, &j->err);
	}
	if (r == 0)
		count(j->w, CODEC_FRESH, j->begin_ns);
	return r;
}

static int take_out_of_decoded(struct codec_sample *j)
{
	const uint8_t *pixels;

	j->has_decoded = take_decoded(j->w->h, j->location, &j->whole, &pixels);
	j->serves = j->has_decoded && is_served(j);
	if (!j->serves || use_decoded(j, pixels) < 0)
		return NEXT;
	count(j->w, CODEC_FROM_DECODED, j->begin_ns);
	count_prospect(j);
	return 0;
}

/* Returns where to write the decoded copy of a sample that has none; NULL: do not make one now. */
static uint8_t *decoded_space(const struct codec_sample *j)
{
	const struct helper *h = j->w->h;
	uint64_t bytes = decoded_bytes(h, &j->whole);

	if (!h->grant.data || bytes > h->grant.bytes)
		return NULL;
	if (bytes <= h->grant.bytes - j->w->grant_at)
		return h->grant.data + j->w->grant_at;
	j->w->done->full = true;
	return NULL;
}

/* If the grant is full, ends the order: the next one begins with an empty grant. At least one item must be
 * done. */
static int go_on(const struct codec_sample *j)
{
	return j->w->done->full && j->w->n_done > 0 ? -EAGAIN : NEXT;
}

/* Identifies the image, and chooses the decoded copy that it could have. */
static int choose_decoded(struct codec_sample *j)
{
	const struct helper *h = j->w->h;
	struct image_info info;
	int r = image_probe(j->data, j->bytes, &info, &j->err);

	if (r < 0)
		return r;
	j->whole.info = info; /* our own result, not what another decoder wrote */
	if (!j->has_decoded) {
		j->whole = (struct image_whole){.info = info, .by = 1};
		j->has_decoded = h->decoded_copy == RECIPE_DECODED_WHOLE
				     ? decoded_scale_choose(&h->begin.recipe, &info, &j->whole)
				     : h->decoded_copy == RECIPE_DECODED_MADE;
		j->serves = j->has_decoded && is_served(j);
		/* If this epoch's crop is decoded at another scale, a crop of another epoch makes the decoded
		 * copy. */
		j->space = j->serves && !j->location ? decoded_space(j) : NULL;
	}
	return go_on(j);
}

/* Decodes the whole image: as planes if the image has them, else as pixels if they fit. */
static int decode_into(struct codec_sample *j, uint8_t *to)
{
	struct helper *h = j->w->h;
	struct error unused = ERROR_INIT;
	int r = image_decode_whole(h->decoder, j->data, j->bytes, &j->whole, to, &unused);

	if (r != -EOPNOTSUPP || !j->whole.is_planes)
		return r;
	j->whole.is_planes = false;
	if (decoded_bytes(h, &j->whole) > h->grant.bytes - j->w->grant_at) {
		/* Without this, the sample would be offered the same space in each epoch. */
		j->w->done->full = j->w->done->full || decoded_bytes(h, &j->whole) <= h->grant.bytes;
		return -ENOSPC;
	}
	return image_decode_whole(h->decoder, j->data, j->bytes, &j->whole, to, &unused);
}

/* Finishes a sample that was decoded without a decoded copy. */
static int finish_job(struct codec_sample *j)
{
	if (j->space)
		j->made = decoded_bytes(j->w->h, &j->whole);
	count(j->w, j->space ? CODEC_MADE_DECODED : j->serves ? CODEC_FRESH : CODEC_EXCLUDED, j->begin_ns);
	count_prospect(j);
	return 0;
}

/* Decodes the whole image into its decoded copy, and cuts the crop out of it. */
static int decode_whole(struct codec_sample *j)
{
	uint64_t begin_ns;
	uint8_t *pixels;

	if (!j->space || j->w->h->decoded_copy != RECIPE_DECODED_WHOLE)
		return NEXT;
	pixels = j->space + sizeof(struct codec_decoded);
	/* An error here is not final: damage behind the crop does not affect the crop. */
	if (decode_into(j, pixels) >= 0) {
		begin_ns = clock_process_ns();
		if (use_decoded(j, pixels) >= 0) {
			count(j->w, CODEC_OUT_OF_IT, begin_ns);
			write_decoded(j->space, &j->whole);
			return finish_job(j);
		}
	}
	j->space = NULL;
	return go_on(j);
}

/* Decodes only the crop, and caches its pixels if there is space. */
static int decode_crop(struct codec_sample *j)
{
	struct helper *h = j->w->h;
	const struct recipe *recipe = &h->begin.recipe;
	struct recipe_place place = place_of(j);
	struct image_request request = decoded_scale_request(recipe, &place);
	uint64_t begin_ns;
	int r;

	if (make_space(h, recipe->width, recipe->height) < 0)
		return error_set(&j->err, -ENOMEM, "an image of %u x %u pixels takes too much memory",
				 j->whole.info.width, j->whole.info.height);
	r = image_decode(h->decoder, j->data, j->bytes, &request, h->pixels, &j->err);
	if (r < 0)
		return r;
	if (j->space) {
		write_decoded(j->space, &j->whole);
		memcpy(j->space + sizeof(struct codec_decoded), h->pixels,
		       (size_t)recipe->width * recipe->height * IMAGE_CHANNELS);
	}
	begin_ns = clock_process_ns();
	r = finish(j, &place, h->pixels);
	if (r < 0)
		return r;
	if (j->space)
		count(j->w, CODEC_OUT_OF_IT, begin_ns);
	return finish_job(j);
}

/* Lists the names of fields for an error. */
static void list_fields(struct fields_walk w, char *text, size_t size)
{
	struct field f;
	size_t n = 0;

	text[0] = '\0';
	while (n < size && fields_next(&w, &f) > 0) {
		char name[64];

		n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "",
				      text_printable(name, sizeof(name), f.name, f.name_length));
	}
}

/* Narrows the sample to the field that is decoded. */
static int narrow_to_field(struct codec_sample *j)
{
	const struct codec_begin *b = &j->w->h->begin;
	size_t length = strnlen(b->field, sizeof(b->field));
	struct fields_walk walk, all;
	struct field f;
	char name[80], there[160];
	int r;

	if (length == 0)
		return NEXT;
	if (chunk_layout_has_columns((enum chunk_layout)b->sample_layout)) {
		const void *value;
		size_t bytes;

		if (column_value(&b->column, j->data, j->bytes, &value, &bytes) < 0)
			return error_set(&j->err, -EBADMSG, "its fields are damaged");
		j->data = value;
		j->bytes = (uint32_t)bytes;
		return NEXT;
	}
	r = fields_begin(&walk, (enum chunk_layout)b->sample_layout, (struct columns){0}, j->data, j->bytes);
	all = walk;
	while (r == 0 && (r = fields_next(&walk, &f)) > 0) {
		if (f.name_length == length && memcmp(f.name, b->field, length) == 0) {
			j->data = f.data;
			j->bytes = (uint32_t)f.bytes;
			return NEXT;
		}
		r = 0;
	}
	if (r < 0)
		return error_set(&j->err, -EBADMSG, "its fields are damaged");
	list_fields(all, there, sizeof(there));
	return error_set(&j->err, -EBADMSG, "it has no field '%s', but %s",
			 text_printable(name, sizeof(name), b->field, length), there[0] ? there : "none");
}

/* Cheapest first. */
static int (*const decode_steps[])(struct codec_sample *) = {
    narrow_to_field, make_without_decoded, take_out_of_decoded, choose_decoded, decode_whole, decode_crop};

static int decode(struct codec_sample *j)
{
	int r = NEXT;

	j->begin_ns = clock_process_ns();
	for (size_t i = 0; r == NEXT; i++)
		r = decode_steps[i](j);
	return r;
}

/* Returns the heap memory that malloc() got from the system, both used and free. */
static uint64_t heap_bytes(void)
{
#if __GLIBC_PREREQ(2, 33)
	struct mallinfo2 m = mallinfo2();
#else
	struct mallinfo m = mallinfo(); /* MEMORY_BYTES fits in the int fields */
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
	struct work w = {.h = h, .epoch = o->epoch, .grant_at = o->grant_offset, .done = done};
	uint64_t begin_ns = clock_process_ns();
	uint32_t i = o->first;

	*done = (struct codec_done){.error = ERROR_INIT};
	if (o->slot >= h->begin.n_slots || o->end > h->begin.batch ||
	    (h->grant.data && o->grant_offset > h->grant.bytes))
		return -EPROTO;
	for (; i < o->end && clock_process_ns() - begin_ns < CODEC_SLICE_NS; i++) {
		struct codec_sample j = {.w = &w,
					 .data = find(h, items[i].location, items[i].bytes),
					 .bytes = items[i].bytes,
					 .sample = items[i].sample,
					 .location = (uint64_t)labels[i],
					 .out = payload + i * h->item_bytes,
					 .err = ERROR_INIT};
		int r;

		if (!j.data)
			return -EPROTO;
		setitimer(ITIMER_PROF, &limit, NULL);
		r = decode(&j);
		if (r == -EAGAIN)
			break;
		if (r < 0 && h->begin.recipe.damage == RECIPE_DAMAGE_ERROR) {
			done->status = r;
			done->item = i;
			done->error = j.err;
			break;
		}
		if (r < 0) {
			memset(j.out, 0, h->item_bytes);
			items[i].bytes = 0;
			if (done->n_damaged++ == 0) {
				done->item = i;
				done->error = j.err;
			}
		}
		labels[i] = r < 0 ? 0 : (int64_t)j.made;
		w.grant_at += (uint64_t)(labels[i] + CODEC_DECODED_ALIGN - 1) / CODEC_DECODED_ALIGN *
			      CODEC_DECODED_ALIGN;
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
		return 0;
	recipe_table_make(&b->recipe, &h->table);
	h->decoded_copy = recipe_decoded(&b->recipe, &h->decoded_key);
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

static int daemon_fd; /* for on_late(): a signal handler has no argument for it */

/* Reports that the sample's time is up, and exits without returning to the decoder. */
static void on_late(int number)
{
	static struct codec_message m = {.type = CODEC_LATE};

	(void)number;
	(void)fd_message_send(daemon_fd, &m, sizeof(m), NULL, 0, MSG_DONTWAIT);
	_exit(1);
}

/* Opens the plug-in. -ESTALE: its output format differs from the one for which the session was opened. */
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
		return error_set(
		    err, -ESTALE,
		    "the codec's output has changed since the loader was created: create the loader again");
	return r;
}

static int say_ready(struct helper *h, int plugin_fd)
{
	const struct sandbox_limits limits = {.memory_bytes = MEMORY_BYTES, .serves = true};
	struct codec_message m = {.type = CODEC_READY};
	struct codec_done *done = &m.done;

	done->error = ERROR_INIT;
	if (plugin_fd >= 0)
		done->status = plugin_load(plugin_fd, h->item_bytes, &h->plugin, &done->error);
	daemon_fd = h->fd;
	signal(SIGPROF, on_late);
	heap_bytes(); /* with a sanitizer, glibc's own heap is not set up yet, and that needs system calls
			 that the sandbox forbids */
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
