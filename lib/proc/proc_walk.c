/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"

#define CHILDREN_MAX_BYTES (1 << 20)

struct pid_list {
	pid_t *pids;
	size_t n, capacity;
};

static int pid_list_add(struct pid_list *list, pid_t pid)
{
	if (array_reserve(list->pids, list->n, list->capacity) < 0)
		return -ENOMEM;
	list->pids[list->n++] = pid;
	return 0;
}

static int pid_list_end(struct pid_list *list, int r, pid_t **ret_pids, size_t *ret_n)
{
	if (r != 0) {
		free(list->pids);
		return r;
	}
	if (list->n)
		qsort(list->pids, list->n, sizeof(*list->pids), compare_int);
	*ret_pids = list->pids;
	*ret_n = list->n;
	return 0;
}

/* Lists the entries of a directory that are numbers. */
static int list_numbers(const char *path, pid_t **ret_pids, size_t *ret_n)
{
	struct pid_list list = {0};
	DIR *directory = opendir(path);
	struct dirent *entry;
	int r = 0;

	if (!directory)
		return -errno;
	while (r == 0 && (entry = readdir(directory))) {
		char *end;
		long pid = strtol(entry->d_name, &end, 10);

		if (isdigit((unsigned char)entry->d_name[0]) && !*end && pid > 0)
			r = pid_list_add(&list, (pid_t)pid);
	}
	closedir(directory);
	return pid_list_end(&list, r, ret_pids, ret_n);
}

int proc_threads(const char *root, pid_t pid, pid_t **ret_tids, size_t *ret_n)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/%d/task", root, (int)pid);
	return list_numbers(path, ret_tids, ret_n);
}

int proc_processes(const char *root, pid_t **ret_pids, size_t *ret_n)
{
	return list_numbers(root, ret_pids, ret_n);
}

static int add_children(struct pid_list *list, const char *root, pid_t pid, pid_t tid)
{
	_cleanup_(freep) char *text = NULL;
	char path[4200], *at, *end;
	int r;

	snprintf(path, sizeof(path), "%s/%d/task/%d/children", root, (int)pid, (int)tid);
	r = proc_read_file(path, CHILDREN_MAX_BYTES, &text, NULL);
	if (r == -ENOENT || r == -ESRCH)
		return 0; /* this thread has ended */
	if (r != 0)
		return r;
	for (at = text; r == 0; at = end) {
		long child = strtol(at, &end, 10);

		if (end == at)
			break;
		r = pid_list_add(list, (pid_t)child);
	}
	return r;
}

int proc_children(const char *root, pid_t pid, pid_t **ret_pids, size_t *ret_n)
{
	_cleanup_(freep) pid_t *tids = NULL;
	struct pid_list list = {0};
	size_t n = 0;
	int r = proc_threads(root, pid, &tids, &n);

	if (r != 0)
		return r;
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_children(&list, root, pid, tids[i]);
	return pid_list_end(&list, r, ret_pids, ret_n);
}

/* Parses one line, which it modifies. */
static int parse_mapping(char *line, struct proc_mapping *ret_mapping)
{
	struct proc_mapping mapping = {0};
	unsigned device_major, device_minor;
	char access[5];
	int at = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &mapping.start,
		   &mapping.end, access, &mapping.offset_bytes, &device_major, &device_minor, &mapping.inode,
		   &at) != 7 ||
	    !at || strlen(access) != 4)
		return -EBADMSG;
	mapping.device = (uint64_t)device_major << 20 | device_minor;
	mapping.readable = access[0] == 'r';
	mapping.writable = access[1] == 'w';
	mapping.executable = access[2] == 'x';
	mapping.shared = access[3] == 's';
	mapping.path = line + at;
	*ret_mapping = mapping;
	return 0;
}

int proc_mappings(const char *root, pid_t pid, int (*handle)(void *user, const struct proc_mapping *mapping),
		  void *user)
{
	_cleanup_(fclosep) FILE *file = NULL;
	_cleanup_(freep) char *line = NULL;
	size_t size = 0;
	char path[4200];

	snprintf(path, sizeof(path), "%s/%d/maps", root, (int)pid);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (getline(&line, &size, file) >= 0) {
		struct proc_mapping mapping;
		int r = parse_mapping(line, &mapping);

		if (r == 0)
			r = handle(user, &mapping);
		if (r != 0)
			return r;
	}
	return ferror(file) ? -EIO : 0;
}
