/* SPDX-License-Identifier: Apache-2.0 */
#include "waits.h"

#include <errno.h>

#include "calls.h"

/*
 * After the message is read, the trainer fetches each tensor's descriptor over a Unix socket and maps it; in
 * between it computes for some 100 us. Gaps are counted in CPU time: a trainer that waits for the GIL or for
 * a core in the middle of the handshake is still in it.
 */
#define GAP_CPU_NS    UINT64_C(1500000)
#define SOCKET_CPU_NS UINT64_C(10000000) /* unpickling a large batch between two descriptors */

/* Calls that a handshake consists of. Locks are not among them: OpenMP's would chain on through the step. */
static bool continues_handshake(const struct timeline_call *call)
{
	return call_is_socket(call) || call->file_type == EVENT_FILE_FIFO || call_is_map(call) ||
	       (call_is_close(call) && call->file_type == EVENT_FILE_REG);
}

static uint64_t cpu_between(const struct timeline_thread *thread, uint64_t begin_ns, uint64_t end_ns)
{
	struct timeline_account account;

	if (end_ns <= begin_ns)
		return 0;
	account = timeline_account(thread, begin_ns, end_ns);
	return account.cpu_ns + account.unknown_ns;
}

/* Is there a backward pass in [begin_ns, end_ns)? steps[*cursor...] are those not before begin_ns. */
static bool step_between(const struct timeline_thread *thread, size_t *cursor, uint64_t begin_ns,
			 uint64_t end_ns)
{
	while (*cursor < thread->n_steps && thread->steps[*cursor] < begin_ns)
		++*cursor;
	return *cursor < thread->n_steps && thread->steps[*cursor] < end_ns;
}

static bool belongs(const struct timeline_thread *trainer, const struct data_wait *wait,
		    const struct timeline_call *call, bool result, size_t *step_cursor)
{
	uint64_t limit_ns = call_is_socket(call) ? SOCKET_CPU_NS : GAP_CPU_NS;

	if (!wait->end_ns || (!result && !continues_handshake(call)))
		return false;
	if (step_between(trainer, step_cursor, wait->begin_ns, call->end_ns))
		return false;
	return cpu_between(trainer, wait->end_ns, call->begin_ns) < limit_ns;
}

static int find_by_reads(const struct roles *roles, struct data_waits *waits)
{
	const struct timeline_thread *trainer = roles->trainer;
	struct data_wait wait = {0};
	size_t step_cursor = 0;

	for (size_t i = 0; i < trainer->n_calls; i++) {
		const struct timeline_call *call = &trainer->calls[i];
		bool reads = call_is_pipe_read(call);
		bool result = (reads || call_is_pipe_poll(call)) && roles_is_result(roles, call->inode);

		if (belongs(trainer, &wait, call, result, &step_cursor)) {
			wait.end_ns = call->end_ns;
		} else if (result) {
			if (wait.end_ns && data_waits_add(waits, wait) < 0)
				return -ENOMEM;
			/* In the middle of its first seen microseconds: the begin was before. */
			wait = (struct data_wait){
			    .begin_ns = call->begin_ns,
			    .end_ns = call->end_ns,
			    .clipped = (call->flags & EVENT_FLAG_CLIPPED) ||
				       (!trainer->born_ns && call->begin_ns < trainer->first_ns + GAP_CPU_NS),
			};
		}
		if (result && reads && call->result > 0)
			wait.ready_ns = call->end_ns;
	}
	return wait.end_ns ? data_waits_add(waits, wait) : 0;
}

/* A pin-memory thread reads for the trainer: the wait is the sleep that it ends. */
static int find_by_wakes(const struct roles *roles, struct data_waits *waits)
{
	const struct timeline_thread *trainer = roles->trainer;

	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if (off->waker_tid != roles->reader->tid)
			continue;
		if (data_waits_add(waits, (struct data_wait){.begin_ns = off->begin_ns,
							     .end_ns = off->end_ns,
							     .ready_ns = off->waking_ns,
							     .clipped = off->flags & EVENT_FLAG_CLIPPED}) < 0)
			return -ENOMEM;
	}
	return 0;
}

int data_waits_find_workers(const struct roles *roles, struct data_waits *waits)
{
	if (!roles->reader)
		return 0;
	return roles->reader == roles->trainer ? find_by_reads(roles, waits) : find_by_wakes(roles, waits);
}
