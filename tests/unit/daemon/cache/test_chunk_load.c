/* SPDX-License-Identifier: Apache-2.0 */
/* Loads one chunk into memory, from a real file, by a real reader, through real workers. */
#include "real_cache.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "dataset/chunk.h"
#include "dataset/subset.h"
#include "daemon/cluster/net_frame.h"
#include "dataset/lookup/snapshot_format.h"
#include "lib/cleanup.h"

#define N_CHUNKS 4
#define WITHIN   (2 * CHUNK_ALIGN) /* an offset within the samples' bytes */

static const struct dataset_plan
    plain = {.n_samples = N_CHUNKS * 3, .bytes = 40000, .spread = 4000, .n_a_chunk = 3},
    digested = {.n_samples = N_CHUNKS, .bytes = 40000, .n_a_chunk = 1, .digests = true},
    with_gaps = {.n_samples = N_CHUNKS * 3, .bytes = 40000, .spread = 4000, .n_a_chunk = 3, .digests = true},
    many = {.n_samples = 64, .bytes = 110000, .spread = 1000, .n_a_chunk = 32},
    many_digested = {.n_samples = 64, .bytes = 110000, .n_a_chunk = 32, .digests = true};

struct fixture {
	struct real_cache f;
	struct cache *cache;
	struct cached_dataset *d;
	struct chunk_place *place;
	char *path;
};

static void open_made(struct fixture *f)
{
	f->cache = &f->f.cache;
	f->d = real_cache_open(&f->f, f->path, &f->place);
	f->d->refs = f->d->n_sessions = 1;
	f->d->need_bytes = f->d->segment_bytes;
	cache_fit(f->cache);
	f->cache->round++;
}

static void start(struct fixture *f, const char *root, const struct dataset_plan *plan)
{
	real_cache_start(&f->f);
	f->path = make_dataset(root, "data", plan);
	open_made(f);
}

static void stop(struct fixture *f)
{
	f->place = place_unref(f->place);
	f->d->refs = f->d->n_sessions = 0;
	free(f->path);
	real_cache_stop(&f->f);
}

static const struct cached_want all;

static int load(struct fixture *f, uint64_t chunk)
{
	return cache_load(f->cache, f->d, chunk, 0, f->f.job, f->place, &all);
}

static bool is_over(void *cache)
{
	return ((struct cache *)cache)->n_loading == 0;
}

static enum chunk_state finish(struct fixture *f, uint64_t chunk)
{
	loop_until(&f->f.loop, is_over, f->cache);
	real_cache_check(f->cache);
	assert_int_equal(f->d->loads.n, 0);
	assert_int_equal(f->d->loads.n_verifying, 0);
	assert_int_equal(f->d->loads.bytes, 0);
	assert_int_equal(f->f.job->n_reading, 0);
	return f->d->chunks[chunk].state;
}

/* Asserts that all samples of the chunk are in its segment, where the snapshot places them. */
static void check_samples(const struct fixture *f, uint64_t chunk)
{
	struct snapshot_chunk meta;

	assert_int_equal(snapshot_chunk_get(f->d->snapshot, chunk, &meta), 0);
	assert_true(meta.n_samples > 0);
	for (uint64_t i = 0; i < meta.n_samples; i++) {
		struct snapshot_sample s;

		assert_int_equal(snapshot_sample_get(f->d->snapshot, meta.first_sample + i, &s), 0);
		assert_true(is_sample(f->d->chunks[chunk].segment->memory.data + s.offset, s.bytes,
				      strtoull(s.path + 2, NULL, 10)));
	}
}

static void check_sample(const struct fixture *f, const uint8_t *segment, uint64_t number)
{
	struct snapshot_sample s;

	assert_int_equal(snapshot_sample_get(f->d->snapshot, number, &s), 0);
	assert_true(is_sample(segment + s.offset, s.bytes, strtoull(s.path + 2, NULL, 10)));
}

/* Returns the subset of a dataset of 64 samples whose bits are set. */
static struct subset *subset_of(uint64_t bits)
{
	uint64_t *words = malloc(sizeof(*words));
	struct subset *s;

	*words = bits;
	assert_int_equal(subset_new(64, words, &s), 0);
	return s;
}

/* Asserts that the segment has only these samples and the head. */
static void check_only(const struct fixture *f, uint64_t chunk, const struct subset *of)
{
	const uint8_t *data = f->d->chunks[chunk].segment->memory.data;
	struct snapshot_chunk meta;

	assert_int_equal(snapshot_chunk_get(f->d->snapshot, chunk, &meta), 0);
	for (uint64_t i = meta.first_sample; i < meta.first_sample + meta.n_samples; i++) {
		struct snapshot_sample s;

		assert_int_equal(snapshot_sample_get(f->d->snapshot, i, &s), 0);
		if (subset_next(of, i) == i) {
			check_sample(f, data, i);
			continue;
		}
		for (uint32_t k = 0; k < s.bytes; k++) {
			if (data[s.offset + k] != 0)
				fail_msg("sample %llu is not wiped", (unsigned long long)i);
		}
	}
}

static int load_part(struct fixture *f, uint64_t chunk, const struct subset *of)
{
	const struct cached_want want = {.subset = of};

	return cache_load(f->cache, f->d, chunk, 0, f->f.job, f->place, &want);
}

static bool lacks(const struct fixture *f, uint64_t chunk, const struct subset *of)
{
	return cached_lacks(f->d, chunk, &(struct cached_want){.subset = of});
}

/* Flips a bit of the chunk's file. A second call restores the file. */
static void flip(const struct fixture *f, uint64_t chunk, off_t offset)
{
	_cleanup_(freep) char *path = real_cache_file(f->d, f->path, chunk);
	uint8_t byte;

	assert_int_equal(chmod(path, 0644), 0);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &byte, 1, offset), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
	close(fd);
}

TEST_IN_FOLDER(read_and_verified)
{
	const struct job_counters *counters;
	struct fixture f;
	uint64_t bytes = 0;

	start(&f, *state, &plain);
	counters = &f.f.job->counters;
	for (uint64_t i = 0; i < N_CHUNKS; i++) {
		struct snapshot_chunk meta;

		assert_int_equal(snapshot_chunk_get(f.d->snapshot, i, &meta), 0);
		bytes += meta.file_bytes;
		assert_true(cached_is_missing(&f.d->chunks[i]));
		assert_int_equal(load(&f, i), 0);
		assert_int_equal(f.d->chunks[i].state, CHUNK_READING);
		assert_false(cached_is_missing(&f.d->chunks[i]));
		assert_false(cache_is_ready(f.d->chunks[i].segment));
	}
	assert_int_equal(f.cache->n_loading, N_CHUNKS);
	assert_int_equal(f.d->loads.bytes, N_CHUNKS * f.d->segment_bytes);
	assert_int_equal(cache_loading_bytes(f.cache, getuid()), f.d->loads.bytes);
	assert_int_equal(cache_loading_bytes(f.cache, getuid() + 1), 0);
	assert_int_equal(cache_stuck_bytes(f.cache, CACHE_ANYBODY), 0);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	for (uint64_t i = 0; i < N_CHUNKS; i++) {
		assert_int_equal(f.d->chunks[i].state, CHUNK_READY);
		check_samples(&f, i);
		assert_true(f.d->chunks[i].segment->stamp.bytes > 0);
	}
	assert_int_equal(f.cache->counters.reads, N_CHUNKS);
	assert_int_equal(f.cache->counters.read_bytes, bytes);
	assert_int_equal(counters->chunk_reads, N_CHUNKS);
	assert_int_equal(counters->read_bytes, bytes);
	assert_int_equal(counters->n_read, N_CHUNKS);
	assert_true(f.f.n_changes >= 2 * N_CHUNKS);
	stop(&f);
}

struct seen {
	struct fixture *f;
	enum chunk_state state;
};

static bool has_state(void *user)
{
	const struct seen *s = user;

	return s->f->d->chunks[0].state == s->state;
}

/* A damaged chunk is read once more, and then quarantined with the reason. It is not retried by itself, but
 * after it may have been repaired, a request retries it. */
TEST_IN_FOLDER(a_damaged_chunk_is_read_again_and_quarantined)
{
	struct fixture f;

	start(&f, *state, &plain);
	flip(&f, 0, WITHIN);
	assert_int_equal(load(&f, 0), 0);
	loop_until(&f.f.loop, has_state, &(struct seen){&f, CHUNK_VERIFYING});
	assert_non_null(f.d->chunks[0].segment);
	assert_int_equal(finish(&f, 0), CHUNK_BAD);
	assert_null(f.d->chunks[0].segment);
	assert_int_equal(f.cache->segment_bytes, 0);
	assert_int_equal(f.cache->counters.reads, 2);
	assert_int_equal(f.cache->counters.damaged, 1);
	assert_int_equal(f.d->loads.n_bad, 1);
	assert_int_equal(f.d->chunks[0].retry_ns, 0);
	assert_non_null(strstr(f.d->chunks[0].error, "checksum"));
	/* The other chunks are not affected. */
	assert_int_equal(load(&f, 1), 0);
	assert_int_equal(finish(&f, 1), CHUNK_READY);
	cached_forget_errors(f.d);
	assert_int_equal(f.d->loads.n_bad, 0);
	assert_true(cached_is_missing(&f.d->chunks[0]));
	flip(&f, 0, WITHIN);
	assert_int_equal(load(&f, 0), 0);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	check_samples(&f, 0);
	stop(&f);
}

/* Flips bits of a word of a sample's record in the dataset's snapshot. */
static void spoil_record(const char *path, uint64_t sample, size_t at, uint64_t flipped)
{
	char *name;
	struct snapshot_header header;
	uint64_t word;

	assert_true(asprintf(&name, "%s/" SNAPSHOT_FILE, path) > 0);
	int fd = open(name, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	at += header.sections[SNAPSHOT_RECORDS].offset + sample * sizeof(struct snapshot_record);
	assert_int_equal(pread(fd, &word, sizeof(word), (off_t)at), sizeof(word));
	word ^= flipped;
	assert_int_equal(pwrite(fd, &word, sizeof(word), (off_t)at), sizeof(word));
	close(fd);
	free(name);
}

/* When a large snapshot is opened, only its tables are verified. A wrong record shows when its chunk is read,
 * and only there. */
TEST_IN_FOLDER(a_wrong_record_shows_when_its_chunk_is_read)
{
	static const struct {
		size_t at;
		uint64_t flipped;
		const char *says;
	} wrong[] = {
	    /* The position of its name is in another class, or nowhere. */
	    {offsetof(struct snapshot_record, path), 1 << 6, "differs from the snapshot"},
	    {offsetof(struct snapshot_record, path), UINT64_C(1) << 39, "has no record for sample 1:"},
	    {offsetof(struct snapshot_record, stored), 8, "differs from the snapshot"}, /* its length */
	    {offsetof(struct snapshot_record, stored), 1 << 30, "has no record for sample 1:"},
	    {offsetof(struct snapshot_record, stored), UINT64_C(1) << 32,
	     "differs from the snapshot"}, /* its position in the chunk */
	    {offsetof(struct snapshot_record, stored), UINT64_C(1) << 59, "has no record for sample 1:"},
	    {offsetof(struct snapshot_record, xxh3), 1, "differs from the snapshot"},
	};
	struct dataset_plan two = plain;

	two.n_classes = 2;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char root[4096];
		struct fixture f;

		snprintf(root, sizeof(root), "%s/%zu", (const char *)*state, i);
		assert_int_equal(mkdir(root, 0755), 0);
		real_cache_start(&f.f);
		f.path = make_dataset(root, "data", &two);
		spoil_record(f.path, 1, wrong[i].at, wrong[i].flipped);
		open_made(&f);
		assert_int_equal(load(&f, 0), 0);
		assert_int_equal(finish(&f, 0), CHUNK_BAD);
		if (!strstr(f.d->chunks[0].error, wrong[i].says) ||
		    !strstr(f.d->chunks[0].error, "run `dieselctl verify`"))
			fail_msg("%zu: %s", i, f.d->chunks[0].error);
		assert_int_equal(load(&f, 1), 0);
		assert_int_equal(finish(&f, 1), CHUNK_READY);
		check_samples(&f, 1);
		stop(&f);
	}
}

/* The file is repaired between the first read and the second, so the damage has no effect. */
TEST_IN_FOLDER(damage_on_the_way)
{
	struct fixture f;

	start(&f, *state, &plain);
	flip(&f, 0, WITHIN);
	assert_int_equal(load(&f, 0), 0);
	loop_until(&f.f.loop, has_state, &(struct seen){&f, CHUNK_VERIFYING});
	flip(&f, 0, WITHIN);
	loop_until(&f.f.loop, has_state, &(struct seen){&f, CHUNK_READING});
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	assert_int_equal(f.cache->counters.reads, 2);
	assert_int_equal(f.cache->counters.damaged, 0);
	check_samples(&f, 0);
	stop(&f);
}

static void fail_with(struct fixture *f, uint64_t chunk, const char *says)
{
	assert_int_equal(load(f, chunk), 0);
	assert_int_equal(finish(f, chunk), CHUNK_BAD);
	if (!strstr(f->d->chunks[chunk].error, says))
		fail_msg("\"%s\" does not say: %s", f->d->chunks[chunk].error, says);
	assert_non_null(strstr(f->d->chunks[chunk].error, f->path));
}

/* Other faults of a file, and their error messages. */
TEST_IN_FOLDER(each_wrong_file_is_told_by_its_fault)
{
	char *first, *second, *third;
	struct fixture f;

	start(&f, *state, &plain);
	first = real_cache_file(f.d, f.path, 0);
	second = real_cache_file(f.d, f.path, 1);
	third = real_cache_file(f.d, f.path, 2);
	assert_int_equal(unlink(first), 0);
	fail_with(&f, 0, "No such file");
	assert_int_equal(f.d->chunks[0].failure, -ENOENT); /* missing, which it need not stay */
	assert_true(f.d->chunks[0].retry_ns > 0);
	/* The file is a valid chunk, but another one of the same length. */
	assert_int_equal(link(third, first), 0);
	cached_forget_errors(f.d);
	assert_int_equal(load(&f, 0), 0);
	assert_int_equal(finish(&f, 0), CHUNK_BAD);
	assert_int_equal(unlink(first), 0);
	assert_int_equal(truncate(second, 4096), 0);
	fail_with(&f, 1, "truncated");
	flip(&f, 2, 0); /* its magic */
	fail_with(&f, 2, "chunk");
	assert_int_equal(f.d->loads.n_bad, 3);
	free(first);
	free(second);
	free(third);
	stop(&f);
}

/* The checksums are right, but it is another file than the packed one. Its digest shows that. */
TEST_IN_FOLDER(another_file_with_right_checksums)
{
	struct fixture f;
	struct snapshot_chunk meta;

	start(&f, *state, &digested);
	assert_int_equal(load(&f, 1), 0);
	assert_int_equal(finish(&f, 1), CHUNK_READY);
	/* No checksum covers the bytes after the last sample. */
	assert_int_equal(snapshot_chunk_get(f.d->snapshot, 0, &meta), 0);
	flip(&f, 0, (off_t)meta.file_bytes - 1);
	fail_with(&f, 0, "is not the file that was packed");
	stop(&f);
}

TEST_IN_FOLDER(the_same_without_digests)
{
	struct snapshot_chunk meta;
	struct fixture f;

	start(&f, *state, &plain);
	assert_int_equal(snapshot_chunk_get(f.d->snapshot, 0, &meta), 0);
	flip(&f, 0, (off_t)meta.file_bytes - 1);
	assert_int_equal(load(&f, 0), 0);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	check_samples(&f, 0);
	stop(&f);
}

/* A read error may be temporary. Unlike damage, it is retried after a while. */
TEST_IN_FOLDER(a_read_that_fails)
{
	struct fixture f;

	start(&f, *state, &plain);
	_cleanup_(freep) char *path = real_cache_file(f.d, f.path, 0);
	assert_int_equal(chmod(path, 0), 0); /* stricter than the snapshot's permissions */
	assert_int_equal(load(&f, 0), 0);
	assert_int_equal(finish(&f, 0), CHUNK_BAD);
	assert_true(f.d->chunks[0].retry_ns > 0);
	assert_int_equal(f.cache->counters.reads, 2);
	assert_int_equal(f.f.job->counters.read_bytes, 0);
	assert_int_equal(chmod(path, 0644), 0);
	/* A request after that time loads the chunk. */
	assert_int_equal(load(&f, 0), 0);
	assert_int_equal(f.d->loads.n_bad, 0);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	stop(&f);
}

/* If no reader can be started, the state is as if nothing had been requested. */
TEST_IN_FOLDER(without_a_reader_nothing_was_asked_for)
{
	struct fixture f;

	start(&f, *state, &plain);
	f.cache->readers.max = 0;
	assert_int_equal(load(&f, 0), -EAGAIN);
	assert_int_equal(f.d->chunks[0].state, CHUNK_ABSENT);
	assert_null(f.d->chunks[0].segment);
	assert_int_equal(finish(&f, 0), CHUNK_ABSENT);
	assert_int_equal(f.cache->segment_bytes, 0);
	assert_int_equal(f.place->refs, 1);
	f.cache->readers.max = 1;
	/* There is no space for another chunk in addition to the one that is being read, either. */
	f.cache->limit_bytes = f.d->copy.bytes + f.d->segment_bytes;
	cache_fit(f.cache);
	assert_int_equal(load(&f, 0), 0);
	assert_int_equal(load(&f, 1), -ENOSPC);
	assert_int_equal(f.d->chunks[1].state, CHUNK_ABSENT);
	assert_int_equal(f.cache->n_loading, 1);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	stop(&f);
}

/* In a full cache whose segments clients map, the chunk is verified in a separate segment, and only then
 * placed where clients look. */
TEST_IN_FOLDER(verified_before_it_is_lent)
{
	struct fixture f;
	uint8_t before[64];

	start(&f, *state, &plain);
	f.cache->limit_bytes = f.d->copy.bytes + 2 * f.d->segment_bytes;
	cache_fit(f.cache);
	f.d->space_bytes = 2 * f.d->segment_bytes; /* as granted to a session */
	assert_int_equal(load(&f, 0), 0);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	struct segment *mapped = f.d->chunks[0].segment;
	mapped->mapped = true;
	memcpy(before, mapped->memory.data + WITHIN, sizeof(before));
	/* The chunk is damaged at its end, and no client has seen any of it. */
	flip(&f, 1, 0);
	assert_int_equal(load(&f, 1), 0);
	assert_int_equal(finish(&f, 1), CHUNK_BAD);
	assert_memory_equal(mapped->memory.data + WITHIN, before, sizeof(before));
	assert_false(mapped->filling);
	assert_int_equal(load(&f, 2), 0);
	assert_int_equal(finish(&f, 2), CHUNK_READY);
	assert_ptr_equal(f.d->chunks[2].segment, mapped);
	assert_int_equal(f.d->chunks[0].state, CHUNK_ABSENT);
	check_samples(&f, 2);
	stop(&f);
}

/* A chunk with a digest is in memory as in its file, gaps included, because its copies are checked against
 * the digest again. */
TEST_IN_FOLDER(lent_with_its_gaps)
{
	struct snapshot_chunk meta;
	struct digest found;
	struct fixture f;

	start(&f, *state, &with_gaps);
	f.cache->limit_bytes = f.d->copy.bytes + 2 * f.d->segment_bytes;
	cache_fit(f.cache);
	f.d->space_bytes = 2 * f.d->segment_bytes; /* as granted to a session */
	for (uint64_t i = 0; i < 2; i++) {
		assert_int_equal(load(&f, i), 0);
		assert_int_equal(finish(&f, i), CHUNK_READY);
	}
	struct segment *mapped = f.d->chunks[0].segment;
	mapped->mapped = true;
	assert_int_equal(snapshot_chunk_get(f.d->snapshot, 2, &meta), 0);
	memset(mapped->memory.data, 0xee, meta.file_bytes);
	assert_int_equal(load(&f, 2), 0);
	assert_int_equal(finish(&f, 2), CHUNK_READY);
	assert_ptr_equal(f.d->chunks[2].segment, mapped);
	assert_int_equal(digest_of(&(struct iovec){mapped->memory.data, meta.file_bytes}, 1, &found), 0);
	assert_true(digest_equal(&found, &meta.sha256));
	stop(&f);
}

/* Only the samples of a subset are read. If more are needed, the whole chunk is read, in place of the
 * part. */
TEST_IN_FOLDER(a_subset_reads_its_part_of_a_chunk)
{
	const uint64_t few = 1 << 3 | 1 << 20 | UINT64_C(1) << 40;
	struct subset *some = subset_of(few), *others = subset_of(few | 1 << 21);
	struct fixture f;

	start(&f, *state, &many);
	assert_true(lacks(&f, 0, some));
	assert_int_equal(load_part(&f, 0, some), 0);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	assert_true(f.cache->counters.read_bytes < 400000);
	struct segment *part = f.d->chunks[0].segment;
	check_only(&f, 0, some);
	assert_false(lacks(&f, 0, some));
	assert_true(lacks(&f, 0, others));
	assert_true(cached_lacks(f.d, 0, &all));
	/* The part is in use, so it stays where it is, and the rest is added. */
	cache_pin(f.cache, f.d, 0);
	assert_int_equal(load_part(&f, 0, others), 0);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	assert_ptr_equal(f.d->chunks[0].segment, part);
	assert_false(cached_lacks(f.d, 0, &all));
	check_samples(&f, 0);
	cache_unpin(f.d, 0);
	assert_int_equal(f.d->n_cached, 1);
	/* The part is not in use, so it is replaced. */
	assert_int_equal(load_part(&f, 1, some), 0);
	assert_int_equal(finish(&f, 1), CHUNK_READY);
	check_only(&f, 1, some);
	assert_true(cached_lacks(f.d, 1, &all));
	assert_int_equal(load(&f, 1), 0);
	assert_int_equal(finish(&f, 1), CHUNK_READY);
	check_samples(&f, 1);
	assert_int_equal(f.d->n_cached, 2);
	subset_free(some);
	subset_free(others);
	stop(&f);
}

/* The rest of a part that is in use is read into a segment that seems to hold nothing. No other chunk gets
 * this segment meanwhile. */
TEST_IN_FOLDER(the_rest_of_a_part_in_a_full_cache)
{
	struct subset *some = subset_of(1 << 3);
	struct fixture f;

	start(&f, *state, &many);
	assert_int_equal(load_part(&f, 0, some), 0);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	cache_pin(f.cache, f.d, 0);
	f.cache->limit_bytes = f.cache->budget_bytes = cache_total_bytes(f.cache) + f.d->segment_bytes;
	assert_int_equal(load(&f, 0), 0);
	assert_int_equal(load(&f, 1), -ENOSPC);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	check_samples(&f, 0);
	assert_int_equal(load(&f, 1), 0);
	assert_int_equal(finish(&f, 1), CHUNK_READY);
	check_samples(&f, 0);
	check_samples(&f, 1);
	cache_unpin(f.d, 0);
	subset_free(some);
	stop(&f);
}

static void read_whole(const char *root, const struct dataset_plan *plan, uint64_t bits)
{
	struct subset *some = subset_of(bits);
	struct fixture f;

	start(&f, root, plan);
	assert_int_equal(load_part(&f, 0, some), 0);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	assert_false(cached_lacks(f.d, 0, &all));
	check_samples(&f, 0);
	stop(&f);
	subset_free(some);
}

/* Reading this part would save little work, so the whole chunk is read. */
TEST_IN_FOLDER(no_part_of_many)
{
	read_whole(*state, &many, 0x55555555);
}

/* A digest covers the whole file, so no part is read. */
TEST_IN_FOLDER(no_part_with_a_digest)
{
	read_whole(*state, &many_digested, 1 << 3);
}

/* Damage is found where it is read. A part in use stays although the rest is damaged, and is dropped
 * afterwards. */
TEST_IN_FOLDER(a_part_of_a_damaged_chunk)
{
	struct subset *some = subset_of(1 << 3);
	struct snapshot_sample s;
	struct fixture f;

	start(&f, *state, &many);
	assert_int_equal(snapshot_sample_get(f.d->snapshot, 25, &s), 0);
	flip(&f, 0, (off_t)s.offset);
	assert_int_equal(load_part(&f, 0, some), 0);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	struct segment *part = f.d->chunks[0].segment;
	cache_pin(f.cache, f.d, 0);
	assert_int_equal(load(&f, 0), 0);
	assert_int_equal(finish(&f, 0), CHUNK_BAD);
	assert_ptr_equal(f.d->chunks[0].segment, part);
	check_sample(&f, part->memory.data, 3);
	cached_forget_errors(f.d);
	flip(&f, 0, (off_t)s.offset);
	assert_int_equal(load(&f, 0), 0);
	assert_int_equal(finish(&f, 0), CHUNK_READY);
	assert_ptr_equal(f.d->chunks[0].segment, part);
	check_samples(&f, 0);
	cache_unpin(f.d, 0);
	assert_int_equal(snapshot_sample_get(f.d->snapshot, 32 + 3, &s), 0);
	flip(&f, 1, (off_t)s.offset);
	subset_free(some);
	some = subset_of(UINT64_C(1) << (32 + 3));
	assert_int_equal(load_part(&f, 1, some), 0);
	assert_int_equal(finish(&f, 1), CHUNK_BAD);
	subset_free(some);
	stop(&f);
}

/* The daemon stops while chunks are being read. Nothing is left behind, and no callback runs. */
TEST_IN_FOLDER(a_stop_while_reading_leaves_nothing_behind)
{
	struct fixture f;
	uint32_t refs;

	start(&f, *state, &plain);
	refs = f.f.job->refs;
	for (uint64_t i = 0; i < N_CHUNKS; i++)
		assert_int_equal(load(&f, i), 0);
	assert_int_equal(f.f.job->refs, refs + N_CHUNKS);
	assert_int_equal(f.place->refs, 1 + 2 * N_CHUNKS);
	readers_close(&f.cache->readers);
	cache_abandon_loads(f.cache);
	assert_null(f.cache->loads);
	assert_int_equal(f.cache->n_loading, 0);
	assert_int_equal(f.d->loads.bytes, 0);
	assert_int_equal(f.f.job->refs, refs);
	assert_int_equal(f.place->refs, 1);
	stop(&f);
}
