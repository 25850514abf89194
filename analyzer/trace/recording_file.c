/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "analyzer/recording.h"
#include "lib/cleanup.h"
#include "lib/error.h"

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

void recording_file_remove(int dir_fd, const char *path)
{
	_cleanup_(freep) char *journal = NULL;

	unlinkat(dir_fd, name_of(path), 0);
	if (asprintf(&journal, "%s-journal", name_of(path)) < 0)
		journal = NULL;
	else
		unlinkat(dir_fd, journal, 0);
}

int recording_file_make_room(int dir_fd, const char *path, struct error *err)
{
	struct recording *old = NULL;
	struct error why = ERROR_INIT;
	int r;

	if (faccessat(dir_fd, name_of(path), F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = recording_open_in(dir_fd, path, &old, &why);
	recording_close(old);
	if (r == -EACCES || r == -EPERM || r == -EIO || r == -ENOMEM || r == -EMFILE || r == -ENFILE)
		return error_set(err, r, "%s; choose another -o or remove it", why.text);
	if (r < 0 && r != -EPROTONOSUPPORT)
		return error_set(err, -EEXIST,
				 "%s exists and is not a recording; choose another -o or remove it", path);
	if (faccessat(dir_fd, name_of(path), W_OK, 0) < 0)
		return error_errno(err, -errno, "cannot replace %s", path);
	recording_file_remove(dir_fd, path);
	return 0;
}
