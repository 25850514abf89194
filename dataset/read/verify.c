/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/verify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataset/checksum/checksum.h"
#include "dataset/blocks.h"
#include "dataset/chunk_id.h"
#include "dataset/columns.h"
#include "dataset/dataset.h"
#include "dataset/meta.h"
#include "dataset/backend.h"
#include "dataset/external.h"
#include "dataset/snapshot.h"
#include "dataset/store.h"
#include "lib/cleanup.h"
#include "lib/text.h"
#include "lib/units.h"

/* No chunk that a pack makes is longer: it holds several samples, or one of the greatest length. The samples
 * of a longer file are read one by one. */
#define WHOLE_MAX_BYTES ((uint64_t)CHUNK_SAMPLE_MAX_BYTES + CHUNK_MAX_BYTES)

struct verify {
	const struct verify_callbacks *callbacks;
	struct verify_result result;
	struct store *store;
	bool in_bucket;
	const struct snapshot *snapshot; /* NULL: missing or damaged, and reported already */
	struct meta *meta;               /* NULL: missing or damaged, and reported already */
	struct meta_info info;
	struct chunk_id newest; /* newest chunk of all versions */
	struct store_object *objects;
	size_t n_objects;
	size_t next_object;     /* place in objects while the metadata's chunks are compared with them */
	struct live_sums *sums; /* sums of each object; NULL: metadata and snapshot cannot be compared */
	unsigned char *buffer;
	size_t buffer_bytes;
	bool columns_differ; /* reported already */
};

/* Sums over the records of a chunk's live samples, in any order, in the metadata and in the chunk. Comparing
 * the sums compares all metadata of the samples without keeping the metadata in memory. */
struct live_sums {
	uint64_t in_meta, in_chunk;
};

/* A chunk's file that is being checked. */
struct chunk_file {
	const struct store_object *object;
	const char *name;
	unsigned char *whole; /* the whole plain form; NULL: too long to be held in memory */
	uint64_t whole_bytes;
	void *head;         /* to be freed; NULL: the head is in `whole` */
	void *plain;        /* to be freed; NULL: `whole` is the file, in the buffer */
	uint32_t n_damaged; /* blocks that cannot be decompressed; they are zeros in the plain form */
	struct chunk_view view;
};

static void damage(struct verify *v, const struct verify_damage *d)
{
	if (d->is_unread)
		v->result.n_unread++;
	else
		v->result.n_damages++;
	v->callbacks->damage(d, v->callbacks->context);
}

static void damage_text(struct verify *v, const struct chunk_id *chunk, const char *text)
{
	damage(v, &(struct verify_damage){.chunk = chunk, .text = text});
}

static void failed(struct verify *v, const struct chunk_id *chunk, const struct error *err)
{
	damage(v, &(struct verify_damage){
		      .chunk = chunk, .is_unread = !chunk_is_damage(err->code), .text = err->text});
}

/* Metadata and snapshots that are missing can be made again. */
static void failed_index(struct verify *v, bool is_snapshot, const struct error *err)
{
	damage(v, &(struct verify_damage){.is_unread = !chunk_is_damage(err->code) && err->code != -ENOENT,
					  .snapshot_only = is_snapshot,
					  .text = err->text});
}

static void *read_part(struct verify *v, const struct chunk_id *id, uint64_t offset, uint64_t bytes,
		       struct error *err)
{
	if (bytes > v->buffer_bytes || !v->buffer) {
		unsigned char *grown = realloc(v->buffer, bytes ? bytes : 1);

		if (!grown) {
			error_errno(err, -ENOMEM, "chunk of %llu bytes", (unsigned long long)bytes);
			return NULL;
		}
		v->buffer = grown;
		v->buffer_bytes = bytes;
	}
	v->result.bytes += bytes;
	return store_read(v->store, id, offset, v->buffer, bytes, err) < 0 ? NULL : v->buffer;
}

static void check_record(struct verify *v, const struct chunk_view *view, uint32_t i, const void *stored,
			 const char *name)
{
	const struct chunk_record *r = &view->records[i];
	struct error err = ERROR_INIT;

	v->result.n_records++;
	if (chunk_verify_record(view, i, stored, name, &err) == 0)
		return;
	damage(v, &(struct verify_damage){
		      .chunk = &view->header->id,
		      .path = view->names + r->name_offset,
		      .path_length = r->name_length,
		      .offset = r->offset,
		      .text = err.text,
		  });
}

static void check_samples(struct verify *v, const struct chunk_file *f)
{
	const struct chunk_header *h = f->view.header;

	if (h->flags & CHUNK_FLAG_TOMBSTONE || (h->flags & CHUNK_FLAG_EXTERNAL && !f->plain))
		return;
	for (uint32_t i = 0; i < h->n_records; i++) {
		const struct chunk_record *r = &f->view.records[i];
		struct error err = ERROR_INIT;
		const void *stored =
		    f->whole ? f->whole + r->offset : read_part(v, &h->id, r->offset, r->stored_bytes, &err);

		if (stored)
			check_record(v, &f->view, i, stored, f->name);
		else
			failed(v, &h->id, &err);
	}
}

/* Returns false if the snapshot does not have the chunk: no sample in it is live. */
static bool find_snapshot_chunk(const struct verify *v, const struct chunk_id *id, struct snapshot_chunk *ret)
{
	uint64_t low = 0, high = v->snapshot ? snapshot_info(v->snapshot)->n_chunks : 0;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		snapshot_chunk_get(v->snapshot, middle, ret);
		int order = chunk_id_compare(&ret->id, id);

		if (order == 0)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static uint64_t sum_of(const struct chunk_record *r, uint32_t index, const char *path, size_t path_length)
{
	const uint64_t fields[] = {r->offset,   r->bytes,    r->stored_bytes,
				   r->xxh3,     r->mtime_ns, r->mode,
				   r->encoding, index,       checksum_xxh3(path, path_length)};

	return checksum_xxh3(fields, sizeof(fields));
}

static int compare_object(const void *id, const void *object)
{
	return chunk_id_compare(id, &((const struct store_object *)object)->id);
}

/* Returns the sums of a chunk. NULL: the chunk is not in the store. */
static struct live_sums *sums_of(const struct verify *v, const struct chunk_id *id)
{
	const struct store_object *found =
	    v->sums && v->n_objects
		? bsearch(id, v->objects, v->n_objects, sizeof(*v->objects), compare_object)
		: NULL;

	return found ? &v->sums[found - v->objects] : NULL;
}

/* Compares the layout of all samples, and its columns. */
static void check_columns(struct verify *v, const struct chunk_header *h)
{
	const struct snapshot_info *info = snapshot_info(v->snapshot);
	struct columns columns;

	if (v->columns_differ || (chunk_layout_of(h->flags) == info->layout &&
				  chunk_columns(h, &columns) == 0 && columns_equal(columns, info->columns)))
		return;
	v->columns_differ = true;
	damage(v, &(struct verify_damage){
		      .snapshot_only = true,
		      .text =
			  "the snapshot has another layout of the samples than the chunks, or other columns; "
			  "run `dieselctl rebuild`"});
}

/* Compares the snapshot's samples of this chunk with its records. */
static void check_snapshot_chunk(struct verify *v, const struct chunk_view *view, const char *name)
{
	struct live_sums *sums = sums_of(v, &view->header->id);
	struct snapshot_chunk chunk;
	struct snapshot_sample s;
	char text[512];

	if (!find_snapshot_chunk(v, &view->header->id, &chunk))
		return;
	if (chunk.head_xxh3 != view->header->head_xxh3 || chunk.file_bytes != view->header->file_bytes) {
		snprintf(text, sizeof(text),
			 "%s is not the file that the snapshot describes; restore it, or run "
			 "`dieselctl rebuild`",
			 name);
		damage_text(v, &view->header->id, text);
		return;
	}
	check_columns(v, view->header);
	for (uint64_t i = 0; i < chunk.n_samples; i++) {
		if (snapshot_sample_get(v->snapshot, chunk.first_sample + i, &s) < 0)
			continue; /* cannot happen: snapshot_verify() has passed */
		const struct chunk_record *r =
		    s.record < view->header->n_records ? &view->records[s.record] : NULL;

		if (r && r->offset == s.offset && r->bytes == s.bytes && r->xxh3 == s.xxh3 &&
		    r->name_length == s.path_length &&
		    !memcmp(view->names + r->name_offset, s.path, s.path_length)) {
			if (sums)
				sums->in_chunk += sum_of(r, s.record, s.path, s.path_length);
			continue;
		}
		snprintf(text, sizeof(text),
			 "%s: sample %llu of the snapshot does not match record %u of the chunk; run "
			 "`dieselctl rebuild`",
			 name, (unsigned long long)(chunk.first_sample + i), s.record);
		damage_text(v, &view->header->id, text);
	}
}

static int find_digest(struct verify *v, const struct chunk_file *f, struct digest *ret, struct error *err)
{
	const struct iovec whole = {f->whole, f->whole_bytes};
	int r;

	if (!f->whole) {
		v->result.bytes += f->object->bytes;
		return store_digest(v->store, &f->object->id, ret, err);
	}
	r = digest_of(&whole, 1, ret);
	return r < 0 ? error_errno(err, r, "cannot compute the SHA-256 of %s", f->name) : 0;
}

/* Compares the file's digest with those in the metadata and the snapshot. */
static void check_digest(struct verify *v, const struct chunk_file *f, const struct meta_chunk *known)
{
	const struct chunk_id *id = &f->object->id;
	struct snapshot_chunk chunk;
	struct digest found;
	struct error err = ERROR_INIT;
	char text[STORE_NAME_MAX + 128];
	bool in_meta = known && known->has_sha256;
	bool in_snapshot = find_snapshot_chunk(v, id, &chunk) && chunk.has_sha256;

	if (!in_meta && !in_snapshot)
		return;
	if (find_digest(v, f, &found, &err) < 0) {
		failed(v, id, &err);
		return;
	}
	bool meta_differs = in_meta && !digest_equal(&found, &known->sha256);

	if (!meta_differs && !(in_snapshot && !digest_equal(&found, &chunk.sha256)))
		return;
	snprintf(text, sizeof(text),
		 "%s is not the file that was packed (its SHA-256 is not the one in the %s)", f->name,
		 meta_differs ? "metadata" : "snapshot");
	damage_text(v, id, text);
}

static int read_head(struct verify *v, struct chunk_file *f, struct error *err)
{
	const struct store_object *object = f->object;
	uint64_t needed;
	int r;

	if (f->whole)
		return store_parse_head(v->store, object, f->whole, object->bytes, &f->view, &needed, err);
	r = store_read_head(v->store, &object->id, &f->head, &f->view, err);
	if (r == 0)
		v->result.bytes += f->view.header->payload_offset;
	return r;
}

/* Makes the plain form, which all later checks use. The head was parsed before. */
static int make_plain(struct chunk_file *f, struct error *err)
{
	int r = chunk_make_plain(f->whole, f->name, &f->plain, &f->n_damaged, err);

	if (r < 0)
		return r;
	f->whole = f->plain;
	f->whole_bytes = f->view.header->file_bytes;
	return chunk_parse_plain(f->whole, f->whole_bytes, f->name, &f->view, err);
}

static bool has_flag(const struct chunk_file *f, uint32_t flag)
{
	return f->whole && f->whole_bytes >= sizeof(struct chunk_header) &&
	       (((const struct chunk_header *)(const void *)f->whole)->flags & flag);
}

/* Makes the plain form of an external chunk, whose head was parsed before. */
static int read_source(struct verify *v, struct chunk_file *f, struct error *err)
{
	_cleanup_(freep) struct external *source = malloc(sizeof(*source));
	uint64_t head_bytes = f->view.header->payload_offset, bytes = f->view.header->file_bytes;
	struct external_maker maker;
	int r;

	f->plain = malloc(bytes);
	if (!f->plain || !source)
		return error_errno(err, -ENOMEM, "%s", f->name);
	r = store_read_made(v->store, &f->object->id, f->plain, head_bytes, &maker, err);
	if (r == 0 && memcmp(f->plain, f->whole, head_bytes) != 0)
		r = error_set(err, -EBADMSG, "%s changed while it was read", f->name);
	if (r < 0)
		return r;
	r = external_in_head(f->view.header, source);
	if (r < 0)
		return error_errno(err, r, "%s", f->name);
	source->maker = maker;
	r = external_read(source, 0, (unsigned char *)f->plain + head_bytes, bytes - head_bytes, err);
	if (r < 0)
		return r;
	v->result.bytes += source->range.bytes;
	f->whole = f->plain;
	f->whole_bytes = bytes;
	return chunk_parse_plain(f->whole, bytes, f->name, &f->view, err);
}

/* Reads the head, and compares the chunk's digest with the known ones. A compressed chunk's digest is that of
 * its plain form, which needs the head to be made. */
static int check_form(struct verify *v, struct chunk_file *f, const struct meta_chunk *known,
		      struct error *err)
{
	bool compressed = has_flag(f, CHUNK_FLAG_COMPRESSED), external = has_flag(f, CHUNK_FLAG_EXTERNAL);
	int r;

	if (!compressed)
		check_digest(v, f, known);
	r = read_head(v, f, err);
	if (r == 0 && compressed)
		r = make_plain(f, err);
	/* The source of a chunk without live samples may be gone. */
	if (r == 0 && external && find_snapshot_chunk(v, &f->object->id, &(struct snapshot_chunk){0}))
		r = read_source(v, f, err);
	if (r == 0 && compressed)
		check_digest(v, f, known);
	return r;
}

static void check_blocks(struct verify *v, const struct chunk_file *f, uint64_t n_damages)
{
	char text[STORE_NAME_MAX + 128];

	/* Usually the samples in damaged blocks were reported already. */
	if (f->n_damaged == 0 || v->result.n_damages > n_damages)
		return;
	snprintf(text, sizeof(text), "%s: %u of its blocks cannot be decompressed", f->name, f->n_damaged);
	damage_text(v, &f->object->id, text);
}

static bool is_described(const struct meta_chunk *known, const struct chunk_header *h)
{
	return known->head_xxh3 == h->head_xxh3 && known->file_bytes == h->file_bytes &&
	       known->created_ns == h->created_ns && known->n_records == h->n_records &&
	       known->payload_offset == h->payload_offset && known->flags == h->flags;
}

/* Reports that the metadata and the chunk differ about the chunk's samples. */
static void check_sums(struct verify *v, const struct chunk_id *id, const char *name)
{
	const struct live_sums *sums = sums_of(v, id);
	char text[STORE_NAME_MAX + 128];

	if (!sums || sums->in_meta == sums->in_chunk)
		return;
	snprintf(text, sizeof(text),
		 "the metadata and %s disagree about the chunk's samples; run `dieselctl rebuild`", name);
	damage_text(v, NULL, text);
}

/* Checks everything about a file with one read of it. */
static void check_file(struct verify *v, struct chunk_file *f, const struct meta_chunk *known)
{
	const struct chunk_id *id = &f->object->id;
	char text[STORE_NAME_MAX + 128];
	struct error err = ERROR_INIT;
	uint64_t n_damages;

	if (f->object->bytes <= WHOLE_MAX_BYTES) {
		f->whole = read_part(v, id, 0, f->object->bytes, &err);
		if (!f->whole) {
			failed(v, id, &err);
			return;
		}
		f->whole_bytes = f->object->bytes;
	}
	if (check_form(v, f, known, &err) < 0) {
		failed(v, id, &err);
		return;
	}
	if (known && !is_described(known, f->view.header)) {
		snprintf(text, sizeof(text),
			 "%s is not the file that the metadata describes; restore it, or run "
			 "`dieselctl rebuild`",
			 f->name);
		damage_text(v, id, text);
	}
	check_snapshot_chunk(v, &f->view, f->name);
	check_sums(v, id, f->name);
	n_damages = v->result.n_damages;
	check_samples(v, f);
	check_blocks(v, f, n_damages);
}

static void check_chunk(struct verify *v, const struct store_object *object, const struct meta_chunk *known)
{
	char name[STORE_NAME_MAX];
	struct chunk_file f = {.object = object, .name = store_describe(v->store, &object->id, name)};

	v->result.n_chunks++;
	check_file(v, &f, known);
	free(f.head);
	free(f.plain);
}

static void progress(const struct verify *v)
{
	if (v->callbacks->progress)
		v->callbacks->progress("verifying", v->result.n_chunks, v->n_objects, v->result.bytes,
				       v->callbacks->context);
}

/* Reports a chunk in the store that the metadata does not know. */
static void check_unknown(struct verify *v, const struct store_object *object)
{
	char name[STORE_NAME_MAX], text[STORE_NAME_MAX + 160];

	uint64_t n_damages = v->result.n_damages;

	check_chunk(v, object, NULL);
	progress(v);
	if (!v->meta)
		return;
	/* In a bucket a writer leaves no mark before it begins. */
	bool pending = v->in_bucket
			   ? chunk_id_compare(&object->id, &v->newest) > 0
			   : v->info.has_pending && chunk_id_compare(&object->id, &v->info.pending) >= 0;

	snprintf(text, sizeof(text), "%s is not in the metadata: %s",
		 store_describe(v->store, &object->id, name),
		 pending ? "a pack is running, or was interrupted and continues when you run the same command"
		 : v->in_bucket ? "it belongs to no version, and `dieselctl purge` removes it"
		 : v->result.n_damages > n_damages
		     ? "no sample of the dataset is in it; restore it if you can, or remove it"
		     : "run `dieselctl rebuild` to add its samples, or remove it");
	v->callbacks->note(text, v->callbacks->context);
}

static int check_known(const struct meta_chunk *chunk, void *context)
{
	struct verify *v = context;
	char name[STORE_NAME_MAX], text[STORE_NAME_MAX + 128];

	while (v->next_object < v->n_objects &&
	       chunk_id_compare(&v->objects[v->next_object].id, &chunk->id) < 0)
		check_unknown(v, &v->objects[v->next_object++]);
	if (v->next_object < v->n_objects && !chunk_id_compare(&v->objects[v->next_object].id, &chunk->id)) {
		check_chunk(v, &v->objects[v->next_object++], chunk);
		progress(v);
		return 0;
	}
	snprintf(text, sizeof(text), "%s is missing (%u sample%s); restore it, or run `dieselctl rebuild`",
		 store_describe(v->store, &chunk->id, name), chunk->n_records,
		 units_plural(chunk->n_records));
	damage_text(v, &chunk->id, text);
	return 0;
}

/* Compares a path of the metadata with the snapshot, which was compared with the chunks before. */
static int check_path(const struct meta_path *path, void *context)
{
	struct verify *v = context;
	struct snapshot_sample s;
	struct snapshot_chunk chunk;
	uint64_t number;
	char printable[200], text[512];

	if (snapshot_find(v->snapshot, path->path, path->path_length, &number) == 0 &&
	    snapshot_sample_get(v->snapshot, number, &s) == 0 &&
	    snapshot_chunk_get(v->snapshot, s.chunk, &chunk) == 0 &&
	    chunk_id_compare(&chunk.id, &path->chunk) == 0 && s.record == path->record_index &&
	    s.offset == path->record.offset && s.xxh3 == path->record.xxh3 && s.bytes == path->record.bytes) {
		struct live_sums *sums = sums_of(v, &path->chunk);

		if (sums)
			sums->in_meta +=
			    sum_of(&path->record, path->record_index, path->path, path->path_length);
		return 0;
	}
	snprintf(text, sizeof(text), "metadata and snapshot disagree about '%s'; run `dieselctl rebuild`",
		 text_printable(printable, sizeof(printable), path->path, path->path_length));
	damage(v,
	       &(struct verify_damage){.path = path->path, .path_length = path->path_length, .text = text});
	return 0;
}

static void open_metadata(struct verify *v, const struct place *place, struct snapshot **ret_snapshot)
{
	struct error err = ERROR_INIT;

	if (snapshot_open_at(place->dir_fd, place->folder, ret_snapshot, &err) == 0 &&
	    snapshot_verify(*ret_snapshot, &err) == 0)
		v->snapshot = *ret_snapshot;
	else
		failed_index(v, true, &err);
	if (meta_open_at(place->dir_fd, place->folder, META_CHECK, &v->meta, &err) < 0 ||
	    meta_info(v->meta, &v->info, &err) < 0) {
		failed_index(v, false, &err);
		meta_free(v->meta);
		v->meta = NULL;
	}
}

static int take_change(const struct change *change, void *context)
{
	struct verify *v = context;

	if (change->has_newest && chunk_id_compare(&change->newest, &v->newest) > 0)
		v->newest = change->newest;
	return 0;
}

static void check_log(struct verify *v)
{
	struct error err = ERROR_INIT;

	v->newest = v->info.newest;
	if (meta_each_change(v->meta, take_change, v, &err) < 0)
		failed_index(v, false, &err);
}

static void check_agreement(struct verify *v)
{
	const struct snapshot_info *info = snapshot_info(v->snapshot);
	struct error err = ERROR_INIT;
	char text[200];

	if (info->version > v->info.version) {
		snprintf(text, sizeof(text),
			 "the metadata has version %llu, the snapshot the newer version %llu: run `dieselctl "
			 "rebuild`",
			 (unsigned long long)v->info.version, (unsigned long long)info->version);
		damage_text(v, NULL, text);
		return;
	}
	if (info->version != v->info.version) {
		/* A crash between the two commits leaves this state. It is no damage: the older snapshot is
		 * intact. */
		snprintf(
		    text, sizeof(text),
		    "the snapshot has version %llu, the metadata has version %llu: run `dieselctl snapshot`",
		    (unsigned long long)info->version, (unsigned long long)v->info.version);
		v->callbacks->note(text, v->callbacks->context);
		return;
	}
	if (v->info.n_chunks && info->has_digests != v->info.has_digests) {
		snprintf(text, sizeof(text), "the %s has digests, the %s has none: run `dieselctl rebuild`",
			 info->has_digests ? "snapshot" : "metadata",
			 info->has_digests ? "metadata" : "snapshot");
		damage_text(v, NULL, text);
	}
	if (info->n_samples != v->info.n_paths) {
		snprintf(text, sizeof(text),
			 "the snapshot has %llu samples, the metadata %llu: run `dieselctl rebuild`",
			 (unsigned long long)info->n_samples, (unsigned long long)v->info.n_paths);
		damage_text(v, NULL, text);
	}
	v->sums = calloc(v->n_objects + 1, sizeof(*v->sums)); /* without this memory, less is compared */
	if (meta_each_path(v->meta, check_path, v, &err) < 0)
		failed_index(v, false, &err);
}

/* Checks that the store has all chunks of the snapshot, for datasets without metadata. */
static void check_snapshot_has(struct verify *v)
{
	char name[STORE_NAME_MAX], text[STORE_NAME_MAX + 128];
	struct snapshot_chunk chunk;
	uint64_t bytes;

	for (uint64_t i = 0; snapshot_chunk_get(v->snapshot, i, &chunk) == 0; i++) {
		if (store_size(v->store, &chunk.id, &bytes, NULL) != -ENOENT)
			continue;
		snprintf(text, sizeof(text), "%s is missing (%u sample%s); restore it",
			 store_describe(v->store, &chunk.id, name), chunk.n_samples,
			 units_plural(chunk.n_samples));
		damage_text(v, &chunk.id, text);
	}
}

/* Checks the chunks of one version. */
static void check_version(struct verify *v)
{
	struct error err = ERROR_INIT;
	struct snapshot_chunk chunk;
	size_t n = 0;

	if (snapshot_verify(v->snapshot, &err) < 0) {
		failed_index(v, true, &err);
		return;
	}
	check_snapshot_has(v);
	for (size_t i = 0; i < v->n_objects; i++)
		if (find_snapshot_chunk(v, &v->objects[i].id, &chunk))
			v->objects[n++] = v->objects[i];
	v->n_objects = n;
	for (size_t i = 0; i < n; i++) {
		check_chunk(v, &v->objects[i], NULL);
		progress(v);
	}
}

int verify_version(const char *dataset_path, uint64_t version, const struct verify_callbacks *callbacks,
		   struct verify_result *ret, struct error *err)
{
	struct verify v = {.callbacks = callbacks};
	struct dataset *d = NULL;
	int r = dataset_open_version(dataset_path, version, &d, err);

	if (r < 0)
		return r;
	v.snapshot = dataset_snapshot(d);
	v.store = dataset_store(d);
	r = store_list(v.store, NULL, &v.objects, &v.n_objects, err);
	if (r == 0)
		check_version(&v);
	dataset_close(d);
	free(v.objects);
	free(v.buffer);
	if (r == 0)
		*ret = v.result;
	return r;
}

static int check_all(struct verify *v, const struct place *place, struct snapshot **ret_snapshot,
		     struct error *err)
{
	struct error meta_err = ERROR_INIT;
	int r = store_list(v->store, NULL, &v->objects, &v->n_objects, err);

	if (r < 0)
		return r;
	open_metadata(v, place, ret_snapshot);
	if (v->meta)
		check_log(v);
	if (v->snapshot && v->meta)
		check_agreement(v);
	else if (v->snapshot)
		check_snapshot_has(v);
	if (v->meta && meta_each_chunk(v->meta, check_known, v, &meta_err) < 0)
		failed_index(v, false, &meta_err);
	while (v->next_object < v->n_objects)
		check_unknown(v, &v->objects[v->next_object++]);
	return 0;
}

int verify_dataset(const char *dataset_path, const struct verify_callbacks *callbacks,
		   struct verify_result *ret, struct error *err)
{
	struct verify v = {.callbacks = callbacks};
	struct snapshot *snapshot = NULL;
	struct place *place = NULL;
	struct stat st;

	if (!backend_is_elsewhere(dataset_path) && stat(dataset_path, &st) < 0)
		return error_errno(err, -errno, "there is no dataset %s", dataset_path);
	int r = backend_open(dataset_path, BACKEND_READ, &place, err);

	if (r < 0)
		return r;
	r = backend_store(place, false, &v.store, err);
	if (r == -ENOENT || r == -ENOTDIR)
		r = error_set(err, r,
			      "%s is not a dataset, because it has no chunks; make one with `dieselctl pack`",
			      dataset_path);
	v.in_bucket = place->ops;
	if (r == 0)
		r = check_all(&v, place, &snapshot, err);
	meta_free(v.meta);
	snapshot_close(snapshot);
	store_free(v.store);
	backend_close(place);
	free(v.objects);
	free(v.sums);
	free(v.buffer);
	if (r == 0)
		*ret = v.result;
	return r;
}
