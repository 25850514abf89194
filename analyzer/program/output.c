/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <errno.h>
#include <unistd.h>

#include "lib/error.h"

static int write_all(FILE *stream, output_fn write, const void *user)
{
	int r = write(stream, user);

	if (r == 0 && fflush(stream))
		r = -errno;
	return r;
}

int output_write(const char *path, FILE *stream, output_fn write, const void *user, struct error *err)
{
	char temporary[4200];
	FILE *file;
	int r;

	if (!path) {
		r = write_all(stream, write, user);
		return r < 0 ? error_errno(err, r, "cannot write the report") : 0;
	}
	snprintf(temporary, sizeof(temporary), "%s.tmp-%d", path, (int)getpid());
	file = fopen(temporary, "wxe");
	if (!file)
		return error_errno(err, -errno, "cannot write %s", path);
	r = write_all(file, write, user);
	if (fclose(file) && r == 0)
		r = -errno;
	if (r == 0 && rename(temporary, path))
		r = -errno;
	if (r < 0) {
		unlink(temporary);
		return error_errno(err, r, "cannot write %s", path);
	}
	return 0;
}
