/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/file_open.h"
#include "daemon/storage/shared_memory.h"

TEST(only_we_may_write)
{
	struct shared_memory m;

	assert_int_equal(shared_memory_new("test", 8192, SHARED_SEALED, &m), 0);
	m.data[0] = 1;
	/* Operations that a client with the descriptor can and cannot do. */
	assert_ptr_equal(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0), MAP_FAILED);
	assert_int_equal(write(m.fd, "x", 1), -1);
	assert_int_equal(ftruncate(m.fd, 0), -1);
	assert_int_equal(ftruncate(m.fd, 1 << 20), -1);
	assert_int_equal(fallocate(m.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(fcntl(m.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	uint8_t *theirs = mmap(NULL, 8192, PROT_READ, MAP_SHARED, m.fd, 0);
	assert_ptr_not_equal(theirs, MAP_FAILED);
	assert_int_equal(mprotect(theirs, 8192, PROT_READ | PROT_WRITE), -1);
	/* The daemon's later writes show in the client's mapping. */
	m.data[0] = 2;
	assert_int_equal(theirs[0], 2);
	munmap(theirs, 8192);
	shared_memory_free(&m);
	shared_memory_free(&m);
}

static uint64_t pages_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512 / 4096;
}

/* A chunk's memory is released while a client still maps it. */
TEST(a_chunk_is_read_only_and_can_be_discarded)
{
	struct shared_memory m;
	int fd = -1, again;
	char path[FD_PATH_BYTES];

	assert_int_equal(shared_memory_new("test", 8192, SHARED_MAPPABLE, &m), 0);
	memset(m.data, 1, 8192);
	assert_int_equal(shared_memory_reader(m.fd, &fd), 0);
	assert_ptr_equal(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	uint8_t *theirs = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(theirs, MAP_FAILED);
	assert_int_equal(mprotect(theirs, 8192, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(theirs[4096], 1);
	/* No other process may open it for writing by its name. */
	fd_path(fd, path);
	if (geteuid() != 0) {
		again = open(path, O_RDWR);
		assert_int_equal(again, -1);
	}
	assert_int_equal(pages_of(fd), 2);
	shared_memory_discard(&m);
	assert_int_equal(pages_of(fd), 0);
	assert_int_equal(theirs[4096], 0);
	munmap(theirs, 8192);
	close(fd);
	shared_memory_discard(&m);
}

TEST(private_writes_stay_private)
{
	struct shared_memory m;

	assert_int_equal(shared_memory_new("test", 4096, SHARED_SEALED, &m), 0);
	m.data[5] = 1;
	uint8_t *theirs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, m.fd, 0);
	assert_ptr_not_equal(theirs, MAP_FAILED);
	theirs[5] = 9;
	assert_int_equal(m.data[5], 1);
	m.data[5] = 3;
	/* After the release the next batch shows, not the holder's own copy. */
	assert_int_equal(madvise(theirs, 4096, MADV_DONTNEED), 0);
	assert_int_equal(theirs[5], 3);
	munmap(theirs, 4096);
	shared_memory_free(&m);
}

TEST(control_memory_keeps_its_size)
{
	struct shared_memory m;

	assert_int_equal(shared_memory_new("test", 4096, SHARED_CONTROL, &m), 0);
	uint8_t *theirs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0);
	assert_ptr_not_equal(theirs, MAP_FAILED);
	theirs[0] = 7;
	assert_int_equal(m.data[0], 7);
	assert_int_equal(ftruncate(m.fd, 0), -1); /* otherwise the daemon would get a bus error */
	munmap(theirs, 4096);
	shared_memory_free(&m);
}

TEST(copy_is_immutable)
{
	int file = memfd_create("file", MFD_CLOEXEC), copy;
	char text[6] = "";

	assert_int_equal(write(file, "hello", 5), 5);
	assert_int_equal(shared_memory_copy_file("copy", file, 9, &copy), -EBADMSG);
	assert_int_equal(shared_memory_copy_file("copy", file, 5, &copy), 0);
	assert_int_equal(pwrite(file, "HELLO", 5, 0), 5);
	assert_int_equal(pread(copy, text, 5, 0), 5);
	assert_string_equal(text, "hello");
	assert_int_equal(pwrite(copy, "x", 1, 0), -1);
	close(copy);
	close(file);
}

/* Copies by several threads. */
static void copies(int file)
{
	const size_t n = (13 << 20) / sizeof(uint64_t) + 1, bytes = n * sizeof(uint64_t) - 3;
	int copy;
	_cleanup_(freep) uint64_t *data = calloc(n, sizeof(*data)), *found = calloc(n, sizeof(*data));
	size_t done;

	for (size_t i = 0; i < n; i++)
		data[i] = i;
	assert_int_equal(fd_write(file, data, bytes), 0);
	assert_int_equal(shared_memory_copy_file("copy", file, bytes + 1, &copy), -EBADMSG);
	/* A file on a disk is read from there. */
	(void)fsync(file);
	(void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
	assert_int_equal(shared_memory_copy_file("copy", file, bytes, &copy), 0);
	assert_int_equal(fcntl(file, F_GETFL) & O_DIRECT, 0);
	assert_true(shared_memory_is_sealed(copy));
	assert_int_equal(fd_read_at(copy, found, bytes + 1, 0, &done), 0);
	assert_int_equal(done, bytes);
	assert_memory_equal(found, data, bytes);
	close(copy);
	close(file);
}

TEST(a_large_copy_is_whole)
{
	copies(memfd_create("file", MFD_CLOEXEC));
}

TEST(large_copy_of_a_disk)
{
	char path[] = "/var/tmp/diesel-copy-XXXXXX";
	int file = mkstemp(path);

	assert_true(file >= 0);
	unlink(path);
	copies(file);
}

TEST(copy_that_somebody_holds)
{
	int file = memfd_create("file", MFD_CLOEXEC), copy, client;
	void *ours, *theirs;

	assert_int_equal(write(file, "hello", 5), 5);
	assert_int_equal(shared_memory_copy_file("copy", file, 5, &copy), 0);
	ours = mmap(NULL, 5, PROT_READ, MAP_SHARED, copy, 0);
	assert_false(shared_memory_copy_is_held(copy));
	assert_int_equal(shared_memory_reader(copy, &client), 0);
	assert_true(shared_memory_copy_is_held(copy));
	theirs = mmap(NULL, 5, PROT_READ, MAP_SHARED, client, 0);
	close(client);
	assert_true(shared_memory_copy_is_held(copy));
	munmap(theirs, 5);
	assert_false(shared_memory_copy_is_held(copy));
	munmap(ours, 5);
	close(copy);
	close(file);
}

static int made_with(unsigned int seals, mode_t mode, off_t bytes)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	return fd;
}

/* Memory that the service manager returns after a restart. */
TEST(memory_from_outside)
{
	const unsigned int size = F_SEAL_SHRINK | F_SEAL_GROW;
	struct shared_memory m, again;

	assert_int_equal(shared_memory_new("test", 8192, SHARED_MAPPABLE, &m), 0);
	m.data[5] = 7;
	assert_int_equal(shared_memory_check(m.fd, 8192), 0);
	assert_int_equal(shared_memory_check(m.fd, 4096), -EPERM);
	assert_int_equal(shared_memory_take(dup(m.fd), 8192, &again), 0);
	assert_int_equal(again.data[5], 7);
	shared_memory_free(&again);
	assert_int_equal(fchown(m.fd, 12345, -1) < 0 ? -EPERM : shared_memory_check(m.fd, 8192), -EPERM);
	shared_memory_free(&m);

	int fd = made_with(size | F_SEAL_SEAL, 0400, 8192);
	assert_int_equal(shared_memory_check(fd, 8192), 0);
	close(fd);
	fd = made_with(size, 0400, 8192); /* another process may add a seal that keeps dieseld from writing */
	assert_int_equal(shared_memory_check(fd, 8192), -EPERM);
	close(fd);
	fd = made_with(size | F_SEAL_SEAL, 0644, 8192);
	assert_int_equal(shared_memory_check(fd, 8192), -EPERM);
	close(fd);
	fd = open("/dev/null", O_RDONLY);
	assert_int_equal(shared_memory_check(fd, 0), -EINVAL);
	close(fd);
}
