/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * USDT probes of an ELF file: the notes that <sys/sdt.h> leaves in .note.stapsdt. Each gives a place in the
 * code, a nop, a provider and a name.
 *
 * A note has three addresses (the place, that of .stapsdt.base when linked, a semaphore or 0), then provider,
 * name and arguments, each ended by a NUL. If the file's .stapsdt.base has moved (prelink), places have moved
 * as far.
 */

#include <stddef.h>
#include <stdint.h>

struct symbol_file;

struct usdt_probe {
	const char *provider, *name; /* valid during the call */
	uint64_t offset;             /* offset in the file */
	uint64_t semaphore_offset;   /* offset in the file of a counter of active tracers; 0: none */
};

/* Calls visit() for each probe until a call returns a value other than 0, which is then the result. Notes
 * that are damaged or point outside of the file are left out. */
int usdt_each(const struct symbol_file *file, int (*visit)(void *user, const struct usdt_probe *probe),
	      void *user);
