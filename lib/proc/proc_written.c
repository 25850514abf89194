/* SPDX-License-Identifier: Apache-2.0 */
/* Finds how many bytes a process writes, and to which file systems. Reads only /proc, because access to the
 * files themselves might hang. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "lib/cleanup.h"
#include "lib/proc.h"

#define IO_BYTES        4096
#define FDINFO_BYTES    512 /* bytes to read of fdinfo, whose first lines are enough */
#define FILES_MAX       256 /* maximum number of files to check: a process may have a million */
#define MOUNTINFO_BYTES (1u << 20)

int proc_written_read(const char *root, pid_t pid, uint64_t *ret_bytes)
{
	_cleanup_(freep) char *text = NULL;
	const char *line;
	char path[4200];
	uint64_t bytes;
	int r;

	snprintf(path, sizeof(path), "%s/%d/io", root, (int)pid);
	r = proc_read_file(path, IO_BYTES, &text, NULL);
	if (r < 0)
		return r;
	/* proc_io_parse() needs the lines before this one, too, which some kernels name otherwise: gVisor has
	 * "char". */
	line = strstr(text, "\nwrite_bytes:");
	if (!line || sscanf(line, "\nwrite_bytes: %" SCNu64, &bytes) != 1)
		return -EBADMSG;
	*ret_bytes = bytes;
	return 0;
}

/* Returns true, and the file's mount number, if it is open for writing. */
static bool writes_to(const char *fdinfo, unsigned *ret_mount)
{
	const char *flags = strstr(fdinfo, "flags:"), *mount = strstr(fdinfo, "mnt_id:");
	unsigned mode;

	return flags && mount && sscanf(flags, "flags: %o", &mode) == 1 && (mode & O_ACCMODE) != O_RDONLY &&
	       sscanf(mount, "mnt_id: %u", ret_mount) == 1;
}

static bool add_mount(unsigned *mounts, size_t *n, unsigned mount)
{
	for (size_t i = 0; i < *n; i++)
		if (mounts[i] == mount)
			return true;
	if (*n == PROC_WRITE_DEVICES)
		return false;
	mounts[(*n)++] = mount;
	return true;
}

/* Returns the number of distinct mounts. */
static int mounts_written(const char *folder, unsigned *mounts)
{
	size_t n = 0;
	DIR *files = opendir(folder);
	const struct dirent *entry;
	unsigned mount, n_looked = 0;

	if (!files)
		return -errno;
	while (n_looked < FILES_MAX && (entry = readdir(files))) {
		_cleanup_(freep) char *text = NULL;
		char path[4600];

		if (entry->d_name[0] == '.')
			continue;
		n_looked++;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		if (proc_read_file(path, FDINFO_BYTES, &text, NULL) == 0 && writes_to(text, &mount) &&
		    !add_mount(mounts, &n, mount))
			break;
	}
	closedir(files);
	return (int)n;
}

int proc_write_devices(const char *root, pid_t pid, uint64_t devices[PROC_WRITE_DEVICES])
{
	_cleanup_(freep) char *text = NULL;
	unsigned mounts[PROC_WRITE_DEVICES], id, major, minor;
	char path[4200], *line, *rest;
	int r, n_mounts, n = 0;

	snprintf(path, sizeof(path), "%s/%d/fdinfo", root, (int)pid);
	n_mounts = mounts_written(path, mounts);
	if (n_mounts <= 0)
		return n_mounts;
	snprintf(path, sizeof(path), "%s/%d/mountinfo", root, (int)pid);
	r = proc_read_file(path, MOUNTINFO_BYTES, &text, NULL);
	if (r < 0)
		return r;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (sscanf(line, "%u %*u %u:%u ", &id, &major, &minor) != 3)
			continue;
		for (int i = 0; i < n_mounts && n < PROC_WRITE_DEVICES; i++)
			if (mounts[i] == id)
				devices[n++] = makedev(major, minor);
	}
	return n;
}
