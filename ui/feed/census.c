/* SPDX-License-Identifier: Apache-2.0 */
#include "census.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/proc.h"

#define CHECK_FIRST_NS NS_PER_S
#define CHECK_LAST_NS  (60 * NS_PER_S)
#define ANCESTORS_MAX  64

static int compare_pid(const void *key, const void *item)
{
	pid_t pid = *(const pid_t *)key, other = ((const struct census_process *)item)->pid;

	return (pid > other) - (pid < other);
}

const struct census_process *census_find(const struct census *census, pid_t pid)
{
	if (!census->n)
		return NULL;
	return bsearch(&pid, census->items, census->n, sizeof(*census->items), compare_pid);
}

static int is_training_library(void *user, const struct proc_mapping *mapping)
{
	const char *name = strrchr(mapping->path, '/');

	if (!mapping->executable || !name)
		return 0;
	return !strncmp(name, "/libtorch", 9) || !strncmp(name, "/libdiesel.so", 13);
}

static bool is_chosen(const struct census *census, pid_t pid)
{
	for (size_t i = 0; i < census->n_only; i++)
		if (census->only[i] == pid)
			return true;
	return false;
}

/* Classifies a process by what can be seen of it now. */
static void look(struct census *census, struct census_process *process, uint64_t now_ns)
{
	struct proc_stat stat;

	if (proc_stat_read(census->root, process->pid, &stat))
		return;
	if (process->start_ticks != stat.start_ticks)
		*process = (struct census_process){.pid = process->pid, .seen = process->seen};
	process->start_ticks = stat.start_ticks;
	process->parent = stat.parent;
	process->is_kernel = stat.parent == 2 || process->pid == 2;
	if (!process->is_kernel && process->pid != getpid())
		process->has_library =
		    proc_mappings(census->root, process->pid, is_training_library, NULL) > 0;
	process->trains = census->n_only ? is_chosen(census, process->pid) : process->has_library;
	process->delay_ns = process->delay_ns ? 2 * process->delay_ns : CHECK_FIRST_NS;
	if (process->delay_ns > CHECK_LAST_NS)
		process->delay_ns = CHECK_LAST_NS;
	process->check_ns = process->is_kernel ? 0 : now_ns + process->delay_ns;
}

/* Returns the topmost training process among the process and its ancestors; 0: none trains. */
static pid_t root_of(const struct census *census, const struct census_process *process)
{
	pid_t root = 0;

	for (int i = 0; process && i < ANCESTORS_MAX; i++) {
		if (process->trains)
			root = process->pid;
		process = process->parent > 1 ? census_find(census, process->parent) : NULL;
	}
	return root;
}

static bool merge(struct census *census, const pid_t *pids, size_t n)
{
	struct census_process *items = census->items;
	size_t n_kept = 0, n_old = census->n;
	bool changed = false;

	for (size_t i = 0; i < n; i++) {
		struct census_process *known =
		    n_old ? bsearch(&pids[i], items, n_old, sizeof(*items), compare_pid) : NULL;

		if (known)
			known->seen = census->scan;
		else
			items[census->n++] =
			    (struct census_process){.pid = pids[i], .seen = census->scan, .check_ns = 1};
		changed |= !known;
	}
	for (size_t i = 0; i < census->n; i++)
		if (items[i].seen == census->scan)
			items[n_kept++] = items[i];
	changed |= n_kept != census->n;
	census->n = n_kept;
	return changed;
}

static int compare_items(const void *left, const void *right)
{
	return compare_pid(&((const struct census_process *)left)->pid, right);
}

int census_scan(struct census *census, uint64_t now_ns)
{
	_cleanup_(freep) pid_t *pids = NULL;
	size_t n = 0;
	bool changed;
	int r = proc_processes(census->root, &pids, &n);

	if (r < 0)
		return r;
	if (census->n + n > census->n_allocated) {
		struct census_process *grown =
		    reallocarray(census->items, 2 * (census->n + n), sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		census->items = grown;
		census->n_allocated = 2 * (census->n + n);
	}
	census->scan++;
	changed = merge(census, pids, n);
	if (changed)
		qsort(census->items, census->n, sizeof(*census->items), compare_items);
	for (size_t i = 0; i < census->n; i++) {
		struct census_process *process = &census->items[i], before = *process;

		if (!process->check_ns || now_ns < process->check_ns)
			continue;
		look(census, process, now_ns);
		changed |= before.trains != process->trains || before.parent != process->parent;
	}
	for (size_t i = 0; changed && i < census->n; i++)
		census->items[i].root = root_of(census, &census->items[i]);
	return changed;
}

/* Derives a short name from a command line whose words are separated by spaces. */
void process_name(const char *command, char *buffer, size_t size)
{
	const char *best = command, *word = command;
	size_t length;
	bool module = false;

	while (*word) {
		size_t n = strcspn(word, " ");

		if (module || (n > 3 && !strncmp(word + n - 3, ".py", 3))) {
			best = word;
			break;
		}
		module = n == 2 && !strncmp(word, "-m", 2);
		word += n + strspn(word + n, " ");
	}
	length = strcspn(best, " ");
	for (size_t i = length; i > 0; i--)
		if (best[i - 1] == '/' && i < length) {
			best += i;
			length -= i;
			break;
		}
	snprintf(buffer, size, "%.*s", (int)length, best);
}
