/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/repair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/chunk_id.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"
#include "lib/units.h"
#include "repair_private.h"

#define TEXT_BYTES 1024

static struct broken *broken_of(const struct repair *r, size_t *ret_n)
{
	*ret_n = r->broken.bytes / sizeof(struct broken);
	return (struct broken *)r->broken.data;
}

struct repair_collector {
	struct repair *repair;
	bool no_memory;
};

static void collect_damage(const struct verify_damage *d, void *context)
{
	struct repair_collector *c = context;
	const struct verify_callbacks *callbacks = &c->repair->options->verify;
	struct broken b = {0};

	if (d->is_unread) {
		c->repair->result.n_unrepaired++;
	} else if (d->chunk) {
		b.id = *d->chunk;
		c->no_memory |= buffer_append(&c->repair->broken, &b, sizeof(b)) < 0;
	} else if (d->snapshot_only) {
		c->repair->snapshot_damaged = true;
	} else {
		c->repair->metadata_damaged = true;
	}
	callbacks->damage(d, callbacks->context);
}

static void pass_note(const char *text, void *context)
{
	const struct verify_callbacks *callbacks =
	    &((struct repair_collector *)context)->repair->options->verify;

	callbacks->note(text, callbacks->context);
}

static void pass_progress(const char *what, uint64_t done, uint64_t n_chunks, uint64_t bytes, void *context)
{
	const struct verify_callbacks *callbacks =
	    &((struct repair_collector *)context)->repair->options->verify;

	if (callbacks->progress)
		callbacks->progress(what, done, n_chunks, bytes, callbacks->context);
}

static int compare_broken(const void *a, const void *b)
{
	return chunk_id_compare(&((const struct broken *)a)->id, &((const struct broken *)b)->id);
}

/* Sorts the damaged chunks and removes duplicates, since a chunk may have several damages. */
static void sort_broken(struct repair *r)
{
	size_t n, kept = 0;
	struct broken *b = broken_of(r, &n);

	if (n)
		qsort(b, n, sizeof(*b), compare_broken);
	for (size_t i = 0; i < n; i++)
		if (kept == 0 || compare_broken(&b[kept - 1], &b[i]) != 0)
			b[kept++] = b[i];
	r->broken.bytes = kept * sizeof(*b);
}

static int find_damage(struct repair *r, const char *path, struct error *err)
{
	struct repair_collector collector = {.repair = r};
	const struct verify_callbacks callbacks = {
	    .damage = collect_damage, .note = pass_note, .progress = pass_progress, .context = &collector};
	int result = verify_dataset(path, &callbacks, &r->result.verified, err);

	if (result == 0 && collector.no_memory)
		result = error_errno(err, -ENOMEM, "cannot list the damaged chunks of %s", path);
	if (result == 0)
		sort_broken(r);
	return result;
}

static int learn_chunk(const struct meta_chunk *chunk, void *context)
{
	struct repair *r = context;
	size_t n;
	struct broken *all = broken_of(r, &n);
	struct broken *b =
	    n ? bsearch(&(struct broken){.id = chunk->id}, all, n, sizeof(*all), compare_broken) : NULL;

	if (!b)
		return 0;
	b->meta = *chunk;
	b->is_external = chunk->flags & CHUNK_FLAG_EXTERNAL;
	b->has_meta = b->has_head = true;
	b->head_xxh3 = chunk->head_xxh3;
	b->has_sha256 = chunk->has_sha256;
	b->sha256 = chunk->sha256;
	return 0;
}

/* The metadata takes precedence; the snapshot is used where the metadata has no entry. */
static int learn(struct repair *r, struct error *err)
{
	size_t n;
	struct broken *all = broken_of(r, &n);
	struct snapshot_chunk chunk;
	int result = r->meta ? meta_each_chunk(r->meta, learn_chunk, r, err) : 0;

	for (uint64_t i = 0; result == 0 && r->snapshot && snapshot_chunk_get(r->snapshot, i, &chunk) == 0;
	     i++) {
		struct broken *b =
		    n ? bsearch(&(struct broken){.id = chunk.id}, all, n, sizeof(*all), compare_broken)
		      : NULL;

		if (!b || b->has_head)
			continue;
		b->has_head = true;
		b->is_external = chunk.is_external;
		b->head_xxh3 = chunk.head_xxh3;
		b->has_sha256 = chunk.has_sha256;
		b->sha256 = chunk.sha256;
	}
	return result;
}

static void tell(const struct repair *r, const struct repair_chunk *c)
{
	if (r->options->chunk)
		r->options->chunk(c, r->options->context);
}

/* Appends the origins of the parts, as in "; from A, B". */
static void add_origins(const struct repair_image *image, char *text, size_t size)
{
	const char *const *names = (const char *const *)image->names.data;
	size_t n = strlen(text);

	for (size_t i = 0; i < image->names.bytes / sizeof(*names) && n + 1 < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : ", from ", names[i]);
}

static void describe(const struct repair *r, const struct repair_image *image, const char *name,
		     uint32_t n_foreign, char *text, size_t size)
{
	uint32_t n = image->view.header->n_records;

	if (n_foreign == 0 && !image->head)
		snprintf(text, size, "%s %s restored as it was packed: all of its samples were intact", name,
			 r->options->dry_run ? "would be" : "was");
	else
		snprintf(text, size, "%s %s repaired: %s%u of %u sample%s", name,
			 r->options->dry_run ? "would be" : "was", image->head ? image->head : "", n_foreign,
			 n, units_plural(n));
}

static struct iovec file_of(const struct repair_image *image)
{
	return image->file ? (struct iovec){image->file, image->file_bytes}
			   : (struct iovec){image->data, image->bytes};
}

/* Returns true if the file in the store equals the image. Then the metadata or snapshot that differs from it
 * is wrong. */
static bool is_there(const struct repair *r, const struct chunk_id *id, const struct repair_image *image)
{
	struct store *store = r->origins[0].store;
	_cleanup_(freep) unsigned char *now = NULL;
	const struct iovec file = file_of(image);
	uint64_t bytes;

	return store_size(store, id, &bytes, NULL) == 0 && bytes == file.iov_len &&
	       (now = malloc(bytes ? bytes : 1)) && store_read(store, id, 0, now, bytes, NULL) == 0 &&
	       memcmp(now, file.iov_base, bytes) == 0;
}

static void repair_one(struct repair *r, const struct broken *b)
{
	struct store *store = r->origins[0].store;
	struct repair_image image = {0};
	struct error why = ERROR_INIT;
	char name[STORE_NAME_MAX], text[TEXT_BYTES] = "";
	struct repair_chunk told = {.id = &b->id, .text = text};
	struct iovec file;
	int result = b->is_external
			 ? error_set(&why, -EBADMSG,
				     "its samples are in another file, as `dieselctl verify` names it: run "
				     "`dieselctl index` again")
			 : repair_image_make(r, b, &image, &why);

	if (result == 0)
		result = repair_image_store(store, &image, &why);
	file = file_of(&image);
	store_describe(store, &b->id, name);
	if (image.view.header) {
		told.n_records = image.view.header->n_records;
		told.n_samples = image.n_samples;
	}
	if (result == 0 && is_there(r, &b->id, &image)) {
		r->metadata_damaged = true;
		snprintf(text, sizeof(text),
			 "%s is unchanged since it was packed; the metadata or snapshot that describes it is "
			 "wrong",
			 name);
		told.repaired = true;
		tell(r, &told);
		repair_image_free(&image);
		return;
	}
	if (result == 0 && !r->options->dry_run)
		result = store_replace(store, &b->id, &file, 1, &why);
	if (result == 0) {
		describe(r, &image, name, image.n_samples, text, sizeof(text));
		add_origins(&image, text, sizeof(text));
		r->result.n_repaired++;
	} else {
		snprintf(text, sizeof(text), "%s cannot be repaired: %s", name,
			 why.text[0] ? why.text : strerror(-result));
		r->result.n_unrepaired++;
	}
	told.repaired = result == 0;
	tell(r, &told);
	repair_image_free(&image);
}

static int repair_chunks(struct repair *r, struct error *err)
{
	size_t n;
	const struct broken *all = broken_of(r, &n);
	uint64_t bytes = 0;
	int result = learn(r, err);

	for (size_t i = 0; i < n && result == 0; i++) {
		repair_one(r, &all[i]);
		bytes += all[i].meta.file_bytes;
		if (r->options->progress)
			r->options->progress("repairing", i + 1, n, bytes, r->options->context);
	}
	return result;
}

static void snapshot_closep(struct snapshot **s)
{
	snapshot_close(*s);
}

static void meta_freep(struct meta **m)
{
	meta_free(*m);
}

static struct snapshot *open_snapshot(const struct place *place)
{
	struct snapshot *s = NULL;

	if (snapshot_open_at(place->dir_fd, place->folder, &s, NULL) < 0)
		return NULL;
	if (snapshot_verify(s, NULL) < 0) {
		snapshot_close(s);
		return NULL;
	}
	return s;
}

/* Chunks are replaced under the writer's lock, if the metadata can still be written to. If it cannot, no
 * writer except a rebuild can change anything. */
static int repair_locked(struct repair *r, const char *path, struct error *err)
{
	_cleanup_(writer_freep) struct writer *w = NULL;
	_cleanup_(meta_freep) struct meta *meta = NULL;
	_cleanup_(snapshot_closep) struct snapshot *snapshot = open_snapshot(r->origins[0].place);
	int result = -EBADMSG;

	r->snapshot = snapshot;
	if (!r->options->dry_run) {
		result = writer_open(path, WRITER_CHANGE, CHUNK_DEFAULT_BYTES, &w, err);
		if (result < 0 && result != -EBADMSG && result != -ESTALE)
			return result;
		if (result < 0)
			r->metadata_damaged = true;
	}
	if (result == 0) {
		result = writer_hold(w, err);
		if (result < 0)
			return result;
		r->meta = writer_meta(w);
	} else if (meta_open_at(r->origins[0].place->dir_fd, r->origins[0].place->folder, META_READ, &meta,
				NULL) == 0) {
		r->meta = meta;
	}
	if (result < 0 && !r->options->dry_run)
		result = store_sweep(r->origins[0].store, err);
	else
		result = 0;
	if (result == 0)
		result = repair_chunks(r, err);
	r->meta = NULL;
	r->snapshot = NULL;
	return result;
}

static void pass_lost(const struct chunk_id *id, const char *text, void *context)
{
	const struct repair *r = context;

	(void)id;
	r->options->verify.note(text, r->options->verify.context);
}

/* Rebuilds metadata and snapshot, or only the snapshot. All chunks are intact now. */
static int make_again(struct repair *r, const char *path, bool snapshot_only, struct error *err)
{
	_cleanup_(writer_freep) struct writer *w = NULL;
	struct writer_result committed;
	uint64_t n_lost = 0;
	int result =
	    writer_open(path, snapshot_only ? WRITER_CHANGE : WRITER_REBUILD, CHUNK_DEFAULT_BYTES, &w, err);

	if (result == 0)
		writer_show(w, r->options->progress, r->options->context);
	if (result == 0 && snapshot_only)
		return writer_snapshot(w, err);
	if (result == 0)
		writer_set_command(w, r->options->command);
	if (result == 0)
		result = writer_rebuild(w, pass_lost, r, &n_lost, err);
	if (result == 0 && n_lost) /* damaged since they were verified */
		result = error_set(err, -EBADMSG, "%llu chunk%s cannot be read", (unsigned long long)n_lost,
				   units_plural(n_lost));
	return result < 0 ? result : writer_commit(w, &committed, err);
}

static int repair_metadata(struct repair *r, const char *path, struct error *err)
{
	bool snapshot_only = !r->metadata_damaged && !r->origins[0].place->ops;
	const char *what = snapshot_only ? "the snapshot" : "metadata and snapshot";
	char text[TEXT_BYTES];
	struct repair_chunk told = {.text = text, .repaired = r->result.n_unrepaired == 0};
	struct error why = ERROR_INIT;

	(void)err;
	if (!r->metadata_damaged && !r->snapshot_damaged)
		return 0;
	if (!told.repaired) {
		snprintf(text, sizeof(text),
			 "%s cannot be rebuilt while chunks are damaged; `dieselctl rebuild` leaves the "
			 "damaged chunks out",
			 what);
	} else if (r->options->dry_run) {
		snprintf(text, sizeof(text), "%s would be rebuilt from the chunks", what);
	} else if (make_again(r, path, snapshot_only, &why) < 0) {
		told.repaired = false;
		snprintf(text, sizeof(text), "%s cannot be rebuilt: %s", what, why.text);
	} else {
		snprintf(text, sizeof(text), "%s rebuilt", what);
	}
	if (told.repaired)
		r->result.n_repaired++;
	else
		r->result.n_unrepaired++;
	tell(r, &told);
	return 0;
}

/* Opens an origin. -ENOENT, -EACCES and the like; -ENOTDIR: neither a dataset nor a folder. */
static int repair_origin_open(const char *name, struct repair_origin *ret, struct error *err)
{
	struct repair_origin o = {.name = name, .source_fd = -EBADF};
	_cleanup_(closep) int fd = -EBADF;
	int r;

	if (!backend_is_elsewhere(name)) {
		fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return error_errno(err, -errno,
					   "cannot open %s, a replica or a source to repair from", name);
		if (!meta_is_dataset(fd)) {
			o.source_fd = steal_fd(&fd);
			*ret = o;
			return 0;
		}
	}
	r = backend_open(name, BACKEND_SNAPSHOT, &o.place, err);
	if (r == 0)
		r = backend_store(o.place, false, &o.store, err);
	if (r < 0) {
		repair_origin_close(&o);
		return r;
	}
	*ret = o;
	return 0;
}

static int open_origins(struct repair *r, const char *path, struct error *err)
{
	r->origins = calloc(r->options->n_from + 1, sizeof(*r->origins));
	if (!r->origins)
		return error_errno(err, -ENOMEM, "%s", path);
	for (size_t i = 0; i < r->options->n_from; i++) {
		int result = repair_origin_open(r->options->from[i], &r->origins[i + 1], err);

		if (result < 0)
			return result;
		r->n_origins = i + 2;
	}
	return 0;
}

static int open_dataset(struct repair *r, const char *path, struct error *err)
{
	struct repair_origin *own = &r->origins[0];
	int result;

	own->name = path;
	own->source_fd = -EBADF;
	result = backend_open(path, BACKEND_READ, &own->place, err);
	if (result == 0 && !own->place->ops && !r->options->dry_run)
		backend_open_folder(own->place, true);
	if (result == 0)
		result = backend_store(own->place, false, &own->store, err);
	if (result == 0 && r->n_origins == 0)
		r->n_origins = 1;
	return result;
}

static int run(struct repair *r, const char *path, struct error *err)
{
	int result = open_origins(r, path, err);

	if (result == 0)
		result = find_damage(r, path, err);
	if (result < 0)
		return result;
	if (r->options->verified)
		r->options->verified(&r->result.verified, r->options->context);
	if (r->result.verified.n_damages == 0)
		return 0;
	result = open_dataset(r, path, err);
	if (result == 0)
		result = repair_locked(r, path, err);
	return result < 0 ? result : repair_metadata(r, path, err);
}

int repair_dataset(const char *dataset_path, const struct repair_options *options, struct repair_result *ret,
		   struct error *err)
{
	struct repair r = {.options = options};
	int result = run(&r, dataset_path, err);

	for (size_t i = 0; r.origins && i <= options->n_from; i++)
		if (r.origins[i].name)
			repair_origin_close(&r.origins[i]);
	free(r.origins);
	buffer_free(&r.broken);
	if (result == 0)
		*ret = r.result;
	return result;
}
