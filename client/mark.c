/* SPDX-License-Identifier: Apache-2.0 */
#include "client/diesel.h"

#include "probe.h"

/* In its own file, and opaque to the optimizer, because the probe needs a function that is really called.
 * The function begins with a nop, because a probe on most other instructions is single-stepped: 10 us per
 * call on a virtual machine. */
__attribute__((noinline, visibility("default"), patchable_function_entry(1, 0))) void diesel_mark(
    uint32_t kind, uint64_t value)
{
	__asm__ volatile("" : : "r"(kind), "r"(value) : "memory");
	/* USDT probes for bpftrace and perf: each is one nop and an ELF note in the file. */
	switch ((enum diesel_mark_kind)kind) {
	case DIESEL_MARK_NEXT_BEGIN: PROBE("diesel", "next_begin", value); break;
	case DIESEL_MARK_NEXT_END: PROBE("diesel", "next_end", value); break;
	case DIESEL_MARK_WAIT_BEGIN: PROBE("diesel", "wait_begin", value); break;
	case DIESEL_MARK_WAIT_END: PROBE("diesel", "wait_end", value); break;
	}
}

const char *diesel_version(void)
{
	return DIESEL_VERSION;
}
