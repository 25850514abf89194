/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The job's processes, with their code and their Python, for turning samples into names. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address_space.h"
#include "python.h"

struct process {
	uint32_t tgid;
	uint32_t parent;    /* parent that forked this process, with the same memory; 0: none */
	uint32_t serial;    /* changes when the tgid becomes another program */
	uint64_t read_ns;   /* time of the last read of its mappings; 0: never */
	uint64_t pause_ns;  /* time after read_ns until the next read is allowed */
	uint64_t sample_ns; /* time of its last sample */
	bool has_python;
	bool python_refused; /* its Python version is not supported */
	struct python python;
	struct process_space space;
};

#define PROCESSES_INDEX 2048

struct processes {
	struct process **items;
	size_t n;
	struct process *index[PROCESSES_INDEX]; /* the process looked up last, by tgid % PROCESSES_INDEX */
	uint32_t last_serial;
	struct code_files files;
	const char *root; /* "/proc" */
};

/* root is borrowed. -ENOMEM. */
int processes_init(struct processes *processes, const char *root);
void processes_free(struct processes *processes);

/* Finds or adds a process; if the table is full, replaces the process whose last sample is oldest. NULL: no
 * memory. */
struct process *processes_get(struct processes *processes, uint32_t tgid);

/* NULL: not known. */
struct process *processes_find(const struct processes *processes, uint32_t tgid);

/* Records that the tgid now is a new process or, if parent is 0, runs a new program (exec). */
void processes_renew(struct processes *processes, uint32_t tgid, uint32_t parent);

/* Reads the process's mappings now. Returns true if it is a Python of a known version; process->python
 * then has the location of its frames. */
bool process_python(struct processes *processes, struct process *process, uint64_t now_ns);

/* Finds the mapping of an executed address. If none is known there, reads the process's mappings again, but
 * not too often. NULL: there is no code. */
const struct code_mapping *process_code(struct processes *processes, struct process *process,
					uint64_t address, uint64_t now_ns);
