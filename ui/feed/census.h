/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Lists the machine's processes, and finds those that train: they have mapped PyTorch (libtorch*) or
 * libdiesel. A job is the topmost such process with all its descendants.
 *
 * Inspecting a process is expensive. A process maps the library some seconds after its start. So the census
 * inspects a new process at once, then less and less often, down to once a minute. Used by one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

struct census_process {
	pid_t pid, parent;
	uint64_t start_ticks; /* start time: distinguishes processes that used the same pid */
	pid_t root;           /* root of its job; 0: no job */
	bool is_kernel;
	bool has_library;  /* maps libtorch */
	bool trains;       /* a job can begin here: has_library, or the user chose it */
	uint64_t check_ns; /* time of the next check; 0: never */
	uint64_t delay_ns;
	uint32_t seen;   /* number of the last scan that saw the process */
	uint64_t cpu_ns; /* set by the caller: CPU time at the last sample; 0: none yet */
};

/* Begins as {.root, .only, .n_only}. If `only`, which is borrowed, lists processes, only these are jobs,
 * whatever they have mapped; otherwise all training processes are jobs. */
struct census {
	const char *root; /* "/proc" */
	const pid_t *only;
	size_t n_only;
	struct census_process *items; /* sorted by pid, and valid until the next scan */
	size_t n, n_allocated;
	uint32_t scan;
};

static inline void census_free(struct census *census)
{
	free(census->items);
}

/* Returns 1 if a process started, ended or was classified, 0 if there is no change, or -errno if /proc
 * cannot be read. */
int census_scan(struct census *census, uint64_t now_ns);

/* NULL: no process had this pid at the last scan. */
const struct census_process *census_find(const struct census *census, pid_t pid);

/* Writes a short name for a process with this command line: the script ("train.py"), module or program. */
void process_name(const char *command, char *buffer, size_t size);
