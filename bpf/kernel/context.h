/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * Tracks the interrupt, if any, that each CPU is in. At sched_waking `current` is the waker only outside of
 * interrupts. In the jobs that this was tried on, every apparent "worker woke trainer" was a timer interrupt.
 *
 * The collector attaches exits before entries: the other way round, an interrupt in between would leave a
 * context that never ends. As no interrupt switches tasks, sched_switch clears any context that is left all
 * the same.
 *
 * Interrupts from other CPUs have no hooks. Their handlers wake nobody: a thread that is woken elsewhere has
 * passed sched_waking on the waker's CPU, and I/O that is complete is left to a softirq. The kernel also
 * sends them while it patches code, as when it switches a hook on.
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
