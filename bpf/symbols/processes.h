/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What samples need to know of the job's processes: their code, and their Python. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address_space.h"
#include "python.h"

struct process {
	uint32_t tgid;
	uint32_t parent;    /* forked it, and had the same memory; 0: none */
	uint32_t serial;    /* changes when the tgid means another program */
	uint64_t read_ns;   /* when its code was last looked at; 0: never */
	uint64_t pause_ns;  /* from then until it may be looked at again */
	uint64_t sample_ns; /* its last sample */
	bool has_python;
	bool python_refused; /* its version is not known */
	struct python python;
	struct process_space space;
};

#define PROCESSES_INDEX 2048

struct processes {
	struct process **items;
	size_t n;
	struct process *index[PROCESSES_INDEX]; /* by tgid: the one that was asked for last */
	uint32_t last_serial;
	struct code_files files;
	const char *root; /* "/proc" */
};

/* root is borrowed. -ENOMEM. */
int processes_init(struct processes *processes, const char *root);
void processes_free(struct processes *processes);

/* Finds or adds a process; the one that had no sample for longest gives way. NULL: no memory. */
struct process *processes_get(struct processes *processes, uint32_t tgid);

/* NULL: not known. */
struct process *processes_find(const struct processes *processes, uint32_t tgid);

/* The tgid now means a new process, or, if parent is 0, a new program (exec). */
void processes_renew(struct processes *processes, uint32_t tgid, uint32_t parent);

/* Looks at the process now. Returns true if it is a Python of a known version; process->python then says
 * where its frames are. */
bool process_python(struct processes *processes, struct process *process, uint64_t now_ns);

/* The code at an address that was executed. If none is known there, looks at the process again, but not too
 * often. NULL: there is no code. */
const struct code_mapping *process_code(struct processes *processes, struct process *process,
					uint64_t address, uint64_t now_ns);
