/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/file_open.h"

static int write_all(FILE *stream, output_fn write, const void *user)
{
	int r = write(stream, user);

	if (r == 0 && fflush(stream))
		r = -errno;
	return r;
}

static int write_file(int folder, const char *name, output_fn write, const void *user)
{
	int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	if (!file) {
		int r = -errno;

		closep(&fd);
		return r;
	}
	int r = write_all(file, write, user);

	if (fclose(file) && r == 0)
		r = -errno;
	return r;
}

int output_write(const char *path, FILE *stream, output_fn write, const void *user, struct error *err)
{
	char temporary[300];
	const char *name;
	int r;

	if (!path) {
		r = write_all(stream, write, user);
		return r < 0 ? error_errno(err, r, "cannot write the report") : 0;
	}
	_cleanup_(closep) int folder = file_folder(path, true, &name);

	if (folder < 0)
		return file_error(err, folder, "write", path);
	snprintf(temporary, sizeof(temporary), "%.200s.tmp-%d", name, (int)getpid());
	r = write_file(folder, temporary, write, user);
	if (r == 0 && renameat(folder, temporary, folder, name) < 0)
		r = -errno;
	if (r < 0) {
		if (r != -EEXIST)
			unlinkat(folder, temporary, 0);
		return error_errno(err, r, "cannot write %s", path);
	}
	return 0;
}
