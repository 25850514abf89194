/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The job's processes as samples need them: their code, and their Python. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address_space.h"
#include "python.h"

struct process {
	uint32_t tgid;
	uint32_t parent;    /* that forked it, and whose memory it still resembles; 0: none */
	uint32_t serial;    /* changes when the tgid means another program */
	uint64_t read_ns;   /* when its code was looked at; 0: never */
	uint64_t pause_ns;  /* from then until it may be looked at again */
	uint64_t sample_ns; /* its last sample */
	bool has_python;
	bool python_refused; /* of a version that is not known */
	struct python python;
	struct address_space space;
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

/* Makes it known if it is not; NULL: no memory. The one that had no sample for longest gives way. */
struct process *processes_get(struct processes *processes, uint32_t tgid);

/* NULL: not known. */
struct process *processes_find(const struct processes *processes, uint32_t tgid);

/* A new process, or a new program in it. parent 0: exec. */
void processes_renew(struct processes *processes, uint32_t tgid, uint32_t parent);

/* Looks at the process now. Is it a Python of a known version? Then process->python says where things are. */
bool process_python(struct processes *processes, struct process *process, uint64_t now_ns);

/* The code at an address that was executed; looks at the process again if none is known there, now and then.
 * NULL: no code. */
const struct code_mapping *process_code(struct processes *processes, struct process *process,
					uint64_t address, uint64_t now_ns);
