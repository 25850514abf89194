/* SPDX-License-Identifier: Apache-2.0 */

/* A library with real USDT markers of the provider that is looked at, and of another one; built with
 * semaphores (a counter of listeners, which the marker's user may ask) and without. For tests only. */

#if SEMAPHORES
#define _SDT_HAS_SEMAPHORES 1
#endif
#include <sys/sdt.h>

#define EXPORT __attribute__((visibility("default"), noinline))

#if SEMAPHORES
#define SEMAPHORE(name) unsigned short name##_semaphore __attribute__((section(".probes"), used))
SEMAPHORE(diesel_forward_begin);
SEMAPHORE(diesel_forward_end);
SEMAPHORE(diesel_neither);
SEMAPHORE(stranger_forward_begin);
SEMAPHORE(stranger_forward_end);
#endif

void usdt_forward(int end);
int usdt_listeners(void);

EXPORT void usdt_forward(int end)
{
	if (end) {
		DTRACE_PROBE(diesel, forward_end);
		DTRACE_PROBE(stranger, forward_end);
	} else {
		DTRACE_PROBE(stranger, forward_begin);
		DTRACE_PROBE(diesel, forward_begin);
	}
	DTRACE_PROBE(diesel, neither);
}

EXPORT int usdt_listeners(void)
{
#if SEMAPHORES
	return *(volatile unsigned short *)&diesel_forward_begin_semaphore;
#else
	return -1;
#endif
}
