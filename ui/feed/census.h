/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The processes of the machine, and which of them train: those that have mapped PyTorch (libtorch*) or
 * libdiesel. A job is the topmost of them with all its descendants. Looking into a process is expensive, so
 * it is done when the process is new, and then less and less often, down to once a minute: a library is
 * mapped some seconds after the start. Used by one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct census;

struct census_process {
	pid_t pid, parent;
	uint64_t start_ticks; /* tells processes that had the same pid apart */
	pid_t root;           /* of its job; 0: it belongs to none */
	bool is_kernel;
	bool has_library;  /* maps libtorch */
	bool trains;       /* a job can begin here: has_library, or the user chose it */
	uint64_t check_ns; /* when to look again; 0: never */
	uint64_t delay_ns;
	uint32_t seen;   /* the last scan that saw it */
	uint64_t cpu_ns; /* for the caller's use: CPU time at the last look; 0: none yet */
};

/* root is "/proc". Only the processes in `only` are jobs, whatever they have mapped; if there are none, all
 * that train. 0 or -ENOMEM. */
int census_new(const char *root, const pid_t *only, size_t n_only, struct census **ret_census);
struct census *census_free(struct census *census);

/* Returns 1 if a process came, went or became clearer, 0 if none did, or -errno if /proc cannot be read. */
int census_scan(struct census *census, uint64_t now_ns);

/* Processes by pid, valid until the next scan. */
const struct census_process *census_list(const struct census *census, size_t *ret_n);
const struct census_process *census_find(const struct census *census, pid_t pid);

/* What people call a process with this command line: "train.py", a module, a program. */
void process_name(const char *command, char *buffer, size_t size);
