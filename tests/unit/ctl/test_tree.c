/* SPDX-License-Identifier: Apache-2.0 */
/* Inodes of the mount, for valid snapshots and for snapshots with wrong contents but right checksums. */
#include "tests/unit/dataset/fixture.h"

#include <errno.h>

#include "dataset/checksum/checksum.h"
#include "dataset/lookup/snapshot_format.h"
#include "ctl/mount/tree.h"

#define N_PATHS 9

static const char *const paths[N_PATHS] = {"a/1", "a/2", "a/b/3", "a/b/c/4", "b/5", "b/6", "c", "d", "e/f/7"};

struct walked {
	uint32_t n_files, n_folders, n_wrong;
};

static void walk(const struct tree *t, uint64_t folder, unsigned depth, struct walked *ret)
{
	struct snapshot_entry entry;
	uint64_t cursor = 0, inode;
	const char *path;
	size_t length;

	if (tree_folder(t, folder, &path, &length) < 0) {
		ret->n_wrong++;
		return;
	}
	assert_true(depth < 64);
	while (snapshot_list(t->snapshot, path, length, &cursor, &entry) == 0) {
		struct stat st;
		int r = tree_entry_inode(&entry, path, length, &inode);

		if (r == 0)
			r = tree_stat(t, inode, &st);
		if (r < 0) {
			assert_int_equal(r, -EIO);
			ret->n_wrong++;
			return;
		}
		assert_true(st.st_ino == inode && entry.name_length > 0 &&
			    entry.name_length <= CHUNK_NAME_MAX);
		assert_null(memchr(entry.name, '\0', entry.name_length));
		assert_null(memchr(entry.name, '/', entry.name_length));
		assert_true(entry.name_length > 2 || memcmp(entry.name, "..", entry.name_length) != 0);
		assert_int_equal(S_ISDIR(st.st_mode), entry.is_directory);
		if (entry.is_directory)
			walk(t, inode, depth + 1, ret);
		ret->n_files += !entry.is_directory;
		ret->n_folders += entry.is_directory;
	}
}

static void look_up_all(const struct tree *t)
{
	static const char *const names[] = {"a", "1", "b", "3", "c", "5", "no", "x"};

	for (uint64_t folder = 0; folder < 1 << 17; folder += 257)
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			uint64_t inode;
			struct stat st;

			if (tree_lookup(t, folder, names[i], &inode) == 0)
				(void)tree_stat(t, inode, &st);
		}
}

static struct walked walk_bytes(const struct image *image)
{
	struct tree t = {.mask = 0777};
	struct snapshot *s;
	struct walked w = {0};

	if (open_snapshot_bytes(image->data, image->bytes, &s, NULL) < 0)
		return w;
	t.snapshot = s;
	walk(&t, TREE_ROOT, 0, &w);
	look_up_all(&t);
	snapshot_close(s);
	return w;
}

static void sign(const struct image *image)
{
	struct snapshot_header *h = (struct snapshot_header *)image->data;

	for (int i = 0; i < SNAPSHOT_N_SECTIONS; i++)
		h->sections[i].xxh3 =
		    checksum_xxh3(image->data + h->sections[i].offset, h->sections[i].bytes);
	h->header_xxh3 = checksum_xxh3_gap(h, sizeof(*h), offsetof(struct snapshot_header, header_xxh3));
}

TEST(a_walk_finds_each_file_and_folder)
{
	struct image image = make_snapshot(paths, N_PATHS, 4, false);
	struct walked w = walk_bytes(&image);

	assert_int_equal(w.n_files, N_PATHS);
	assert_int_equal(w.n_folders, 6);
	assert_int_equal(w.n_wrong, 0);
	free(image.data);
}

/* A listing can begin so that the sample at any given place comes first. */
TEST(a_listing_begins_at_any_place)
{
	struct image image = make_snapshot(paths, N_PATHS, 4, false);
	struct tree t = {.mask = 0777};
	struct snapshot *s;

	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, NULL), 0);
	t.snapshot = s;
	for (uint64_t place = 0; place < N_PATHS; place++) {
		uint64_t cursor = 0, number = 0, again = 0;
		char folder[CHUNK_NAME_MAX + 1];
		struct snapshot_entry entry;

		assert_int_equal(snapshot_by_path(s, place, &number), 0);
		assert_int_equal(snapshot_place(s, number, &again), 0);
		assert_int_equal(again, place);
		assert_int_equal(tree_locate(&t, place, folder, &cursor), 0);
		cursor -= TREE_OFFSET_LISTED;
		assert_int_equal(snapshot_list(s, folder, strlen(folder), &cursor, &entry), 0);
		assert_false(entry.is_directory);
		assert_int_equal(entry.sample, number);
	}
	assert_int_equal(snapshot_place(s, N_PATHS, &(uint64_t){0}), -ERANGE);
	assert_int_equal(tree_locate(&t, N_PATHS, (char[CHUNK_NAME_MAX + 1]){0}, &(uint64_t){0}), -ENOENT);
	snapshot_close(s);
	free(image.data);
}

TEST(an_empty_dataset_is_an_empty_tree)
{
	struct image image = make_snapshot(paths, 0, 4, false);
	struct walked w = walk_bytes(&image);
	struct tree t = {.mask = 0777};
	struct snapshot *s;
	struct stat st;

	assert_int_equal(w.n_files + w.n_folders + w.n_wrong, 0);
	assert_int_equal(open_snapshot_bytes(image.data, image.bytes, &s, NULL), 0);
	t.snapshot = s;
	assert_int_equal(tree_stat(&t, TREE_ROOT, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	snapshot_close(s);
	free(image.data);
}

/* Flips every byte of names and records. */
TEST(flipped_names_and_records_do_no_harm)
{
	static const unsigned char flips[] = {0xff, 0x01, 0x20, '/' ^ '1', '.' ^ 'a'};
	static const enum snapshot_section sections[] = {SNAPSHOT_RECORDS, SNAPSHOT_HASH, SNAPSHOT_TREE,
							 SNAPSHOT_PATHS};
	struct image image = make_snapshot(paths, N_PATHS, 4, false);
	const struct snapshot_header *h = (const struct snapshot_header *)image.data;
	uint32_t n_wrong = 0;

	for (size_t k = 0; k < sizeof(sections) / sizeof(sections[0]); k++) {
		const struct snapshot_extent *e = &h->sections[sections[k]];

		for (uint64_t at = e->offset; at < e->offset + e->bytes; at++)
			for (size_t f = 0; f < sizeof(flips); f++) {
				image.data[at] ^= flips[f];
				sign(&image);
				n_wrong += walk_bytes(&image).n_wrong;
				image.data[at] ^= flips[f];
			}
	}
	assert_true(n_wrong > 100);
	free(image.data);
}

TEST(names_no_pack_makes_are_left_out)
{
	static const struct {
		const char *from, *to;
	} lies[] = {
	    {"a/b/3", "a/../"}, {"a/b/3", "a//.."}, {"a/1", "/.."}, {"a/b/c/4", "a/b/..\0"}, {"d", "\0"}};

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct image image = make_snapshot(paths, N_PATHS, 4, false);
		const struct snapshot_header *h = (const struct snapshot_header *)image.data;
		unsigned char *all = image.data + h->sections[SNAPSHOT_PATHS].offset;
		unsigned char *at =
		    memmem(all, h->sections[SNAPSHOT_PATHS].bytes, lies[i].from, strlen(lies[i].from));

		assert_non_null(at);
		memcpy(at, lies[i].to, strlen(lies[i].from));
		sign(&image);
		if (walk_bytes(&image).n_wrong != 1)
			fail_msg("%zu: %u", i, walk_bytes(&image).n_wrong);
		free(image.data);
	}
}
