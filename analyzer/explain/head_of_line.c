/* SPDX-License-Identifier: Apache-2.0 */
#include "finders.h"

#include "analyzer/timeline/calls.h"

#define LYING_MAX    4 /* maximum batches per worker: twice PyTorch's limit of batches in progress */
#define HEADER_BYTES 4 /* length field of a short message of multiprocessing, which is read separately */

struct messages {
	const struct roles *roles;
	bool by_header; /* each message begins with a read of HEADER_BYTES */
	size_t call;    /* index of the reader's next call to process */
};

static bool is_message(const struct messages *messages, const struct timeline_call *call)
{
	size_t result;

	if (!call_is_pipe_read(call) || call->result <= 0)
		return false;
	result = roles_result(messages->roles, call->inode);
	/* Batches of a validation delay no step. */
	if (result == messages->roles->n_results || !messages->roles->result_loaders[result])
		return false;
	return !messages->by_header || call->result == HEADER_BYTES;
}

/* Returns the number of messages read up to end_ns since the last call; *ret_first_ns: time of the first. */
static size_t messages_take(struct messages *messages, uint64_t end_ns, uint64_t *ret_first_ns)
{
	const struct timeline_thread *reader = messages->roles->reader;
	size_t n = 0;

	for (; messages->call < reader->n_calls; messages->call++) {
		const struct timeline_call *call = &reader->calls[messages->call];

		if (call->end_ns > end_ns)
			break;
		if (!is_message(messages, call))
			continue;
		if (!n++)
			*ret_first_ns = call->end_ns;
	}
	return n;
}

static bool has_headers(const struct roles *roles)
{
	size_t n = 0, n_headers = 0;

	for (size_t i = 0; i < roles->reader->n_calls; i++) {
		const struct timeline_call *call = &roles->reader->calls[i];

		if (!call_is_pipe_read(call) || call->result <= 0 || !roles_is_result(roles, call->inode))
			continue;
		n++;
		n_headers += call->result == HEADER_BYTES;
	}
	return 3 * n_headers > n;
}

/* Returns the head-of-line waits of one step, which takes a batch. Updates *n_lying, the number of batches
 * that were read and not taken yet. */
static uint64_t step_add(struct messages *messages, const struct data_waits *waits,
			 const struct analysis_step *step, size_t *n_lying)
{
	uint64_t sum_ns = 0, first_ns = 0;

	for (size_t i = data_waits_from(waits, step->begin_ns); i < waits->n; i++) {
		const struct data_wait *wait = &waits->items[i];
		uint64_t begin_ns = wait->begin_ns > step->begin_ns ? wait->begin_ns : step->begin_ns;
		uint64_t end_ns = wait->end_ns < step->end_ns ? wait->end_ns : step->end_ns;
		size_t n;

		if (begin_ns >= step->end_ns)
			break;
		*n_lying += messages_take(messages, begin_ns, &first_ns);
		n = messages_take(messages, end_ns, &first_ns);
		/* The trainer did not wait for the batches that are left. */
		if (n && *n_lying)
			sum_ns += end_ns - begin_ns;
		else if (n > 1)
			sum_ns += end_ns - first_ns;
		*n_lying += n;
	}
	*n_lying += messages_take(messages, step->end_ns, &first_ns);
	*n_lying -= *n_lying > 0;
	return sum_ns;
}

uint64_t head_of_line_ns(const struct roles *roles, const struct data_waits *waits,
			 const struct window *window)
{
	struct messages messages = {.roles = roles};
	uint64_t sum_ns = 0, first_ns;
	size_t n_lying = 0;

	if (waits->loader != LOADER_WORKERS || !roles->reader)
		return 0;
	messages.by_header = has_headers(roles);
	messages_take(&messages, window->begin_ns, &first_ns);
	for (size_t i = 0; i < window->n_steps; i++) {
		sum_ns += step_add(&messages, waits, &window->steps[i], &n_lying);
		/* More messages than the workers can have in progress are the last messages of an epoch,
		 * and not batches. */
		if (n_lying > LYING_MAX * roles->n_workers)
			n_lying = 0;
	}
	return sum_ns;
}
