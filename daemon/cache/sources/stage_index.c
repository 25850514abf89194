/* SPDX-License-Identifier: Apache-2.0 */
#include "stage_index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hash.h"
#include "lib/list.h"

#define MIN_BUCKETS 256

static uint64_t hash_of(const struct staged_key *key)
{
	uint64_t hash = hash_bytes(HASH_START ^ key->folder_ino ^ key->folder_dev << 40, key->id.bytes,
				   sizeof(key->id.bytes));

	return hash ^ hash >> 32;
}

static bool is_same(const struct staged_key *a, const struct staged_key *b)
{
	return a->folder_dev == b->folder_dev && a->folder_ino == b->folder_ino &&
	       memcmp(&a->id, &b->id, sizeof(a->id)) == 0;
}

uint64_t staged_file_bytes(const struct staged *f)
{
	return stager_file_bytes(f->stamp.bytes);
}

/* All numbers are hexadecimal. The device of the chunk's file is that of its folder. */
static void format_name(const struct staged_key *key, uint32_t uid, const struct access_stamp *s,
			char name[STAGER_NAME_BYTES])
{
	char id[CHUNK_ID_TEXT];

	chunk_id_format(&key->id, id);
	snprintf(name, STAGER_NAME_BYTES,
		 "%s.%" PRIx32 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64
		 ".%" PRIx64 ".%" PRIx64,
		 id, uid, key->folder_dev, key->folder_ino, s->ino, s->bytes, (uint64_t)s->changed_s,
		 s->changed_ns, (uint64_t)s->written_s, s->written_ns);
}

void staged_name(const struct staged *f, char name[STAGER_NAME_BYTES])
{
	format_name(&f->key, f->set->uid, &f->stamp, name);
}

/* A name is ours only if it is exactly the name that we would have given the file. */
static bool parse_name(const char *name, struct staged_key *key, uint32_t *ret_uid, struct access_stamp *s)
{
	char id[CHUNK_ID_TEXT] = "", again[STAGER_NAME_BYTES];
	uint64_t changed_s, written_s;

	*key = (struct staged_key){.folder_dev = 0};
	_Static_assert(CHUNK_ID_TEXT == 33, "the format string below uses 32");
	if (sscanf(name,
		   "%32[0-9a-f].%" SCNx32 ".%" SCNx64 ".%" SCNx64 ".%" SCNx64 ".%" SCNx64 ".%" SCNx64
		   ".%" SCNx64 ".%" SCNx64 ".%" SCNx64,
		   id, ret_uid, &key->folder_dev, &key->folder_ino, &s->ino, &s->bytes, &changed_s,
		   &s->changed_ns, &written_s, &s->written_ns) != 10 ||
	    chunk_id_parse(id, &key->id) < 0)
		return false;
	s->dev = key->folder_dev;
	s->changed_s = (int64_t)changed_s;
	s->written_s = (int64_t)written_s;
	format_name(key, *ret_uid, s, again);
	return strcmp(name, again) == 0;
}

struct staged *stage_index_find(const struct stage_index *x, const struct staged_key *key)
{
	struct staged *f = x->n_buckets ? x->buckets[hash_of(key) & (x->n_buckets - 1)] : NULL;

	while (f && !is_same(&f->key, key))
		f = f->same_hash;
	return f;
}

bool stage_index_goes(const struct stage_index *x, const struct staged_key *key,
		      const struct access_stamp *stamp)
{
	const struct staged *f = x->going;

	while (f && !(is_same(&f->key, key) && access_stamp_equal(&f->stamp, stamp)))
		f = f->next;
	return f;
}

static bool grow(struct stage_index *x)
{
	uint64_t n = x->n_buckets ? 2 * x->n_buckets : MIN_BUCKETS;
	struct staged **buckets = calloc(n, sizeof(*buckets));

	if (!buckets)
		return false;
	for (uint64_t i = 0; i < x->n_buckets; i++) {
		for (struct staged *f = x->buckets[i], *next; f; f = next) {
			struct staged **bucket = &buckets[hash_of(&f->key) & (n - 1)];

			next = f->same_hash;
			f->same_hash = *bucket;
			*bucket = f;
		}
	}
	free(x->buckets);
	x->buckets = buckets;
	x->n_buckets = n;
	return true;
}

static struct staged_set *set_for(struct stage_index *x, const struct staged_key *key, uint32_t uid)
{
	struct staged_set *s = x->sets;

	while (s && !(s->folder_dev == key->folder_dev && s->folder_ino == key->folder_ino && s->uid == uid))
		s = s->next;
	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	*s = (struct staged_set){
	    .next = x->sets, .folder_dev = key->folder_dev, .folder_ino = key->folder_ino, .uid = uid};
	x->sets = s;
	return s;
}

/* Frees a set that has no files left. */
static void set_leave(struct stage_index *x, struct staged_set *s)
{
	if (s->bytes > 0)
		return;
	LL_DELETE(x->sets, s);
	free(s);
}

struct staged *stage_index_add(struct stage_index *x, const struct staged_key *key, uint32_t uid,
			       const struct access_stamp *stamp, int64_t used_s)
{
	struct staged *f, **bucket;

	if (stamp->bytes == 0 || (x->n >= x->n_buckets && !grow(x)))
		return NULL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->key = *key;
	f->stamp = *stamp;
	f->set = set_for(x, key, uid);
	if (!f->set) {
		free(f);
		return NULL;
	}
	bucket = &x->buckets[hash_of(key) & (x->n_buckets - 1)];
	LL_PREPEND2(*bucket, f, same_hash);
	DL_PREPEND(f->set->first, f);
	if (f->set->used_s < used_s)
		f->set->used_s = used_s;
	f->set->bytes += staged_file_bytes(f);
	x->bytes += staged_file_bytes(f);
	x->n++;
	return f;
}

struct staged *stage_index_add_name(struct stage_index *x, const char *name, int64_t used_s)
{
	struct access_stamp stamp;
	struct staged_key key;
	struct staged *f;
	uint32_t uid;

	if (!parse_name(name, &key, &uid, &stamp))
		return NULL;
	f = stage_index_find(x, &key);
	if (f)
		stage_index_retire(x, f);
	f = stage_index_add(x, &key, uid, &stamp, used_s);
	if (f)
		f->state = STAGED_READY;
	return f;
}

/* Removes the file from the hash table and from its set's list. */
static void unlink_file(struct stage_index *x, struct staged *f)
{
	struct staged **bucket = &x->buckets[hash_of(&f->key) & (x->n_buckets - 1)];

	LL_DELETE2(*bucket, f, same_hash);
	DL_DELETE(f->set->first, f);
	x->n--;
}

void stage_index_retire(struct stage_index *x, struct staged *f)
{
	if (f->state == STAGED_GOING || f->state == STAGED_LOST)
		return;
	unlink_file(x, f);
	f->state = STAGED_GOING;
	LL_PREPEND(x->going, f);
}

void stage_index_drop(struct stage_index *x, struct staged *f)
{
	if (f->state == STAGED_GOING) {
		LL_DELETE(x->going, f);
	} else {
		unlink_file(x, f);
	}
	x->bytes -= staged_file_bytes(f);
	f->set->bytes -= staged_file_bytes(f);
	set_leave(x, f->set);
	free(f);
}

static void lose(struct stage_index *x, struct staged *f)
{
	if (f->refs == 0) {
		stage_index_drop(x, f);
		return;
	}
	stage_index_retire(x, f);
	x->going = f->next;
	x->bytes -= staged_file_bytes(f);
	f->set->bytes -= staged_file_bytes(f);
	set_leave(x, f->set);
	f->set = NULL;
	f->next = NULL;
	f->state = STAGED_LOST;
}

void stage_index_clear(struct stage_index *x)
{
	while (x->going)
		lose(x, x->going);
	while (x->sets)
		lose(x, x->sets->first);
	free(x->buckets);
	*x = (struct stage_index){.n = 0};
}

uint64_t stage_index_bytes_of(const struct stage_index *x, uint32_t uid)
{
	uint64_t bytes = 0;

	for (const struct staged_set *s = x->sets; s; s = s->next)
		bytes += s->uid == uid ? s->bytes : 0;
	return bytes;
}
