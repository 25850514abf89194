/* SPDX-License-Identifier: Apache-2.0 */
#include "stack_work.h"

#include <errno.h>
#include <stdlib.h>

#include "analyzer/input.h"
#include "analyzer/profile.h"
#include "bpf/metadata.h"
#include "lib/clock.h"
#include "lib/sorted.h"
#include "analyzer/base/times.h"

/* Number of frames from which a stack was truncated: its outer frames were not recorded. The recorder's limit
 * also counts frames that belong to no function, which are not in the stack. */
#define FRAMES_CUT (METADATA_STACK_FRAMES_MAX - 8)

/* The work of each frame, and the generators that contain the training loop. */
struct works {
	const struct profile_metadata *metadata;
	uint8_t *frames; /* enum stack_work of each of metadata->frames */
	uint8_t *traces; /* same for each of metadata->traces */
	uint8_t *trains; /* flag for each of metadata->frames: a step was seen inside it */
};

/* Returns the index in metadata->frames; n_frames: none. */
static size_t frame_at(const struct profile_metadata *metadata, uint64_t key)
{
	const struct profile_frame *frame =
	    bsearch(&key, metadata->frames, metadata->n_frames, sizeof(*metadata->frames), compare_u64);

	return frame ? (size_t)(frame - metadata->frames) : metadata->n_frames;
}

static enum stack_work work_of_frame(const struct profile_frame *frame)
{
	enum stack_work work =
	    frame->kind >= FRAME_PYTHON ? frame_work_of(frame->library, frame->function) : STACK_OTHER;

	return work == STACK_OTHER && frame->kind == FRAME_GENERATOR ? STACK_NEXT : work;
}

static enum stack_work work_at(const struct works *works, uint64_t key)
{
	size_t at = frame_at(works->metadata, key);

	return at < works->metadata->n_frames ? (enum stack_work)works->frames[at] : STACK_OTHER;
}

static void trains_find(const struct works *works, const struct profile_trace *trace)
{
	bool step = false;

	for (size_t k = 0; k < trace->n_frames; k++) {
		size_t at = frame_at(works->metadata, trace->frames[k]);

		if (at == works->metadata->n_frames)
			continue;
		works->trains[at] |= step;
		step |= works->frames[at] == STACK_STEP;
	}
}

/* A save or compiling counts at any depth. Otherwise the outermost frame decides: transforms contain
 * modules, and modules contain iterators. */
static enum stack_work work_of_trace(const struct works *works, const struct profile_trace *trace)
{
	enum stack_work found = STACK_OTHER;

	for (size_t k = 0; k < trace->n_frames; k++) {
		enum stack_work work = work_at(works, trace->frames[k]);

		if (work == STACK_SAVE || work == STACK_COMPILE)
			return work;
	}
	for (size_t k = trace->n_frames; k > 0; k--) {
		size_t at = frame_at(works->metadata, trace->frames[k - 1]);
		enum stack_work work =
		    at < works->metadata->n_frames ? (enum stack_work)works->frames[at] : STACK_OTHER;

		if (work == STACK_NEXT && works->trains[at])
			continue;
		/* A module that is being imported may train. */
		if (found == STACK_OTHER ||
		    (found == STACK_IMPORT && (work == STACK_STEP || work == STACK_MODEL)))
			found = work;
	}
	if (found != STACK_OTHER)
		return found;
	return trace->n_frames >= FRAMES_CUT ? STACK_CUT : STACK_OTHER;
}

/* Runs once for each trace, because there are far fewer traces than samples. */
static void works_find(const struct works *works)
{
	const struct profile_metadata *metadata = works->metadata;

	for (size_t i = 0; i < metadata->n_frames; i++)
		works->frames[i] = (uint8_t)work_of_frame(&metadata->frames[i]);
	for (size_t i = 0; i < metadata->n_traces; i++)
		trains_find(works, &metadata->traces[i]);
	for (size_t i = 0; i < metadata->n_traces; i++)
		works->traces[i] = (uint8_t)work_of_trace(works, &metadata->traces[i]);
}

static enum stack_work work_of(const struct profile_metadata *metadata, const uint8_t *works, uint64_t key)
{
	const struct profile_trace *trace =
	    key ? bsearch(&key, metadata->traces, metadata->n_traces, sizeof(*metadata->traces), compare_u64)
		: NULL;

	return trace ? (enum stack_work)works[trace - metadata->traces] : STACK_OTHER;
}

static int look_compare(const void *left, const void *right)
{
	const struct work_sample *a = left, *b = right;

	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

int stack_samples_find(const struct timeline *timeline, const struct analysis_input *input,
		       struct stack_samples *ret_samples)
{
	const struct profile_metadata *metadata = input->profile;
	struct stack_samples samples = {0};
	struct works works = {.metadata = metadata};
	size_t n_samples = 0;
	uint8_t *space;

	if (!metadata || !metadata->n_frames || !metadata->n_traces || !(metadata->rate_hz > 0)) {
		*ret_samples = samples;
		return 0;
	}
	for (size_t i = 0; i < input->n_events; i++)
		n_samples += input->events[i].type == EVENT_STACK;
	samples.items = calloc(n_samples + 1, sizeof(*samples.items));
	space = calloc(metadata->n_traces + 2 * metadata->n_frames, 1);
	if (!samples.items || !space) {
		free(samples.items);
		free(space);
		return -ENOMEM;
	}
	works.traces = space;
	works.frames = space + metadata->n_traces;
	works.trains = works.frames + metadata->n_frames;
	works_find(&works);
	samples.period_ns = (uint64_t)((double)NS_PER_S / metadata->rate_hz);
	for (size_t i = 0; i < input->n_events; i++) {
		const struct event *event = &input->events[i];
		const struct timeline_thread *thread =
		    event->type == EVENT_STACK ? timeline_find(timeline, event->tid, event->end_ns) : NULL;

		if (thread)
			samples.items[samples.n++] =
			    (struct work_sample){.thread = thread,
						 .at_ns = event->end_ns,
						 .work = work_of(metadata, works.traces, event->stack.python),
						 .python = event->stack.python != 0};
	}
	qsort(samples.items, samples.n, sizeof(*samples.items), look_compare);
	free(space);
	*ret_samples = samples;
	return 0;
}

void stack_samples_free(struct stack_samples *samples)
{
	free(samples->items);
	*samples = (struct stack_samples){0};
}

static size_t first_of(const struct stack_samples *samples, const struct timeline_thread *thread)
{
	return sorted_count(samples->n, i, samples->items[i].thread < thread);
}

static size_t times_before(const struct stack_bounds *bounds, uint64_t at_ns)
{
	return sorted_count(bounds->n_times, i, bounds->times[i] <= at_ns);
}

/* Returns true if two samples belong to the same span. */
static bool goes_on(const struct stack_bounds *bounds, uint64_t from_ns, uint64_t to_ns)
{
	if (bounds->asleep_max_ns && to_ns - from_ns > bounds->asleep_max_ns)
		return false;
	return times_before(bounds, from_ns) == times_before(bounds, to_ns);
}

static bool is_known(const struct stack_bounds *bounds, uint64_t at_ns)
{
	return bounds->known && interval_list_cover(bounds->known, at_ns, at_ns + 1);
}

/* gap: from the sample before the span to the one after it that show other work; 0 or UINT64_MAX: no such
 * sample. */
static int span_add(const struct stack_samples *samples, const struct stack_bounds *bounds,
		    struct interval span, struct interval gap, struct interval_list *spans)
{
	uint64_t half_ns = samples->period_ns / 2;
	size_t before = times_before(bounds, span.begin_ns), after = times_before(bounds, span.end_ns);
	uint64_t first_ns = before ? bounds->times[before - 1] : 0;
	uint64_t last_ns = after < bounds->n_times ? bounds->times[after] : UINT64_MAX;

	if (bounds->wide && gap.begin_ns)
		span.begin_ns = max_ns(gap.begin_ns, first_ns);
	else if (!is_known(bounds, span.begin_ns))
		span.begin_ns = max_ns(span.begin_ns - min_ns(span.begin_ns, half_ns), first_ns);
	if (bounds->wide && gap.end_ns < UINT64_MAX)
		span.end_ns = min_ns(gap.end_ns, last_ns);
	else if (!is_known(bounds, span.end_ns))
		span.end_ns = min_ns(span.end_ns + half_ns, last_ns);
	return interval_list_add(spans, span.begin_ns, span.end_ns);
}

int stack_spans_find(const struct stack_samples *samples, const struct timeline_thread *thread,
		     enum stack_work work, const struct stack_bounds *bounds, struct interval_list *spans)
{
	struct interval span = {0}, gap = {0, UINT64_MAX};
	size_t i = first_of(samples, thread);

	for (; i < samples->n && samples->items[i].thread == thread; i++) {
		const struct work_sample *sample = &samples->items[i];

		if (sample->work == STACK_CUT || !sample->python)
			continue;
		if (span.end_ns && sample->work == work && goes_on(bounds, span.end_ns, sample->at_ns)) {
			span.end_ns = sample->at_ns;
			continue;
		}
		gap.end_ns = sample->at_ns;
		if (span.end_ns && span_add(samples, bounds, span, gap, spans) < 0)
			return -ENOMEM;
		if (sample->work == work) {
			span = (struct interval){sample->at_ns, sample->at_ns};
		} else {
			span = (struct interval){0};
			gap.begin_ns = sample->at_ns;
		}
	}
	gap.end_ns = UINT64_MAX;
	return span.end_ns ? span_add(samples, bounds, span, gap, spans) : 0;
}
