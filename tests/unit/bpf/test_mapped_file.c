/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptor refers to the mapping's file, or there is none, whatever file the path leads to by now. */
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/proc.h"
#include "bpf/symbols/mapped_file.h"

static const char *folder;
static char library[128];
static void *page;

static int setup(void **state)
{
	int r = make_folder(state);

	folder = *state;
	write_text(folder, "lib.so", "mapped");
	write_text(folder, "other", "other");
	snprintf(library, sizeof(library), "%s/lib.so", folder);
	_cleanup_(closep) int fd = open(library, O_RDONLY | O_CLOEXEC);

	page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	return page == MAP_FAILED ? -1 : r;
}

struct search {
	const char *path; /* path to look for the file under; NULL: use the mapping */
	int result;
};

static int take(void *user, const struct proc_mapping *mapping)
{
	struct search *search = user;
	struct proc_mapping found = *mapping;

	if (mapping->start != (uintptr_t)page)
		return 0;
	if (search->path) {
		found.start = found.end = 0; /* no mapping lies there */
		found.path = search->path;
	}
	search->result = mapped_file_open("/proc", getpid(), &found);
	return 1;
}

static int open_as(const char *path)
{
	struct search search = {.path = path};

	assert_int_equal(proc_mappings("/proc", getpid(), take, &search), 1);
	return search.result;
}

static int open_in_folder(const char *name)
{
	char path[192];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return open_as(path);
}

static void assert_is_mapped_file(int fd)
{
	char text[16] = "";

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, text, sizeof(text) - 1, 0), 6);
	assert_string_equal(text, "mapped");
	close(fd);
}

TEST(the_mappings_file)
{
	assert_is_mapped_file(open_as(NULL));
	assert_is_mapped_file(open_as(library));
}

TEST(another_file_at_the_path_is_refused)
{
	char link_path[192];

	snprintf(link_path, sizeof(link_path), "%s/link", folder);
	assert_int_equal(symlink(library, link_path), 0);
	assert_int_equal(open_in_folder("other"), -ESTALE);
	assert_int_equal(open_in_folder("none"), -ENOENT);
	assert_int_equal(open_in_folder("link"), -ELOOP);
	assert_int_equal(open_in_folder("lib.so/none"), -ENOTDIR);
}

/* Opening these files would have a side effect, or block. */
TEST(no_regular_file)
{
	char pipe_path[192];

	snprintf(pipe_path, sizeof(pipe_path), "%s/pipe", folder);
	assert_int_equal(mkfifo(pipe_path, 0600), 0);
	assert_int_equal(open_in_folder("pipe"), -EACCES);
	assert_int_equal(open_as(folder), -EACCES);
	assert_int_equal(open_as("/dev/zero"), -EACCES);
}

int main(void)
{
	return run_unit_tests(setup, remove_folder);
}
