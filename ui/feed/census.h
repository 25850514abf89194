/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The processes of the machine, and which of them train: those that have mapped PyTorch (libtorch*) or
 * libdiesel. A job is the topmost of them with all its descendants. Looking into a process is dear, so it is
 * done when it is new, and then at growing distances up to a minute: a library comes some seconds after the
 * start. One thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct census;

struct process {
	pid_t pid, parent;
	uint64_t start_ticks; /* with the pid: which process it is */
	pid_t root;           /* of its job; 0: it belongs to none */
	bool is_kernel;
	bool has_library;  /* maps libtorch */
	bool trains;       /* a job can begin here: has_library, or the user chose it */
	uint64_t check_ns; /* look again then; 0: never */
	uint64_t delay_ns;
	uint32_t seen;   /* by which scan */
	uint64_t cpu_ns; /* for whoever looks at it: CPU time at the last look; 0: none yet */
};

/* root: "/proc". only: processes that are jobs, whatever they have mapped; none: all that train. */
int census_new(const char *root, const pid_t *only, size_t n_only, struct census **ret_census);
struct census *census_free(struct census *census);

/* 1: something came, went or became clearer; 0: nothing did. -errno: /proc cannot be read. */
int census_scan(struct census *census, uint64_t now_ns);

/* By pid; valid until the next scan. */
const struct process *census_list(const struct census *census, size_t *ret_n);
const struct process *census_find(const struct census *census, pid_t pid);

/* What people call it: "train.py", a module, a program. */
void process_name(const char *command, char *buffer, size_t size);
