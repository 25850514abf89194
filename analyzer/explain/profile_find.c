/* SPDX-License-Identifier: Apache-2.0 */
#include "profile_find.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "lib/cleanup.h"
#include "analyzer/roles/roles.h"
#include "analyzer/waits/waits.h"
#include "analyzer/shares/walk.h"
#include "analyzer/waits/window.h"

/* Returns true if the trainer itself prepares data. If a loader delivers batches, the trainer only unpacks
 * them. */
static bool trainer_prepares(const struct data_waits *waits, uint64_t at_ns)
{
	size_t i;

	if (waits->loader != LOADER_INLINE && waits->loader != LOADER_DIESEL)
		return false;
	i = data_waits_from(waits, at_ns);
	return i < waits->n && waits->items[i].begin_ns <= at_ns;
}

/* Workers of diesel_loader share no pipe with the trainer, so they are recognised by their code. */
static bool is_diesel_worker(const struct study *study, const struct timeline_thread *thread,
			     const struct event *event)
{
	return study->waits->loader == LOADER_DIESEL && thread->tgid != study->roles->trainer->tgid &&
	       profile_is_assembly(study->input->profile, event->stack.python);
}

static bool prepares(const struct study *study, const struct event *event)
{
	const struct timeline_thread *thread;
	enum role role;

	if (event->end_ns < study->window->begin_ns || event->end_ns >= study->window->end_ns)
		return false;
	thread = timeline_find(study->timeline, event->tid, event->end_ns);
	if (!thread)
		return false;
	role = role_of(study->timeline, study->roles, thread);
	switch (role) {
	case ROLE_WORKER:
	case ROLE_HANDOFF:
		if (event->end_ns < roles_started_ns(study->roles, thread))
			return false;
		break;
	case ROLE_TRAINER:
		if (!trainer_prepares(study->waits, event->end_ns))
			return false;
		break;
	case ROLE_LOADER: break;
	case ROLE_OTHER:
		if (!is_diesel_worker(study, thread, event))
			return false;
		break;
	case ROLE_HELPER: return false;
	}
	return !walk_fetch_calls(thread, role, event->end_ns, event->end_ns + 1);
}

static int group_compare(const void *left, const void *right)
{
	const struct profile_group *a = left, *b = right;

	if (a->native != b->native)
		return a->native < b->native ? -1 : 1;
	if (a->python != b->python)
		return a->python < b->python ? -1 : 1;
	if (a->in_kernel != b->in_kernel)
		return a->in_kernel ? 1 : -1;
	return a->syscall_nr < b->syscall_nr ? -1 : a->syscall_nr > b->syscall_nr;
}

/* Merges equal groups. Returns the number of remaining groups. */
static size_t groups_merge(struct profile_group *groups, size_t n)
{
	size_t n_merged = 0;

	qsort(groups, n, sizeof(*groups), group_compare);
	for (size_t i = 0; i < n; i++) {
		if (n_merged && !group_compare(&groups[n_merged - 1], &groups[i]))
			groups[n_merged - 1].n_samples += groups[i].n_samples;
		else
			groups[n_merged++] = groups[i];
	}
	return n_merged;
}

static int groups_collect(const struct study *study, struct profile_group **ret_groups, size_t *ret_n)
{
	const struct analysis_input *input = study->input;
	struct profile_group *groups;
	size_t n_samples = 0, n = 0;

	for (size_t i = 0; i < input->n_events; i++)
		n_samples += input->events[i].type == EVENT_STACK;
	groups = calloc(n_samples + 1, sizeof(*groups));
	if (!groups)
		return -ENOMEM;
	for (size_t i = 0; i < input->n_events; i++) {
		const struct event *event = &input->events[i];

		if (event->type == EVENT_STACK && prepares(study, event))
			groups[n++] = (struct profile_group){.native = event->stack.native,
							     .python = event->stack.python,
							     .n_samples = 1,
							     .syscall_nr = event->stack.syscall_nr,
							     .in_kernel = event->stack.in_kernel};
	}
	*ret_groups = groups;
	*ret_n = groups_merge(groups, n);
	return 0;
}

int profile_find(const struct study *study, struct profile **ret_profile)
{
	_cleanup_(freep) struct profile_group *groups = NULL;
	struct profile *profile;
	size_t n_groups = 0;
	int r = study->input->profile ? groups_collect(study, &groups, &n_groups) : 0;

	if (r < 0)
		return r;
	if (!n_groups) {
		*ret_profile = NULL;
		return 0;
	}
	profile = calloc(1, sizeof(*profile));
	if (!profile)
		return -ENOMEM;
	profile->rate_hz = study->input->profile->rate_hz;
	r = profile_fold(study->input->profile, groups, n_groups, profile);
	if (r < 0)
		profile_free(profile);
	else
		*ret_profile = profile;
	return r;
}
