/* SPDX-License-Identifier: Apache-2.0 */
#include "waits.h"

#include <errno.h>
#include <stdlib.h>

#include "calls.h"
#include "times.h"

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

/* Is there a backward pass in [begin_ns, end_ns)? It moves *cursor to the first one at or after begin_ns. */
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

/* next() ends by asking for one more batch: it wakes a thread of its process that writes the index pipe, and
 * may have to wait for the GIL, which that thread takes. If the batch came earlier, out of order, this is all
 * that next() shows. */
struct request {
	uint64_t begin_ns, end_ns;
};

struct requests {
	struct request *items;
	size_t n;
};

static int request_compare(const void *left, const void *right)
{
	const struct request *a = left, *b = right;

	return a->begin_ns < b->begin_ns ? -1 : a->begin_ns > b->begin_ns;
}

static struct request request_of(const struct roles *roles, const struct timeline_thread *writer,
				 uint64_t at_ns)
{
	uint64_t end_ns = data_waits_handover_end(roles, at_ns, writer->tid);

	return (struct request){at_ns, end_ns > at_ns ? end_ns : at_ns + 1};
}

static int requests_collect(const struct timeline *timeline, const struct roles *roles,
			    struct requests *ret_requests)
{
	struct requests requests = {0};
	size_t n = 0;

	for (size_t i = 0; i < timeline->n_threads; i++)
		n += roles->of[i] == ROLE_HELPER ? timeline->threads[i].n_offs : 0;
	requests.items = calloc(n + 1, sizeof(*requests.items));
	if (!requests.items)
		return -ENOMEM;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];
		bool writes = false;

		for (size_t k = 0; roles->of[i] == ROLE_HELPER && !writes && k < thread->n_calls; k++)
			writes = call_is_pipe_write(&thread->calls[k]);
		for (size_t k = 0; writes && k < thread->n_offs; k++)
			if (thread->offs[k].waker_tid == roles->trainer->tid)
				requests.items[requests.n++] =
				    request_of(roles, thread, thread->offs[k].waking_ns);
	}
	qsort(requests.items, requests.n, sizeof(*requests.items), request_compare);
	*ret_requests = requests;
	return 0;
}

/* Does the request end the wait before it? It may lie within it, or directly follow. */
static bool ends_with(const struct roles *roles, const struct data_wait *wait, const struct request *request,
		      size_t *step_cursor)
{
	if (request->begin_ns <= wait->end_ns)
		return true;
	return !step_between(roles->trainer, step_cursor, wait->begin_ns, request->begin_ns) &&
	       cpu_between(roles->trainer, wait->end_ns, request->begin_ns) < GAP_CPU_NS;
}

static int add_request(const struct roles *roles, const struct request *request, struct data_waits *waits,
		       size_t *step_cursor)
{
	struct data_wait *last = waits->n ? &waits->items[waits->n - 1] : NULL;

	if (last && ends_with(roles, last, request, step_cursor)) {
		last->end_ns = max_ns(last->end_ns, request->end_ns);
		return 0;
	}
	return data_waits_add(waits, (struct data_wait){.begin_ns = request->begin_ns,
							.end_ns = request->end_ns,
							.ready_ns = request->begin_ns});
}

/* Merges the waits that reads showed (`reads`) and the requests into `waits`: a request right after a wait
 * ends it. */
static int merge_requests(const struct roles *roles, const struct data_waits *reads,
			  const struct requests *requests, struct data_waits *waits)
{
	size_t i = 0, step_cursor = 0;
	int r = 0;

	for (size_t k = 0; k < requests->n && r == 0; k++) {
		while (i < reads->n && reads->items[i].begin_ns <= requests->items[k].begin_ns && r == 0)
			r = data_waits_add(waits, reads->items[i++]);
		if (r == 0)
			r = add_request(roles, &requests->items[k], waits, &step_cursor);
	}
	while (i < reads->n && r == 0)
		r = data_waits_add(waits, reads->items[i++]);
	return r;
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
			/* A call in the first moments of what is seen of the trainer: its start was before.
			 */
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

int data_waits_find_fed(const struct timeline *timeline, const struct roles *roles, struct data_waits *waits)
{
	struct data_waits reads = {0};
	size_t i = 0;
	int r = roles->fed ? find_by_reads(roles, &reads) : 0;

	if (r == 0)
		r = data_waits_find_threads(timeline, roles, waits);
	if (r == 0 && reads.n) {
		struct data_waits threads = *waits;

		*waits = (struct data_waits){.loader = threads.loader};
		for (size_t k = 0; k < reads.n && r == 0; k++) {
			while (i < threads.n && threads.items[i].begin_ns <= reads.items[k].begin_ns &&
			       r == 0)
				r = data_waits_add(waits, threads.items[i++]);
			if (r == 0)
				r = data_waits_add(waits, reads.items[k]);
		}
		while (i < threads.n && r == 0)
			r = data_waits_add(waits, threads.items[i++]);
		data_waits_free(&threads);
	}
	data_waits_free(&reads);
	return r;
}

int data_waits_find_workers(const struct timeline *timeline, const struct roles *roles,
			    struct data_waits *waits)
{
	struct requests requests = {0};
	struct data_waits reads = {0};
	int r;

	if (!roles->reader)
		return 0;
	r = roles->reader == roles->trainer ? find_by_reads(roles, &reads)
					    : data_waits_find_threads(timeline, roles, &reads);
	if (r == 0)
		r = requests_collect(timeline, roles, &requests);
	if (r == 0)
		r = merge_requests(roles, &reads, &requests, waits);
	free(requests.items);
	data_waits_free(&reads);
	return r;
}
