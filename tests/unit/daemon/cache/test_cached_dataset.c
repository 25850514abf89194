/* SPDX-License-Identifier: Apache-2.0 */
/* The proof of permission: which descriptors a client may pass. */
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/storage/shared_memory.h"
#include "daemon/cache/cached_dataset.h"

struct fixture {
	char *directory;
	int dir_fd;
};

static int make(struct fixture *f, const char *name)
{
	int fd = openat(f->dir_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "not a snapshot", 14), 14);
	return fd;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f || make_folder((void **)&f->directory) < 0)
		return -1;
	make_folders(f->directory, "chunks");
	f->dir_fd = open(f->directory, O_RDONLY | O_DIRECTORY);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	int r = remove_folder((void **)&f->directory);

	close(f->dir_fd);
	free(f);
	return r;
}

static int identify(struct fixture *f, int snapshot_fd, bool *ret_replaced)
{
	struct proof proof;
	struct error err = ERROR_INIT;
	int r = proof_identify(f->dir_fd, snapshot_fd, &proof, &err);

	assert_int_equal(err.text[0] != '\0', r < 0);
	if (r < 0)
		return r;
	*ret_replaced = proof.replaced;
	proof_close(&proof);
	return 0;
}

TEST_WITH(a_readable_snapshot_is_proof, setup, teardown)
{
	struct fixture *f = *state;
	int fd = make(f, "snapshot"), readable = openat(f->dir_fd, "snapshot", O_RDONLY);
	bool replaced = true;

	assert_int_equal(identify(f, readable, &replaced), 0);
	assert_false(replaced);
	close(readable);
	close(fd);
}

TEST_WITH(a_descriptor_without_read_access_proves_nothing, setup, teardown)
{
	struct fixture *f = *state;
	int fd = make(f, "snapshot"), path = openat(f->dir_fd, "snapshot", O_PATH),
	    writer = openat(f->dir_fd, "snapshot", O_WRONLY), pipes[2];
	bool replaced;

	/* A process can open both without the right to read. */
	assert_int_equal(identify(f, path, &replaced), -EACCES);
	assert_int_equal(identify(f, writer, &replaced), -EACCES);
	assert_int_equal(identify(f, f->dir_fd, &replaced), -EACCES);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(identify(f, pipes[0], &replaced), -EACCES);
	close(pipes[0]);
	close(pipes[1]);
	close(writer);
	close(path);
	close(fd);
}

TEST_WITH(another_file_is_not_this_dataset, setup, teardown)
{
	struct fixture *f = *state;
	int fd = make(f, "snapshot"), other = make(f, "other");
	bool replaced = false;

	assert_int_equal(identify(f, other, &replaced), 0);
	assert_true(replaced);
	close(other);
	close(fd);
}

TEST_WITH(links_are_not_followed, setup, teardown)
{
	struct fixture *f = *state;
	int other = make(f, "other");
	bool replaced;

	assert_int_equal(symlinkat("other", f->dir_fd, "snapshot"), 0);
	assert_int_equal(identify(f, other, &replaced), -ELOOP);
	close(other);
}

TEST_WITH(damaged_snapshot_is_refused, setup, teardown)
{
	struct fixture *f = *state;
	int fd = make(f, "snapshot"), readable = openat(f->dir_fd, "snapshot", O_RDONLY), copy, plain;
	struct proof proof;
	struct cached_dataset *d;
	struct error err = ERROR_INIT;

	assert_int_equal(proof_identify(f->dir_fd, readable, &proof, &err), 0);
	assert_int_equal(proof.snapshot_bytes, 14);
	assert_string_equal(proof.path, f->directory);
	assert_int_equal(proof_copy(&proof, readable, &copy, &err), 0);
	assert_true(shared_memory_is_sealed(copy));
	assert_int_equal(proof_verify(&proof, copy, &err), -EBADMSG);
	assert_non_null(strstr(err.text, f->directory));
	assert_int_equal(cached_new(&proof, copy, &d, &err), -EBADMSG);
	/* A snapshot that could still change is refused, whatever is said about its verification. */
	plain = memfd_create("plain", MFD_CLOEXEC);
	assert_false(shared_memory_is_sealed(plain));
	assert_int_equal(cached_new(&proof, plain, &d, &err), -EPERM);
	cached_free(NULL);
	proof_close(&proof);
	close(readable);
	close(fd);
}

static void identify_whole(struct fixture *f, int fd, struct proof_identity *ret)
{
	struct proof proof;
	struct error err = ERROR_INIT;

	assert_int_equal(proof_identify(f->dir_fd, fd, &proof, &err), 0);
	proof_close(&proof);
	*ret = proof.identity;
}

TEST_WITH(other_chunks_or_rights_are_another_dataset, setup, teardown)
{
	struct fixture *f = *state;
	int fd = make(f, "snapshot");
	struct proof_identity before, after;

	identify_whole(f, fd, &before);
	identify_whole(f, fd, &after);
	assert_true(proof_identity_equal(&before, &after));
	assert_int_equal(renameat(f->dir_fd, "chunks", f->dir_fd, "was"), 0);
	assert_int_equal(mkdirat(f->dir_fd, "chunks", 0755), 0);
	identify_whole(f, fd, &after);
	assert_false(proof_identity_equal(&before, &after));
	before = after;
	assert_int_equal(fchmod(fd, 0644), 0);
	identify_whole(f, fd, &after);
	assert_false(proof_identity_equal(&before, &after));
	assert_int_equal(unlinkat(f->dir_fd, "was", AT_REMOVEDIR), 0);
	close(fd);
}

#define RIGHTS(owner, group, bits)                                                                           \
	{                                                                                                    \
		.uid = (owner), .gid = (group), .mode = (bits)                                               \
	}

TEST(a_chunk_no_stricter_than_the_snapshot)
{
	static const struct {
		struct access_rights chunk, snapshot;
		bool ok;
	} cases[] = {
	    {RIGHTS(1000, 1000, 0644), RIGHTS(1000, 1000, 0644), true},
	    {RIGHTS(1000, 1000, 0640), RIGHTS(1000, 1000, 0640), true},
	    {RIGHTS(1000, 1000, 0600), RIGHTS(1000, 1000, 0600), true},
	    {RIGHTS(1000, 1000, 0644), RIGHTS(1000, 1000, 0600), true},
	    {RIGHTS(1000, 1000, 0640), RIGHTS(1000, 1000, 0644), false},
	    {RIGHTS(1000, 1000, 0604), RIGHTS(1000, 1000, 0644), false},
	    {RIGHTS(1000, 1000, 0600), RIGHTS(1000, 1000, 0640), false},
	    {RIGHTS(0, 0, 0600), RIGHTS(1000, 1000, 0600), false},
	    {RIGHTS(0, 1000, 0640), RIGHTS(1000, 1000, 0640), false},
	    {RIGHTS(0, 0, 0644), RIGHTS(1000, 1000, 0600), true},
	    {RIGHTS(1000, 0, 0640), RIGHTS(1000, 1000, 0640), false},
	    {RIGHTS(0, 0, 0004), RIGHTS(1000, 1000, 0600), false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(access_is_no_stricter(&cases[i].chunk, ACCESS_READ, &cases[i].snapshot),
				 cases[i].ok);
}

/* Returns access rights with an ACL of user::, user:65534:, group::, mask:: and other::. */
static struct access_rights listed(mode_t mode, const uint16_t permissions[5])
{
	static const uint16_t tags[] = {0x01, 0x02, 0x04, 0x10, 0x20};
	struct access_rights rights = {.uid = 1000, .gid = 1000, .mode = mode, .acl_bytes = 4 + 5 * 8};

	rights.acl[0] = 2;
	for (size_t i = 0; i < 5; i++) {
		const uint32_t id = i == 1 ? 65534 : UINT32_MAX;

		memcpy(rights.acl + 4 + 8 * i, &tags[i], sizeof(tags[i]));
		memcpy(rights.acl + 6 + 8 * i, &permissions[i], sizeof(permissions[i]));
		memcpy(rights.acl + 8 + 8 * i, &id, sizeof(id));
	}
	return rights;
}

TEST(lists_are_compared_entry_by_entry)
{
	const struct access_rights open = {.uid = 1000, .gid = 1000, .mode = 0644},
				   closed = {.uid = 1000, .gid = 1000, .mode = 0640},
				   denied = listed(0644, (const uint16_t[]){6, 0, 4, 4, 4}),
				   granted = listed(0640, (const uint16_t[]){6, 4, 4, 4, 0}),
				   unmasked = listed(0640, (const uint16_t[]){6, 4, 0, 4, 0}),
				   folder = listed(0750, (const uint16_t[]){7, 5, 5, 5, 0});
	struct access_rights other = granted;

	assert_false(access_is_no_stricter(&denied, ACCESS_READ, &open));
	assert_true(access_is_no_stricter(&denied, ACCESS_READ, &denied));
	assert_true(access_is_no_stricter(&open, ACCESS_READ, &denied));
	assert_false(access_is_no_stricter(&closed, ACCESS_READ, &granted));
	assert_false(access_is_no_stricter(&granted, ACCESS_READ, &closed));
	assert_true(access_is_no_stricter(&granted, ACCESS_READ, &unmasked));
	assert_false(access_is_no_stricter(&unmasked, ACCESS_READ, &granted));
	assert_true(access_is_no_stricter(&folder, ACCESS_SEARCH, &granted));
	assert_false(access_is_no_stricter(&granted, ACCESS_SEARCH, &folder));
	other.acl[4 + 8 + 4] ^= 1; /* of another user */
	assert_false(access_is_no_stricter(&other, ACCESS_READ, &granted));
	assert_false(proof_identity_equal(&(struct proof_identity){.rights = other},
					  &(struct proof_identity){.rights = granted}));
	other = granted;
	other.uid = 0;
	assert_false(access_is_no_stricter(&other, ACCESS_READ, &granted));
}

TEST(places_are_shared_by_mount)
{
	struct place_list list = {0};
	struct chunk_place *a, *b, *c;
	bool is_new;

	a = place_add(&list, 7, dup(0), &is_new);
	assert_true(is_new);
	b = place_add(&list, 7, dup(0), &is_new);
	assert_false(is_new);
	assert_ptr_equal(a, b);
	b = place_add(&list, PLACE_MOUNT_UNKNOWN, dup(0), &is_new);
	c = place_add(&list, PLACE_MOUNT_UNKNOWN, dup(0), &is_new);
	assert_true(is_new);
	assert_ptr_not_equal(b, c);
	assert_int_equal(list.n_added, 3);
	place_unref(a);
	place_unref(b);
	place_unref(a);
	assert_ptr_equal(list.first, c);
	assert_null(place_unref(c));
	assert_null(list.first);
	assert_null(place_unref(NULL));
}
