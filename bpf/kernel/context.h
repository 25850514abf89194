/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * Which interrupt, if any, a CPU is in. `current` at sched_waking is the waker only outside of them; in the
 * jobs this was tried on, every apparent "worker woke trainer" without this was a timer interrupt.
 *
 * The collector attaches exits before entries: the other way round an interrupt in between would leave a
 * context that never ends. sched_switch clears what is wrong all the same, as no interrupt switches tasks.
 */

#include "recorder.h"

static __always_inline int context_push(uint32_t context, uint32_t detail)
{
	struct cpu_state *cpu = this_cpu();

	if (cpu)
		cpu->contexts = cpu->contexts << 8 | (detail & 63) << 2 | context;
	return 0;
}

static __always_inline int context_pop(void)
{
	struct cpu_state *cpu = this_cpu();

	if (cpu)
		cpu->contexts >>= 8;
	return 0;
}

#define CONTEXT_HOOKS(name, context)                                                                         \
	SEC("?tp_btf/" #name "_exit")                                                                        \
	int name##_exit(void *ctx)                                                                           \
	{                                                                                                    \
		return context_pop();                                                                        \
	}                                                                                                    \
	SEC("?tp_btf/" #name "_entry")                                                                       \
	int name##_entry(void *ctx)                                                                          \
	{                                                                                                    \
		return context_push(context, 0);                                                             \
	}

CONTEXT_HOOKS(irq_handler, WAKER_HARDIRQ)
CONTEXT_HOOKS(local_timer, WAKER_TIMER)
CONTEXT_HOOKS(reschedule, WAKER_HARDIRQ)
CONTEXT_HOOKS(call_function, WAKER_HARDIRQ)
CONTEXT_HOOKS(call_function_single, WAKER_HARDIRQ)

SEC("?tp_btf/softirq_exit")
int softirq_exit(void *ctx)
{
	return context_pop();
}

SEC("?tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int number)
{
	return context_push(WAKER_SOFTIRQ, number);
}
