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
#include <sys/types.h>

struct census;

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

/* Creates a census. root is "/proc". If `only` lists processes, only these are jobs, whatever they have
 * mapped; otherwise all training processes are jobs. Returns 0 or -ENOMEM. */
int census_new(const char *root, const pid_t *only, size_t n_only, struct census **ret_census);
struct census *census_free(struct census *census);

/* Returns 1 if a process started, ended or was classified, 0 if there is no change, or -errno if /proc
 * cannot be read. */
int census_scan(struct census *census, uint64_t now_ns);

/* Both functions return processes that stay valid until the next scan. census_list() sorts by pid. */
const struct census_process *census_list(const struct census *census, size_t *ret_n);
const struct census_process *census_find(const struct census *census, pid_t pid);

/* Writes a short name for a process with this command line: the script ("train.py"), module or program. */
void process_name(const char *command, char *buffer, size_t size);
