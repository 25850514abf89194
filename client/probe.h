/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * USDT probes for bpftrace, perf and the like: a nop in the code, and an ELF note with its address, its names
 * and the location of its argument. The note has the format of SystemTap's <sys/sdt.h> (owner "stapsdt", type
 * 3). That header is a separate package on most systems, and libdiesel must build wherever there is a C
 * compiler.
 */

#include <stdint.h>

_Static_assert(sizeof(void *) == 8, "the ELF note holds 64-bit addresses");

/* 8@: the argument is unsigned and has 8 bytes. From the base section, readers compute how far the file
 * has been moved since it was linked; all probes of a file share one. The last of the three addresses
 * would be a semaphore's. */
#define PROBE(provider, name, argument)                                                                      \
	__asm__ volatile("990: nop\n"                                                                        \
			 ".pushsection .note.stapsdt, \"?\", \"note\"\n"                                     \
			 ".balign 4\n"                                                                       \
			 ".4byte 992f - 991f, 994f - 993f, 3\n"                                              \
			 "991: .asciz \"stapsdt\"\n"                                                         \
			 "992: .balign 4\n"                                                                  \
			 "993: .8byte 990b, _.stapsdt.base, 0\n"                                             \
			 ".asciz \"" provider "\", \"" name "\", \"8@%0\"\n"                                 \
			 "994: .balign 4\n"                                                                  \
			 ".popsection\n"                                                                     \
			 ".ifndef _.stapsdt.base\n"                                                          \
			 ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"         \
			 ".weak _.stapsdt.base\n"                                                            \
			 ".hidden _.stapsdt.base\n"                                                          \
			 "_.stapsdt.base: .space 1\n"                                                        \
			 ".size _.stapsdt.base, 1\n"                                                         \
			 ".popsection\n"                                                                     \
			 ".endif\n"                                                                          \
			 :                                                                                   \
			 : "nor"((uint64_t)(argument)))
