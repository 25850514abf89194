/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as texts of /proc. The first byte chooses the reader: of a text, or of a folder with
 * one file. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/proc.h"
#include "lib/proc_task.h"
#include "lib/psi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const files[] = {
    [1] = "1/status", [5] = "1/fd/3", [7] = "stat", [8] = "meminfo", [9] = "1/maps", [10] = "io",
};

static char root[64];

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return path;
}

static void remove_root(void)
{
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (files[i])
			unlink(path_of(files[i]));
	rmdir(path_of("1/fd"));
	rmdir(path_of("1"));
	rmdir(root);
}

static void make_root(void)
{
	snprintf(root, sizeof(root), "%s/diesel-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (!mkdtemp(root) || mkdir(path_of("1"), 0700) || mkdir(path_of("1/fd"), 0700))
		abort();
	atexit(remove_root);
}

/* Writes the file that the reader reads. Returns false if no such file can exist. */
static bool write_file(const char *name, const char *text)
{
	const char *path = path_of(name);
	FILE *file;

	if (strstr(name, "/fd/")) {
		unlink(path);
		return symlink(text, path) == 0;
	}
	file = fopen(path, "we");
	if (!file || fputs(text, file) < 0 || fclose(file))
		abort();
	return true;
}

static int see(void *user, const struct proc_mapping *mapping)
{
	(void)user;
	return strlen(mapping->path) > (size_t)1 << 40;
}

static void parse(uint8_t which, const char *text)
{
	struct proc_schedstat schedstat;
	struct proc_cpu_ticks ticks;
	struct proc_meminfo meminfo;
	struct proc_syscall call;
	struct proc_status status;
	struct proc_stat stat;
	struct proc_link link;
	struct proc_io io;
	struct psi psi;

	if (files[which] && !write_file(files[which], text))
		return;
	switch (which) {
	case 0: proc_stat_parse(text, &stat); break;
	case 1: proc_status_read(root, 1, &status); break;
	case 2: proc_schedstat_parse(text, &schedstat); break;
	case 3:
		if (!proc_syscall_parse(text, &call) && call.running + call.in_call + call.ended > 1)
			abort();
		break;
	case 4: proc_io_parse(text, &io); break;
	case 5: proc_link_read(root, 1, 3, &link); break;
	case 6: proc_wchan_wait(text, text[0] & 1); break;
	case 7: proc_cpu_ticks_read(root, &ticks); break;
	case 8: proc_meminfo_read(root, &meminfo); break;
	case 9: proc_mappings(root, 1, see, NULL); break;
	case 10: psi_read(path_of("io"), &psi); break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size)
		return 0;
	if (!root[0])
		make_root();
	text = malloc(size); /* of exactly this size, so that sanitizers notice a read past the end */
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	parse(data[0] % (sizeof(files) / sizeof(files[0])), text);
	free(text);
	return 0;
}
