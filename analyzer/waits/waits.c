/* SPDX-License-Identifier: Apache-2.0 */
#include "waits.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "analyzer/base/times.h"
#include "analyzer/timeline/calls.h"
#include "analyzer/timeline/downloads.h"
#include "lib/array.h"
#include "lib/sorted.h"
#include "rhythm.h"

#define SHORT_RATIO 8

/* Returns the length L such that half of the total wait time is in waits of at least L. */
static uint64_t usual_wait(const struct data_waits *waits, uint64_t *scratch)
{
	uint64_t sum_ns = 0, so_far_ns = 0;
	size_t i = 0;

	for (size_t k = 0; k < waits->n; k++) {
		scratch[k] = waits->items[k].end_ns - waits->items[k].begin_ns;
		sum_ns += scratch[k];
	}
	qsort(scratch, waits->n, sizeof(*scratch), compare_u64);
	for (; i < waits->n && 2 * (so_far_ns + scratch[i]) < sum_ns; i++)
		so_far_ns += scratch[i];
	return i < waits->n ? scratch[i] : 0;
}

size_t data_waits_handovers(const struct data_waits *waits, uint64_t *ret_times)
{
	uint64_t usual_ns = usual_wait(waits, ret_times);
	size_t n = 0;

	for (size_t i = 0; i < waits->n; i++)
		if (SHORT_RATIO * (waits->items[i].end_ns - waits->items[i].begin_ns) >= usual_ns)
			ret_times[n++] = waits->items[i].end_ns;
	return n;
}

/* Maximum CPU time in a hand-over: after more, the trainer waits for something else. */
#define HANDOVER_CPU_NS UINT64_C(300000)

/* Returns true if this interval off the CPU belongs to handing over. `helper_tid`: thread that may end it; 0:
 * none. */
static bool hands_over(const struct roles *roles, const struct timeline_off *off, uint32_t helper_tid)
{
	if (!off->state)
		return off->syscall_nr == SYS_futex; /* preempted in futex(), the call that wakes */
	return (helper_tid && off->waker_tid == helper_tid) || gil_waits(&roles->gil, roles->trainer, off);
}

uint64_t data_waits_handover_end(const struct roles *roles, uint64_t at_ns, uint32_t helper_tid)
{
	uint64_t end_ns = at_ns, cpu_ns = 0;

	for (;;) {
		struct timeline_piece piece = timeline_piece_at(roles->trainer, at_ns, UINT64_MAX);

		if (piece.state == STATE_CPU) {
			cpu_ns += piece.end_ns - at_ns;
			if (cpu_ns > HANDOVER_CPU_NS)
				return end_ns;
		} else if (!piece.off || !hands_over(roles, piece.off, helper_tid)) {
			return end_ns;
		} else {
			end_ns = piece.end_ns = piece.off->end_ns;
		}
		at_ns = piece.end_ns;
	}
}

static bool ends_waits(const struct timeline *timeline, const struct roles *roles,
		       const struct timeline_off *off)
{
	const struct timeline_thread *waker = timeline_waker(timeline, off);

	return waker && (waker == roles->reader || role_of(timeline, roles, waker) == ROLE_LOADER) &&
	       !gil_waits(&roles->gil, roles->trainer, off);
}

/* Returns the start of the first try: a wait with a timeout is repeated until a batch is ready. */
static uint64_t first_try_ns(const struct timeline_thread *trainer, size_t i)
{
	uint64_t begin_ns = trainer->offs[i].begin_ns;

	while (i > 0) {
		const struct timeline_off *before = &trainer->offs[i - 1];

		if (!before->state || before->state == TIMELINE_UNKNOWN || before->waker_tid ||
		    before->syscall_nr != SYS_futex ||
		    timeline_cpu_between(trainer, before->end_ns, begin_ns) > HANDOVER_CPU_NS)
			break;
		begin_ns = before->begin_ns;
		i--;
	}
	return begin_ns;
}

/* Adds the sleeps of the trainer that the reader of results, or a loader thread, ends. */
static int data_waits_find_threads(const struct timeline *timeline, const struct roles *roles,
				   struct data_waits *waits)
{
	const struct timeline_thread *trainer = roles->trainer;

	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if (!ends_waits(timeline, roles, off))
			continue;
		if (data_waits_add(
			waits, (struct data_wait){.begin_ns = first_try_ns(trainer, i),
						  .end_ns = data_waits_handover_end(roles, off->end_ns, 0),
						  .ready_ns = off->waking_ns,
						  .clipped = off->flags & EVENT_FLAG_CLIPPED}) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Adds a wait from each mark of begin_kind to the next mark of end_kind. */
static int data_waits_find_marks(const struct timeline_thread *trainer, uint32_t begin_kind,
				 uint32_t end_kind, struct data_waits *waits)
{
	uint64_t begin_ns = 0;

	for (size_t i = 0; i < trainer->n_marks; i++) {
		const struct timeline_mark *mark = &trainer->marks[i];

		if (mark->kind == begin_kind) {
			begin_ns = mark->at_ns;
		} else if (mark->kind == end_kind && begin_ns) {
			if (data_waits_add(waits, (struct data_wait){.begin_ns = begin_ns,
								     .end_ns = mark->at_ns,
								     .ready_ns = mark->at_ns}) < 0)
				return -ENOMEM;
			begin_ns = 0;
		}
	}
	return 0;
}

/* Sets file_calls to all reading of the trainer, within waits or not: splitting uses only those within
 * waits. */
static int data_waits_find_reads(const struct timeline_thread *trainer, const struct downloads *downloads,
				 struct data_waits *waits)
{
	struct interval_list *reads = &waits->file_calls;

	for (size_t i = 0; i < trainer->n_calls; i++) {
		const struct timeline_call *call = &trainer->calls[i];

		/* Treats a group as all its calls, then all its computing, because only the sums matter. */
		if (downloads_touches(downloads, call) &&
		    interval_list_add(reads, call->begin_ns, call->begin_ns + call->busy_ns) < 0)
			return -ENOMEM;
	}
	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if (timeline_off_is_fault(trainer, off) &&
		    interval_list_add(reads, off->begin_ns, off->end_ns) < 0)
			return -ENOMEM;
	}
	interval_list_tidy(reads);
	return 0;
}

/* Finds the waits of a DataLoader without workers. */
static int data_waits_find_batches(const struct timeline_thread *trainer, struct data_waits *waits)
{
	struct downloads downloads = {0};
	int r = data_waits_find_marks(trainer, MARK_BATCH_BEGIN, MARK_BATCH_END, waits);

	if (r == 0)
		r = downloads_find(trainer, &downloads);
	if (r == 0)
		r = data_waits_find_reads(trainer, &downloads, waits);
	downloads_free(&downloads);
	return r;
}

/*
 * After reading the message, the trainer fetches each tensor's descriptor over a Unix socket and maps it; in
 * between it computes for about 100 us. Gaps are counted in CPU time: a trainer that waits for the GIL or for
 * a core in the middle of the handshake is still in it.
 */
#define GAP_CPU_NS    UINT64_C(1500000)
#define SOCKET_CPU_NS UINT64_C(10000000) /* maximum between two descriptors: unpickling a large batch */

/* Returns true for calls that a handshake consists of. Locks do not count: OpenMP's would extend the
 * handshake through the step. */
static bool continues_handshake(const struct timeline_call *call)
{
	return call_is_socket(call) || call->file_type == EVENT_FILE_FIFO || call_is_map(call) ||
	       (call_is_close(call) && call->file_type == EVENT_FILE_REG);
}

/* Returns true if there is a backward pass in [begin_ns, end_ns). Moves *cursor to the first one at or after
 * begin_ns. */
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
	return timeline_cpu_between(trainer, wait->end_ns, call->begin_ns) < limit_ns;
}

/*
 * A request: next() ends by asking for one more batch. It wakes a thread of its process that writes the index
 * pipe, and may have to wait for the GIL, which that thread takes. If the batch came earlier, out of order,
 * this is the only trace of next().
 */
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

/* Returns true if the request ends the wait before it: it lies within the wait, or follows directly. */
static bool ends_with(const struct roles *roles, const struct data_wait *wait, const struct request *request,
		      size_t *step_cursor)
{
	if (request->begin_ns <= wait->end_ns)
		return true;
	return !step_between(roles->trainer, step_cursor, wait->begin_ns, request->begin_ns) &&
	       timeline_cpu_between(roles->trainer, wait->end_ns, request->begin_ns) < GAP_CPU_NS;
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
			/* A call at the very beginning of the trainer's recording may have started before. */
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

/* Finds sleeps that loader threads end, and reads of pipes written by processes other than workers. */
static int data_waits_find_fed(const struct timeline *timeline, const struct roles *roles,
			       struct data_waits *waits)
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

static int data_waits_find_workers(const struct timeline *timeline, const struct roles *roles,
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

/*
 * Waits of a trainer without backward passes, DataLoader and workers, that is, of NumPy, scikit-learn or
 * JAX with the job's own loader. The rhythm of its reads shows its steps.
 */
#define SAMPLE_GAP_NS UINT64_C(300000) /* minimum computing between two samples; less is within one */

static uint32_t n_reads_of(const struct timeline_call *call)
{
	return call->kind == CALL_GROUP ? call->n_reads : call_read_bytes(call) > 0;
}

/* Finds the beats: all calls for one data sample are one beat. */
static size_t beats_find(const struct timeline_thread *trainer, const struct downloads *downloads,
			 struct beat *beats)
{
	uint64_t exec_ns = 0, read_bytes = 0;
	size_t n = 0;

	for (size_t i = 0; i < trainer->n_calls; i++) {
		const struct timeline_call *call = &trainer->calls[i];
		uint64_t gap_ns;

		if (!downloads_touches(downloads, call) || (call->flags & EVENT_FLAG_CLIPPED))
			continue;
		gap_ns = n ? timeline_cpu_between(trainer, beats[n - 1].end_ns, call->begin_ns) : 0;
		read_bytes += call_read_bytes(call);
		if (!n || gap_ns >= SAMPLE_GAP_NS) {
			exec_ns += gap_ns;
			beats[n++] = (struct beat){.begin_ns = call->begin_ns,
						   .first_ns = call->begin_ns,
						   .exec_begin_ns = exec_ns,
						   .pause_ns = gap_ns};
			gap_ns = 0;
		}
		exec_ns += gap_ns + timeline_account(trainer, call->begin_ns, call->end_ns).cpu_ns;
		beats[n - 1].end_ns = beats[n - 1].last_ns = call->end_ns;
		beats[n - 1].exec_end_ns = exec_ns;
		beats[n - 1].read_bytes = read_bytes;
		beats[n - 1].n_reads += n_reads_of(call);
	}
	return n;
}

/* Adds the waits: the times between two intervals of computing. */
static int waits_take(const struct timeline_thread *trainer, const struct rhythm *rhythm,
		      struct data_waits *waits)
{
	uint64_t at_ns = rhythm->begin_ns;
	int r = 0;

	for (size_t i = 0; r == 0 && i < rhythm->n_computing; i++) {
		const struct interval *computing = &rhythm->computing[i];
		uint64_t read_ns = computing->begin_ns - rhythm->sample_ns;
		uint64_t end_ns = timeline_after_cpu(trainer, read_ns, rhythm->sample_ns, computing->end_ns);

		if (at_ns < end_ns)
			r = data_waits_add(
			    waits,
			    (struct data_wait){.begin_ns = at_ns, .end_ns = end_ns, .ready_ns = end_ns});
		at_ns = computing->end_ns;
	}
	return r;
}

/* Finds the waits of a trainer whose steps are not known. */
static int data_waits_find_rhythm(const struct timeline_thread *trainer, struct data_waits *waits)
{
	struct beat *beats = calloc(trainer->n_calls + 1, sizeof(*beats));
	struct downloads downloads = {0};
	struct rhythm rhythm = {0};
	int r = beats ? downloads_find(trainer, &downloads) : -ENOMEM;

	if (r == 0)
		r = rhythm_find(beats, beats_find(trainer, &downloads, beats), 1, trainer->last_ns, &rhythm);
	if (r == 0)
		r = waits_take(trainer, &rhythm, waits);
	if (r == 0)
		r = data_waits_find_reads(trainer, &downloads, waits);
	rhythm_free(&rhythm);
	downloads_free(&downloads);
	free(beats);
	return r;
}

/*
 * Waits of a trainer without workers and marks, which opens, reads and decodes sample after sample between
 * two steps. An interval of computing between two file calls that is far longer than decoding a sample
 * separates reading a batch from anything else that uses files (logging, an import, the batch of an
 * evaluation).
 */
#define OUTLIER_FACTOR 8
#define OUTLIER_MIN_NS UINT64_C(5000000)
#define SAMPLE_GAP_NS  UINT64_C(300000) /* minimum computing between two samples; less is within one */

/* A file call, a group of them or a page fault of the trainer that may be the reading of samples. */
struct touch {
	uint64_t begin_ns, end_ns;
	uint64_t busy_ns; /* time spent in the calls */
	uint64_t gap_ns;  /* CPU time since the touch before, if in the same step */
	size_t step;      /* number of backward passes before this touch */
	size_t n_opens;
	bool first;  /* the first touch of its step */
	bool closes; /* the touch only closes a file */
};

/* A CPU time between two samples, and the number of times it was seen. */
struct gap {
	uint64_t ns;
	size_t n;
};

struct touches {
	struct touch *items;
	size_t n;
	bool by_open;    /* samples begin with an open(); otherwise after SAMPLE_GAP_NS */
	uint64_t gap_ns; /* median CPU time between two samples */
};

static int touch_compare(const void *left, const void *right)
{
	const struct touch *a = left, *b = right;

	return a->begin_ns < b->begin_ns ? -1 : a->begin_ns > b->begin_ns;
}

static int gap_compare(const void *left, const void *right)
{
	const struct gap *a = left, *b = right;

	return a->ns < b->ns ? -1 : a->ns > b->ns;
}

static uint64_t gaps_median(struct gap *gaps, size_t n_gaps)
{
	size_t n = 0, half;

	qsort(gaps, n_gaps, sizeof(*gaps), gap_compare);
	for (size_t i = 0; i < n_gaps; i++)
		n += gaps[i].n;
	half = n / 2;
	for (size_t i = 0; i < n_gaps; i++) {
		if (half < gaps[i].n)
			return gaps[i].ns;
		half -= gaps[i].n;
	}
	return 0;
}

static int touches_collect(const struct timeline_thread *trainer, const struct interval_list *checkpoints,
			   const struct downloads *downloads, struct touches *touches)
{
	size_t step = 0;

	touches->items = calloc(trainer->n_calls + trainer->n_offs + 1, sizeof(*touches->items));
	if (!touches->items)
		return -ENOMEM;
	for (size_t i = 0; i < trainer->n_calls; i++) {
		const struct timeline_call *call = &trainer->calls[i];

		/* A call that began before the recording does not show where the batch began. */
		if (downloads_touches(downloads, call) &&
		    !interval_list_cover(checkpoints, call->begin_ns, call->begin_ns + 1) &&
		    !(call->flags & EVENT_FLAG_CLIPPED))
			touches->items[touches->n++] = (struct touch){.begin_ns = call->begin_ns,
								      .end_ns = call->end_ns,
								      .busy_ns = call->busy_ns,
								      .n_opens = call_opens(call),
								      .closes = call_is_close(call)};
	}
	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if (timeline_off_is_fault(trainer, off))
			touches->items[touches->n++] = (struct touch){.begin_ns = off->begin_ns,
								      .end_ns = off->end_ns,
								      .busy_ns = off->end_ns - off->begin_ns};
	}
	qsort(touches->items, touches->n, sizeof(*touches->items), touch_compare);
	for (size_t i = 0; i < touches->n; i++) {
		struct touch *touch = &touches->items[i];

		while (step < trainer->n_steps && trainer->steps[step] <= touch->begin_ns)
			step++;
		touch->step = step;
		touch->first = !i || touches->items[i - 1].step != step;
		if (!touch->first)
			touch->gap_ns =
			    timeline_cpu_between(trainer, touches->items[i - 1].end_ns, touch->begin_ns);
	}
	return 0;
}

static size_t touch_samples(const struct touches *touches, size_t i)
{
	const struct touch *touch = &touches->items[i];

	if (touches->by_open)
		return touch->n_opens;
	return touch->first || touch->gap_ns >= SAMPLE_GAP_NS;
}

/* Finds how samples begin and how long decoding one takes, from all steps except the first, which is full
 * of imports. */
static int gaps_measure(struct touches *touches)
{
	struct gap *gaps = calloc(2 * touches->n + 1, sizeof(*gaps));
	size_t n_opens = 0, n = 0;

	if (!gaps)
		return -ENOMEM;
	for (size_t i = 0; i < touches->n; i++)
		n_opens += touches->items[i].step ? touches->items[i].n_opens : 0;
	touches->by_open = n_opens > 0;
	for (size_t i = 0; i < touches->n; i++) {
		const struct touch *touch = &touches->items[i];
		size_t n_samples = touch_samples(touches, i);

		if (!touch->step || !n_samples)
			continue;
		if (!touch->first)
			gaps[n++] = (struct gap){touch->gap_ns, 1};
		/* A group of calls has only the sum of the times between calls, not the time of each. */
		if (n_samples > 1)
			gaps[n++] = (struct gap){
			    (touch->end_ns - touch->begin_ns - touch->busy_ns) / n_samples, n_samples - 1};
	}
	touches->gap_ns = gaps_median(gaps, n);
	free(gaps);
	return 0;
}

static size_t n_samples(const struct touches *touches, size_t begin, size_t end)
{
	size_t n = 0;

	for (size_t i = begin; i < end; i++)
		n += touch_samples(touches, i);
	return n;
}

/* Returns the touch after which the last sample is decoded. A file may be closed only after decoding, if both
 * are in one `with` block. */
static const struct touch *last_read(const struct touches *touches, size_t begin, size_t end)
{
	const struct touch *last = &touches->items[end - 1];

	return end - 1 > begin && last->closes && last->gap_ns >= SAMPLE_GAP_NS ? last - 1 : last;
}

/* Adds a batch: touches [begin, end). Its wait lasts until the last sample is decoded, but never into the
 * step. */
static int batch_add(const struct timeline_thread *trainer, const struct touches *touches, size_t begin,
		     size_t end, struct data_waits *waits)
{
	const struct touch *last = &touches->items[end - 1];
	uint64_t limit_ns = last->step < trainer->n_steps ? trainer->steps[last->step] : trainer->last_ns;
	uint64_t end_ns = last->end_ns;
	struct data_wait wait = {.begin_ns = touches->items[begin].begin_ns};

	/* With one sample per batch, no gap shows how long decoding takes. */
	if (n_samples(touches, begin, end) > 1)
		end_ns = timeline_after_cpu(trainer, last_read(touches, begin, end)->end_ns, touches->gap_ns,
					    limit_ns);
	if (end_ns < last->end_ns)
		end_ns = last->end_ns;
	if (end < touches->n && touches->items[end].begin_ns < limit_ns)
		limit_ns = touches->items[end].begin_ns;
	wait.end_ns = end_ns < limit_ns ? end_ns : limit_ns;
	wait.ready_ns = wait.end_ns;
	/* Treats a group as all its calls, then all its computing, because only the sums matter. */
	for (size_t i = begin; i < end; i++)
		if (interval_list_add(&waits->file_calls, touches->items[i].begin_ns,
				      touches->items[i].begin_ns + touches->items[i].busy_ns) < 0)
			return -ENOMEM;
	return data_waits_add(waits, wait);
}

/* Returns the end of the batch that begins at touch `begin`: a new step, or an outlier gap. */
static size_t batch_end(const struct touches *touches, size_t begin)
{
	uint64_t outlier_ns = OUTLIER_FACTOR * touches->gap_ns;
	size_t end = begin + 1;

	if (outlier_ns < OUTLIER_MIN_NS)
		outlier_ns = OUTLIER_MIN_NS;
	while (end < touches->n && touches->items[end].step == touches->items[begin].step &&
	       touches->items[end].gap_ns < outlier_ns)
		end++;
	return end;
}

/* Finds the number of samples in a usual batch: the median of the most that each step after the first read at
 * once. In a slow moment a sample looks like several, and an evaluation is one batch of many. */
static int batch_size(const struct touches *touches, size_t *ret_n)
{
	uint64_t *most = calloc(touches->n + 1, sizeof(*most));
	size_t n_steps = 0, step = 0;

	if (!most)
		return -ENOMEM;
	for (size_t begin = 0, end; begin < touches->n; begin = end) {
		size_t n;

		end = batch_end(touches, begin);
		if (!touches->items[begin].step)
			continue;
		n_steps += touches->items[begin].step != step;
		step = touches->items[begin].step;
		n = n_samples(touches, begin, end);
		if (n > most[n_steps - 1])
			most[n_steps - 1] = n;
	}
	qsort(most, n_steps, sizeof(*most), compare_u64);
	*ret_n = most[n_steps / 2];
	free(most);
	return 0;
}

/* Returns where the first batch starts. Before the first step, much else reads files; only the last samples,
 * one batch, are data. */
static size_t first_batch_begin(const struct touches *touches, size_t begin, size_t end, size_t n_batch)
{
	size_t n = 0;

	for (size_t i = end; i > begin; i--) {
		n += touch_samples(touches, i - 1);
		if (n_batch && n >= n_batch)
			return i - 1;
	}
	return begin;
}

static int data_waits_find_inline(const struct timeline_thread *trainer,
				  const struct interval_list *checkpoints, struct data_waits *waits)
{
	struct downloads downloads = {0};
	struct touches touches = {0};
	size_t n_batch = 0;
	int r;

	r = downloads_find(trainer, &downloads);
	if (r == 0)
		r = touches_collect(trainer, checkpoints, &downloads, &touches);
	downloads_free(&downloads);
	if (r == 0)
		r = gaps_measure(&touches);
	if (r == 0)
		r = batch_size(&touches, &n_batch);
	for (size_t begin = 0, end; r == 0 && begin < touches.n; begin = end) {
		size_t first = begin, n;

		end = batch_end(&touches, begin);
		if (!touches.items[begin].step)
			first = first_batch_begin(&touches, begin, end, n_batch);
		/* Reads of less than half a batch are a log file, a lazy import, or a read of /proc. So are
		 * reads after the last step. */
		n = n_samples(&touches, first, end);
		if (n && 2 * n >= n_batch)
			r = batch_add(trainer, &touches, first, end, waits);
	}
	free(touches.items);
	interval_list_tidy(&waits->file_calls);
	return r;
}

int data_waits_add(struct data_waits *waits, struct data_wait wait)
{
	/* Hostile marks may make a wait begin before the one before it ended. */
	if (waits->n && wait.begin_ns < waits->items[waits->n - 1].end_ns)
		wait.begin_ns = waits->items[waits->n - 1].end_ns;
	if (wait.begin_ns >= wait.end_ns)
		return 0;
	if (array_reserve(waits->items, waits->n, waits->n_allocated) < 0)
		return -ENOMEM;
	waits->items[waits->n++] = wait;
	return 0;
}

void data_waits_free(struct data_waits *waits)
{
	free(waits->items);
	interval_list_free(&waits->file_calls);
	*waits = (struct data_waits){0};
}

size_t data_waits_from(const struct data_waits *waits, uint64_t at_ns)
{
	return sorted_count(waits->n, i, waits->items[i].end_ns <= at_ns);
}

/* Returns true if marks show the training loop: a loader used for other data makes few marks. */
static bool marks_lead(const struct timeline_thread *trainer, uint32_t kind)
{
	size_t n = 0;

	for (size_t i = 0; i < trainer->n_marks; i++)
		n += trainer->marks[i].kind == kind;
	return n && 2 * n >= trainer->n_steps;
}

int data_waits_find(const struct timeline *timeline, const struct roles *roles,
		    const struct interval_list *checkpoints, struct data_waits *ret_waits)
{
	struct data_waits waits = {0};
	int r;

	if (marks_lead(roles->trainer, MARK_NEXT_END)) {
		waits.loader = LOADER_DIESEL;
		waits.marked = true;
		r = data_waits_find_marks(roles->trainer, MARK_NEXT_BEGIN, MARK_NEXT_END, &waits);
	} else if (roles->n_workers) {
		waits.loader = LOADER_WORKERS;
		r = data_waits_find_workers(timeline, roles, &waits);
	} else if (roles->n_loaders || roles->fed) {
		waits.loader = LOADER_THREADS;
		r = data_waits_find_fed(timeline, roles, &waits);
	} else if (marks_lead(roles->trainer, MARK_BATCH_END)) {
		waits.loader = LOADER_INLINE;
		waits.marked = true;
		r = data_waits_find_batches(roles->trainer, &waits);
	} else if (!roles->trainer->n_steps) {
		waits.loader = LOADER_INLINE;
		r = data_waits_find_rhythm(roles->trainer, &waits);
	} else {
		waits.loader = LOADER_INLINE;
		r = data_waits_find_inline(roles->trainer, checkpoints, &waits);
	}
	if (r < 0) {
		data_waits_free(&waits);
		return r;
	}
	if (!waits.n)
		waits.loader = LOADER_NONE;
	*ret_waits = waits;
	return 0;
}

void data_waits_leave_gaps(struct data_waits *waits, const struct interval_list *gaps)
{
	size_t n = 0;

	for (size_t k = 0; k < waits->n; k++) {
		const struct data_wait wait = waits->items[k];
		size_t i = interval_list_from(gaps, wait.begin_ns);

		if (i == gaps->n || gaps->items[i].begin_ns >= wait.end_ns)
			waits->items[n++] = wait;
	}
	waits->n = n;
}

int data_waits_intervals(const struct data_waits *waits, struct interval_list *list)
{
	*list = (struct interval_list){0};
	for (size_t i = 0; i < waits->n; i++)
		if (interval_list_add(list, waits->items[i].begin_ns, waits->items[i].end_ns) < 0)
			return -ENOMEM;
	interval_list_tidy(list);
	return 0;
}
