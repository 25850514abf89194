/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The code that a process has mapped, and its names. An address space is a copy of /proc/PID/maps that
 * outlives the process, so that addresses that were sampled shortly before its end still get names. Files are
 * opened through the process, which is right in containers and after they were replaced, and stay open;
 * code_files owns them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct elf_symbols;

struct code_file {
	uint64_t device, inode;
	char *path;                  /* path as the process sees it */
	const char *name;            /* file name without folders; part of path */
	struct elf_symbols *symbols; /* NULL: not opened yet, or not readable */
	bool opened;
};

/* All files of the job's code, each once. */
struct code_files {
	struct code_file **items;
	size_t n, n_open;
};

void code_files_free(struct code_files *files);

struct code_mapping {
	uint64_t begin, end, offset_bytes;
	struct code_file *file; /* NULL: code without a file, such as a just-in-time compiler's */
};

struct process_space {
	struct code_mapping *mappings; /* sorted by address */
	size_t n;
};

/* Replaces *space. root is "/proc". -ENOENT, -ESRCH: the process has exited, and *space is unchanged;
 * -ENOMEM. */
int address_space_read(const char *root, pid_t pid, struct code_files *files, struct process_space *space);
void address_space_free(struct process_space *space);

/* Returns NULL if there is no code at the address. */
const struct code_mapping *address_space_find(const struct process_space *space, uint64_t address);

/* Opens the file behind a mapping through the process, once. Returns NULL if it cannot be read. */
struct elf_symbols *code_file_open(struct code_files *files, const char *root, pid_t pid,
				   const struct code_mapping *mapping);
