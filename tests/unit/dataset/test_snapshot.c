/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/path_order.h"
#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "dataset/checksum/checksum.h"
#include "lib/clock.h"
#include "dataset/lookup/snapshot_format.h"

static const char *const paths[] = {
    "dog/2.jpg",   "dog-big/1.jpg", "dog/1.jpg", "cat/sub/9.jpg", "README",      "cat/z.jpg",
    "cat/sub/b/1", "dogs/3.jpg",    "cat/a.jpg", "cat/sub-x/1",   "zebra/x.jpg", "cat/sub/a.jpg",
};
#define N_PATHS (sizeof(paths) / sizeof(paths[0]))

/* Files come first, then directories, with names in byte order. */
static const char *const in_tree_order[N_PATHS] = {
    "README",      "cat/a.jpg", "cat/z.jpg", "cat/sub/9.jpg", "cat/sub/a.jpg", "cat/sub/b/1",
    "cat/sub-x/1", "dog/1.jpg", "dog/2.jpg", "dog-big/1.jpg", "dogs/3.jpg",    "zebra/x.jpg",
};

static struct snapshot *open_good(const struct image *image)
{
	struct snapshot *s;
	struct error err = ERROR_INIT;

	if (open_snapshot_bytes(image->data, image->bytes, &s, &err) < 0 || snapshot_verify(s, &err) < 0)
		fail_msg("%s", err.text);
	return s;
}

TEST(a_snapshot_reads_as_built)
{
	struct image image = make_snapshot(paths, N_PATHS, 5, false);
	struct snapshot *s = open_good(&image);
	const struct snapshot_info *info = snapshot_info(s);

	assert_int_equal(info->n_samples, N_PATHS);
	assert_int_equal(info->n_chunks, 3);
	assert_int_equal(info->version, 5);
	assert_int_equal(info->n_classes, 5);
	assert_int_equal(info->equal_bytes, 0);
	assert_int_equal(info->max_bytes, 7);
	for (size_t i = 0; i < N_PATHS; i++) {
		struct snapshot_sample sample;
		struct snapshot_chunk chunk;
		uint64_t found;

		assert_int_equal(snapshot_find(s, paths[i], strlen(paths[i]), &found), 0);
		assert_int_equal(found, i); /* the storage order is the given order */
		assert_int_equal(snapshot_sample_get(s, found, &sample), 0);
		assert_int_equal(sample.path_length, strlen(paths[i]));
		assert_memory_equal(sample.path, paths[i], sample.path_length);
		assert_int_equal(sample.chunk, i / 5);
		assert_int_equal(sample.record, i % 5);
		assert_int_equal(snapshot_chunk_get(s, sample.chunk, &chunk), 0);
		assert_true(found >= chunk.first_sample && found < chunk.first_sample + chunk.n_samples);
	}
	struct snapshot_chunk chunk;
	struct snapshot_sample sample;
	uint64_t found;

	assert_int_equal(snapshot_find(s, "cat", 3, &found), -ENOENT);
	assert_int_equal(snapshot_find(s, "", 0, &found), -ENOENT);
	assert_int_equal(snapshot_sample_get(s, N_PATHS, &sample), -ERANGE);
	assert_int_equal(snapshot_chunk_get(s, 3, &chunk), -ERANGE);
	snapshot_close(s);
	free(image.data);
}

TEST(classes_and_order)
{
	static const char *const classes[] = {"cat", "dog", "dog-big", "dogs", "zebra"};
	struct image image = make_snapshot(paths, N_PATHS, 5, true);
	struct snapshot *s = open_good(&image);
	struct snapshot_sample sample;
	uint64_t number;
	const char *name;
	size_t length;

	assert_int_equal(snapshot_info(s)->equal_bytes, 8);
	for (uint32_t c = 0; c < 5; c++) {
		assert_int_equal(snapshot_class_name(s, c, &name, &length), 0);
		assert_int_equal(length, strlen(classes[c]));
		assert_memory_equal(name, classes[c], length);
	}
	assert_int_equal(snapshot_class_name(s, 5, &name, &length), -ERANGE);
	for (size_t i = 0; i < N_PATHS; i++) {
		assert_int_equal(snapshot_by_path(s, i, &number), 0);
		assert_int_equal(snapshot_sample_get(s, number, &sample), 0);
		assert_int_equal(sample.path_length, strlen(in_tree_order[i]));
		assert_memory_equal(sample.path, in_tree_order[i], sample.path_length);
		if (i == 0) {
			assert_int_equal(sample.class_index, SNAPSHOT_NO_CLASS);
			continue;
		}
		size_t top = strlen(classes[sample.class_index]);

		assert_memory_equal(sample.path, classes[sample.class_index], top);
		assert_int_equal(sample.path[top], '/');
	}
	assert_int_equal(snapshot_by_path(s, N_PATHS, &number), -ERANGE);
	snapshot_close(s);
	free(image.data);
}

/* Lists "name" of each file and "name/" of each directory, with blanks in between. */
static const char *list(const struct snapshot *s, const char *directory, char *text)
{
	uint64_t cursor = 0;
	struct snapshot_entry entry;
	int r;

	text[0] = '\0';
	while ((r = snapshot_list(s, directory, strlen(directory), &cursor, &entry)) == 0) {
		strncat(text, entry.name, entry.name_length);
		strcat(text, entry.is_directory ? "/ " : " ");
	}
	assert_int_equal(r, -ENOENT);
	return text;
}

TEST(folders_list_what_is_in_them)
{
	struct image image = make_snapshot(paths, N_PATHS, 5, false);
	struct snapshot *s = open_good(&image);
	char text[256];

	assert_string_equal(list(s, "", text), "README cat/ dog/ dog-big/ dogs/ zebra/ ");
	assert_string_equal(list(s, "cat", text), "a.jpg z.jpg sub/ sub-x/ ");
	assert_string_equal(list(s, "cat/sub", text), "9.jpg a.jpg b/ ");
	assert_string_equal(list(s, "dog", text), "1.jpg 2.jpg ");
	assert_string_equal(list(s, "do", text), "");
	assert_string_equal(list(s, "README", text), "");
	assert_string_equal(list(s, "zzz", text), "");
	uint64_t cursor = UINT64_MAX;

	assert_int_equal(snapshot_list(s, "", 0, &cursor, &(struct snapshot_entry){0}), -ENOENT);
	snapshot_close(s);
	free(image.data);
}

/* The order is total and agrees with the directories. It is compared with a plain definition, on many random
 * pairs. */
TEST(the_order_of_paths_is_total)
{
	static const char letters[] = "a-/b";
	struct path_text made[600];
	uint64_t random = 5;
	size_t n = 0;

	while (n < 600) {
		char *text = malloc(8);
		size_t length = 0;

		for (random = random * 6364136223846793005u + 1; length < 1 + (random >> 60) % 7; length++) {
			random = random * 6364136223846793005u + 1;
			text[length] = letters[random >> 62];
		}
		if (chunk_name_is_valid(text, length))
			made[n++] = (struct path_text){text, length};
		else
			free(text);
	}
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < n; j++) {
			int order = path_order_compare(made[i], made[j]);
			bool same = made[i].length == made[j].length &&
				    !memcmp(made[i].text, made[j].text, made[i].length);

			assert_int_equal(order == 0, same);
			assert_int_equal(order, -path_order_compare(made[j], made[i]));
			/* Compared with directory j, sample i sorts as it does compared with any file in
			 * it. */
			char in[16];

			snprintf(in, sizeof(in), "%.*s/m", (int)made[j].length, made[j].text);
			int in_directory = path_order_compare_directory(made[i], made[j]);
			int in_file = path_order_compare(made[i], (struct path_text){in, made[j].length + 2});

			assert_int_equal(in_directory == 0, path_is_below(made[i], made[j]));
			if (in_directory != 0)
				assert_int_equal(in_directory, in_file);
		}
	}
	for (size_t i = 0; i < n; i++)
		free((void *)made[i].text);
}

/* Calls every accessor with every possible argument. */
static void use_accessors(const struct snapshot *s)
{
	struct snapshot_sample sample;
	struct snapshot_chunk chunk;
	const char *name;
	size_t length, sum = 0;
	uint64_t number;

	for (uint64_t i = 0; i < N_PATHS + 1; i++) {
		if (snapshot_sample_get(s, i, &sample) == 0)
			for (size_t c = 0; c < sample.path_length; c++)
				sum += (unsigned char)sample.path[c];
		if (snapshot_by_path(s, i, &number) == 0)
			snapshot_sample_get(s, number, &sample);
		snapshot_chunk_get(s, i, &chunk);
		if (snapshot_class_name(s, (uint32_t)i, &name, &length) == 0 && length)
			sum += (unsigned char)name[length - 1];
		if (i < N_PATHS)
			snapshot_find(s, paths[i], strlen(paths[i]), &number);
	}
	for (const char *const *d = (const char *const[]){"", "cat", "cat/sub", "x", NULL}; *d; d++) {
		uint64_t cursor = 0;
		struct snapshot_entry entry;

		for (int i = 0; i < 100 && snapshot_list(s, *d, strlen(*d), &cursor, &entry) == 0; i++)
			sum += entry.name_length ? (unsigned char)entry.name[entry.name_length - 1] : 0;
	}
	assert_true(sum != 1); /* uses the results, so that the reads are not optimised away */
}

/* Padding between sections, whose bytes mean nothing. */
static bool in_a_gap(const struct snapshot_header *h, size_t at)
{
	bool inside = at < sizeof(*h);

	for (int i = 0; i < SNAPSHOT_N_SECTIONS; i++)
		inside |= at >= h->sections[i].offset && at < h->sections[i].offset + h->sections[i].bytes;
	return !inside;
}

/* Flips every byte, all of it and one bit of it. Open or verify notices that, and the accessors stay inside
 * anyway. */
static void flip_every_byte(bool digests)
{
	struct image image = make_snapshot_with(paths, N_PATHS, 5, false, digests);
	struct snapshot_header header;
	static const unsigned char flips[] = {0xff, 0x01, 0x80};

	memcpy(&header, image.data, sizeof(header));
	for (size_t at = 0; at < image.bytes; at++) {
		for (size_t f = 0; f < sizeof(flips); f++) {
			struct snapshot *s;

			image.data[at] ^= flips[f];
			if (open_snapshot_bytes(image.data, image.bytes, &s, NULL) == 0) {
				use_accessors(s);
				if (snapshot_verify(s, NULL) == 0 && !in_a_gap(&header, at))
					fail_msg("byte %zu: not noticed", at);
				if (snapshot_verify_tables(s, NULL) == 0 && !in_a_gap(&header, at)) {
					assert_int_equal(snapshot_check_rest(s, NULL), -EBADMSG);
					assert_int_equal(snapshot_check_lookups(s, NULL), -EBADMSG);
				}
				snapshot_close(s);
			}
			image.data[at] ^= flips[f];
		}
	}
	free(image.data);
}

TEST(every_flipped_byte_of_a_snapshot_is_noticed)
{
	flip_every_byte(false);
	flip_every_byte(true);
}

TEST(every_truncation_of_a_snapshot_is_refused)
{
	struct image image = make_snapshot(paths, N_PATHS, 5, false);
	struct snapshot *s;

	for (size_t n = 0; n < image.bytes; n++)
		assert_int_equal(open_snapshot_bytes(image.data, n, &s, NULL), -EBADMSG);
	free(image.data);
}

static void sign(struct image *image)
{
	struct snapshot_header *h = (struct snapshot_header *)image->data;

	for (int i = 0; i < SNAPSHOT_N_SECTIONS; i++)
		if (h->sections[i].offset <= image->bytes &&
		    h->sections[i].bytes <= image->bytes - h->sections[i].offset)
			h->sections[i].xxh3 =
			    checksum_xxh3(image->data + h->sections[i].offset, h->sections[i].bytes);
	h->header_xxh3 = checksum_xxh3_gap(h, sizeof(*h), offsetof(struct snapshot_header, header_xxh3));
}

/* Checks the properties on which dieseld relies before it has compared a sample with its chunk. */
static void check_bounds(const struct snapshot *s)
{
	const struct snapshot_info *info = snapshot_info(s);

	for (uint64_t i = 0; i < info->n_samples; i++) {
		struct snapshot_sample sample;
		struct snapshot_chunk chunk;

		if (snapshot_sample_get(s, i, &sample) < 0)
			continue;
		assert_int_equal(snapshot_chunk_get(s, sample.chunk, &chunk), 0);
		assert_true(i >= chunk.first_sample && i - chunk.first_sample < chunk.n_samples);
		assert_true(sample.offset >= chunk.payload_offset && sample.offset <= chunk.file_bytes);
		assert_true(sample.stored_bytes <= chunk.file_bytes - sample.offset);
		assert_true(sample.bytes <= info->max_bytes);
		assert_true(info->equal_bytes == 0 || sample.bytes == info->equal_bytes);
		assert_in_range(sample.class_index + 1, 0, info->n_classes);
		assert_in_range(sample.path_length, 0, CHUNK_NAME_MAX);
	}
}

/* As flip_every_byte(), but with right checksums, as a hostile or broken writer could make them. No read may
 * go outside. */
TEST(signed_lies_are_read_within_bounds)
{
	static const unsigned char values[] = {0x00, 0x01, 0x7f, 0xff};
	struct image image = make_snapshot(paths, N_PATHS, 5, false);

	for (size_t at = 8; at < image.bytes; at++) {
		unsigned char original = image.data[at];

		for (size_t v = 0; v < sizeof(values); v++) {
			struct image lie = {malloc(image.bytes), image.bytes};
			struct snapshot *s;

			memcpy(lie.data, image.data, image.bytes);
			lie.data[at] = values[v];
			sign(&lie);
			if (open_snapshot_bytes(lie.data, lie.bytes, &s, NULL) == 0) {
				use_accessors(s);
				if (snapshot_verify_tables(s, NULL) == 0)
					check_bounds(s);
				snapshot_verify(s, NULL);
				snapshot_close(s);
			}
			free(lie.data);
		}
		image.data[at] = original;
	}
	free(image.data);
}

static enum snapshot_names names_of(const char *const *some, size_t n)
{
	struct image image = make_snapshot(some, n, 5, true);
	struct snapshot *s = open_good(&image);
	enum snapshot_names names = snapshot_info(s)->names;
	struct snapshot_header *h = (struct snapshot_header *)image.data;

	snapshot_close(s);
	/* A header with the wrong value is noticed. A header with an unknown value is valid. */
	h->names = names == SNAPSHOT_NAMES_IMAGES ? SNAPSHOT_NAMES_OTHERS : SNAPSHOT_NAMES_IMAGES;
	sign(&image);
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, NULL), 0);
	assert_int_equal(snapshot_verify(s, NULL), -EBADMSG);
	snapshot_close(s);
	for (uint32_t unknown = 0; unknown <= 99; unknown += 99) {
		h->names = unknown;
		sign(&image);
		s = open_good(&image);
		assert_int_equal(snapshot_info(s)->names, SNAPSHOT_NAMES_UNKNOWN);
		snapshot_close(s);
	}
	free(image.data);
	return names;
}

TEST(names_say_whether_all_are_images)
{
	static const char *const images[] = {"a/1.jpg", "a/2.JPEG", "b.Png", "c/d.x/e.webp"};
	static const char *const others[] = {"a/1.jpg", "a/2.jpgx"}, *const bare[] = {"jpg"};

	assert_int_equal(names_of(images, 4), SNAPSHOT_NAMES_IMAGES);
	assert_int_equal(names_of(others, 2), SNAPSHOT_NAMES_OTHERS);
	assert_int_equal(names_of(bare, 1), SNAPSHOT_NAMES_OTHERS);
}

TEST(classes_of_paths)
{
	struct image image = make_snapshot(paths, N_PATHS, 5, true);
	struct snapshot *s = open_good(&image);

	assert_int_equal(snapshot_check_lookups(s, NULL), 0);
	assert_int_equal(snapshot_check_lookups(s, NULL), 0);
	assert_true(snapshot_class_fits(s, 1, "dog/a", 5));
	assert_true(snapshot_class_fits(s, 1, "dog/a/b", 7));
	assert_false(snapshot_class_fits(s, 1, "dog-big/a", 9));
	assert_false(snapshot_class_fits(s, 0, "dog/a", 5));
	assert_false(snapshot_class_fits(s, 5, "dog/a", 5));
	assert_false(snapshot_class_fits(s, -2, "dog/a", 5));
	assert_false(snapshot_class_fits(s, 1, "dog", 3));
	assert_false(snapshot_class_fits(s, SNAPSHOT_NO_CLASS, "dog/a", 5));
	assert_true(snapshot_class_fits(s, SNAPSHOT_NO_CLASS, "dog", 3));
	snapshot_close(s);
	free(image.data);
}

TEST(digests_are_found_by_chunk)
{
	struct image image = make_snapshot_with(paths, N_PATHS, 5, false, true);
	struct image plain = make_snapshot(paths, N_PATHS, 5, false);
	struct snapshot *s = open_good(&image);
	struct snapshot_chunk chunk;

	assert_true(snapshot_info(s)->has_digests);
	for (uint8_t i = 0; i < 3; i++) {
		const struct digest expected = {{0xd1, i}};

		assert_int_equal(snapshot_chunk_get(s, i, &chunk), 0);
		assert_true(chunk.has_sha256);
		assert_true(digest_equal(&chunk.sha256, &expected));
	}
	snapshot_close(s);
	s = open_good(&plain);
	assert_false(snapshot_info(s)->has_digests);
	assert_int_equal(snapshot_chunk_get(s, 0, &chunk), 0);
	assert_false(chunk.has_sha256);
	snapshot_close(s);
	free(plain.data);
	free(image.data);
}

TEST(digests_cannot_lie_outside_the_file)
{
	static const uint64_t offsets[] = {1, UINT64_MAX - 63, UINT64_C(1) << 40};
	struct image image = make_snapshot_with(paths, N_PATHS, 5, false, true);
	struct snapshot_header *h = (struct snapshot_header *)image.data;
	uint64_t *offset = &h->sections[SNAPSHOT_DIGESTS].offset, at = *offset;
	struct snapshot *s;

	for (size_t i = 0; i <= sizeof(offsets) / sizeof(offsets[0]); i++) {
		struct error err = ERROR_INIT;

		*offset = i < sizeof(offsets) / sizeof(offsets[0]) ? offsets[i] : at + SNAPSHOT_ALIGN;
		h->header_xxh3 =
		    checksum_xxh3_gap(h, sizeof(*h), offsetof(struct snapshot_header, header_xxh3));
		assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "digests"));
	}
	free(image.data);
}

TEST(digests_are_for_all_chunks_or_none)
{
	struct meta_chunk with = {.id.bytes = {1}, .has_sha256 = true}, without = {.id.bytes = {2}};
	struct snapshot_builder *b = new_builder();

	assert_int_equal(snapshot_builder_add_chunk(b, &with), 0);
	assert_int_equal(snapshot_builder_add_chunk(b, &without), -EINVAL);
	snapshot_builder_free(b);
}

/* A build that sorts in memory gives the same bytes as one that sorts in files. */
TEST(sorted_in_pieces)
{
	enum { N = 20000 };
	static char texts[N][24];
	static const char *names[N];

	for (uint32_t i = 0; i < N; i++) {
		uint32_t mixed = i * 7919 % N; /* N and 7919 have no common divisor */

		snprintf(texts[i], sizeof(texts[i]), "%u/%u/%u", mixed % 7, mixed % 91, mixed);
		names[i] = texts[i];
	}
	struct image whole = make_snapshot_with(names, N, 999, false, false);
	struct image pieces = make_snapshot_within(64 << 10, names, N, 999, false, false);
	struct snapshot *s = open_good(&pieces);

	assert_int_equal(snapshot_info(s)->n_samples, N);
	assert_int_equal(snapshot_info(s)->n_classes, 7);
	snapshot_close(s);
	assert_int_equal(pieces.bytes, whole.bytes);
	assert_memory_equal(pieces.data, whole.data, whole.bytes);
	/* A sample takes less than 40 bytes in addition to the paths and the table of chunks. */
	uint64_t bytes = whole.bytes - ((struct snapshot_header *)whole.data)->sections[SNAPSHOT_PATHS].bytes;

	assert_true(bytes < (uint64_t)40 * N);
	free(whole.data);
	free(pieces.data);
}

/* Builds in a process that the kernel kills when one of its files grows beyond this. Returns how the process
 * ended. */
static int sort_up_to(const char *folder, rlim_t bytes)
{
	const struct rlimit limit = {bytes, bytes}, no_core = {0, 0};
	enum { N = 20000 };
	static char texts[N][24];
	static const char *names[N];
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		for (uint32_t i = 0; i < N; i++) {
			snprintf(texts[i], sizeof(texts[i]), "%u/%u", i * 7919 % N % 7, i);
			names[i] = texts[i];
		}
		if (chdir(folder) < 0 || setrlimit(RLIMIT_FSIZE, &limit) < 0 ||
		    setrlimit(RLIMIT_CORE, &no_core) < 0)
			_exit(1);
		make_snapshot_within(64 << 10, names, N, 999, false, false);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

TEST_IN_FOLDER(killed_while_it_sorts)
{
	int n_killed = 0;

	for (rlim_t bytes = 1000; bytes <= 32 << 20; bytes *= 4) {
		int status = sort_up_to(*state, bytes);

		n_killed += WIFSIGNALED(status);
		assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGXFSZ : status == 0);
		assert_int_equal(rmdir(*state), 0); /* the folder is empty */
		assert_int_equal(mkdir(*state, 0700), 0);
	}
	assert_true(n_killed > 3);
}

/* Checks position and time of each record in the snapshot, for chunks whose times differ. */
TEST(places_and_times)
{
	static const uint64_t steps[] = {0, 1, 1000, NS_PER_S, 3 * NS_PER_S + 1, UINT64_C(1) << 40};
	enum { N = 5 };

	for (size_t t = 0; t < sizeof(steps) / sizeof(steps[0]); t++) {
		struct meta_chunk chunk = {.file_bytes = 1 << 20, .payload_offset = 4096};
		struct image image = {0};
		struct snapshot_builder *b = new_builder();
		struct snapshot *s;

		assert_int_equal(snapshot_builder_add_chunk(b, &chunk), 0);
		for (uint32_t i = 0; i < N; i++) {
			char name[] = {'z' - (char)i};
			struct meta_path path = {.path = name,
						 .path_length = 1,
						 .record_index = 2 * i,
						 .record = {.offset = 4096 + 16 * i,
							    .mode = 0100600 + i,
							    .mtime_ns = 17 * NS_PER_S + (N - i) * steps[t]}};

			assert_int_equal(snapshot_builder_add_path(b, &path), 0);
		}
		image = finish(b);
		s = open_good(&image);
		for (uint32_t i = 0; i < N; i++) {
			struct snapshot_sample sample;
			uint64_t mtime_ns;

			assert_int_equal(snapshot_sample_get(s, i, &sample), 0);
			assert_int_equal(sample.record, 2 * i);
			assert_int_equal(sample.mode, 0100600 + i);
			assert_int_equal(sample.offset, 4096 + 16 * i);
			assert_int_equal(sample.path[0], 'z' - i);
			assert_int_equal(snapshot_mtime(s, i, &mtime_ns), 0);
			assert_int_equal(mtime_ns, 17 * NS_PER_S + (N - i) * steps[t]);
		}
		assert_int_equal(snapshot_mtime(s, N, &(uint64_t){0}), -ERANGE);
		snapshot_close(s);
		free(image.data);
	}
}

TEST(the_later_record_of_a_path_counts)
{
	for (int swapped = 0; swapped < 2; swapped++) {
		struct snapshot_builder *b = new_builder();
		struct snapshot_sample sample;
		struct snapshot *s;
		struct image image;

		for (uint8_t c = 1; c <= 2; c++)
			assert_int_equal(
			    snapshot_builder_add_chunk(b, &(struct meta_chunk){.id.bytes = {c},
									       .file_bytes = 8192,
									       .payload_offset = 4096}),
			    0);
		for (uint8_t i = 0; i < 2; i++) {
			struct meta_path path = {.path = "a/b",
						 .path_length = 3,
						 .chunk.bytes = {(uint8_t)(1 + (i ^ swapped))},
						 .record.offset = 4096};

			assert_int_equal(snapshot_builder_add_path(b, &path), 0);
		}
		image = finish(b);
		s = open_good(&image);
		assert_int_equal(snapshot_info(s)->n_samples, 1);
		assert_int_equal(snapshot_info(s)->n_chunks, 1);
		struct snapshot_chunk chunk;

		assert_int_equal(snapshot_sample_get(s, 0, &sample), 0);
		assert_int_equal(snapshot_chunk_get(s, sample.chunk, &chunk), 0);
		assert_int_equal(chunk.id.bytes[0], 2);
		snapshot_close(s);
		free(image.data);
	}
}

TEST(records_no_chunk_has_are_refused)
{
	struct meta_chunk chunk = {.file_bytes = 8192, .payload_offset = 4096};
	struct meta_path good = {.path = "a", .path_length = 1, .record.offset = 4096}, bad[4];
	struct snapshot_builder *b = new_builder();

	for (size_t i = 0; i < 4; i++)
		bad[i] = good;
	bad[0].record.bytes = 1;
	bad[1].record.encoding = 1;
	bad[2].record.offset = UINT64_C(1) << 29;
	bad[3].chunk.bytes[0] = 1;
	assert_int_equal(snapshot_builder_add_chunk(b, &chunk), 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(snapshot_builder_add_path(b, &bad[i]), -EINVAL);
	assert_int_equal(snapshot_builder_add_path(b, &good), 0);
	snapshot_builder_free(b);
}

TEST(other_formats_are_refused)
{
	struct image image = make_snapshot(paths, N_PATHS, 5, false);
	struct snapshot *s;
	struct error err = ERROR_INIT;

	((struct snapshot_header *)image.data)->format = SNAPSHOT_FORMAT + 1;
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, &err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.text, "update this program, or run `dieselctl snapshot`"));
	((struct snapshot_header *)image.data)->format = SNAPSHOT_FORMAT - 1;
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, &err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.text, ": run `dieselctl snapshot`"));
	free(image.data);
}

TEST(an_empty_snapshot_finds_nothing)
{
	struct image image = make_snapshot(NULL, 0, 5, false);
	struct snapshot *s = open_good(&image);
	uint64_t number, cursor = 0;

	assert_int_equal(snapshot_info(s)->n_samples, 0);
	assert_int_equal(snapshot_find(s, "a", 1, &number), -ENOENT);
	assert_int_equal(snapshot_list(s, "", 0, &cursor, &(struct snapshot_entry){0}), -ENOENT);
	snapshot_close(s);
	free(image.data);
}

TEST(file_and_directory)
{
	static const char *const clash[] = {"a/b", "a.txt/x", "a/b/c"};
	struct snapshot_builder *b = new_builder();
	struct error err = ERROR_INIT;
	struct meta_chunk chunk = {.file_bytes = 8192, .payload_offset = 4096};
	const struct snapshot_target target = snapshot_target();

	assert_int_equal(snapshot_builder_add_chunk(b, &chunk), 0);
	for (uint32_t i = 0; i < 3; i++) {
		struct meta_path path = {
		    .path = clash[i], .path_length = strlen(clash[i]), .record_index = i};

		assert_int_equal(snapshot_builder_add_path(b, &path), 0);
	}
	assert_int_equal(snapshot_builder_finish(b, &target, &err), -EEXIST);
	close(target.fd);
	assert_non_null(strstr(err.text, "'a/b'"));
	snapshot_builder_free(b);
}

TEST(a_missing_snapshot_names_the_command)
{
	struct snapshot *s;
	struct error err = ERROR_INIT;

	assert_int_equal(snapshot_open("/nowhere/at/all", &s, &err), -ENOENT);
	assert_non_null(strstr(err.text, "dieselctl pack"));
	assert_int_equal(snapshot_open("/dev/null", &s, &err), -ENOTDIR);
	snapshot_close(NULL);
}
