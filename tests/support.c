/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define POLL_US   10000
#define POLLS_MAX 3000

int make_folder_below(const char *parent, void **state)
{
	char *path;

	if (asprintf(&path, "%s/diesel-test-XXXXXX", parent) < 0)
		return -1;
	*state = mkdtemp(path);
	if (!*state)
		free(path);
	return *state ? 0 : -1;
}

int make_folder(void **state)
{
	const char *parent = getenv("TMPDIR");

	return make_folder_below(parent ? parent : "/tmp", state);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

int remove_folder(void **state)
{
	int r = nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS);

	free(*state);
	return r;
}

char *path_in(const char *folder, const char *name)
{
	char *path;

	assert_true(asprintf(&path, "%s/%s", folder, name) >= 0);
	return path;
}

bool exists_in(const char *folder, const char *name)
{
	char *path = path_in(folder, name);
	struct stat st;
	bool exists = lstat(path, &st) == 0;

	free(path);
	return exists;
}

/* Makes the folders above this path, except those within its first `from` bytes. */
static void make_above(char *path, size_t from)
{
	for (char *slash = path + from + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		(void)mkdir(path, 0777);
		*slash = '/';
	}
}

void make_folders(const char *folder, const char *name)
{
	char *path = path_in(folder, name);
	struct stat st;

	make_above(path, strlen(folder));
	(void)mkdir(path, 0777);
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	free(path);
}

void write_bytes(const char *folder, const char *name, const void *data, size_t bytes)
{
	char *path = path_in(folder, name);
	FILE *file;

	make_above(path, strlen(folder));
	file = fopen(path, "we");
	if (!file)
		fail_msg("%s cannot be written", path);
	assert_int_equal(fwrite(data, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
	free(path);
}

void write_text(const char *folder, const char *name, const char *text)
{
	write_bytes(folder, name, text, strlen(text));
}

void write_format(const char *folder, const char *name, const char *format, ...)
{
	char *text;
	va_list args;

	va_start(args, format);
	assert_true(vasprintf(&text, format, args) >= 0);
	va_end(args);
	write_text(folder, name, text);
	free(text);
}

char *read_text(const char *folder, const char *name)
{
	char *path = path_in(folder, name), *text;
	FILE *file = fopen(path, "re");
	size_t n;

	if (!file)
		fail_msg("%s cannot be read", path);
	text = calloc(1, 65536);
	assert_non_null(text);
	n = fread(text, 1, 65536, file);
	assert_true(n < 65536);
	(void)fclose(file);
	free(path);
	return text;
}

int nameless_file(const void *data, size_t bytes)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, bytes), bytes);
	return fd;
}

void socket_pair(int ends[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

int connect_to(const char *socket_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(strlen(socket_path) < sizeof(address.sun_path));
	strcpy(address.sun_path, socket_path);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

void wait_until(bool (*holds)(void *user), void *user)
{
	for (int i = 0; i < POLLS_MAX; i++) {
		if (holds(user))
			return;
		usleep(POLL_US);
	}
	fail_msg("what was waited for did not come");
}
