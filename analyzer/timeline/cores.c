/* SPDX-License-Identifier: Apache-2.0 */
#include "cores.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/sorted.h"

/* A change of a core: a thread gets it, or leaves it. */
struct core_change {
	uint64_t at_ns;
	int threads;
};

static int change_compare(const void *left, const void *right)
{
	const struct core_change *a = left, *b = right;

	return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

static size_t changes_of(const struct timeline_thread *thread, struct core_change *changes)
{
	size_t n = 0;

	/* A thread without an interval off the CPU is known by name only. */
	if (!thread->n_offs)
		return 0;
	changes[n++] = (struct core_change){thread->first_ns, 1};
	for (size_t i = 0; i < thread->n_offs; i++) {
		changes[n++] = (struct core_change){thread->offs[i].begin_ns, -1};
		changes[n++] = (struct core_change){thread->offs[i].end_ns, 1};
	}
	changes[n++] = (struct core_change){thread->last_ns, -1};
	return n;
}

static void sum_up(const struct core_change *changes, size_t n, uint32_t n_cpus, struct cores *cores)
{
	uint64_t busy_ns = 0, full_ns = 0;
	int threads = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t ns = i ? changes[i].at_ns - changes[i - 1].at_ns : 0;

		if (threads > 0)
			busy_ns += ns * (uint64_t)threads;
		if (threads >= (int)n_cpus)
			full_ns += ns;
		threads += changes[i].threads;
		if (cores->n && cores->at_ns[cores->n - 1] == changes[i].at_ns)
			cores->n--;
		cores->at_ns[cores->n] = changes[i].at_ns;
		cores->busy_ns[cores->n] = busy_ns;
		cores->full_ns[cores->n] = full_ns;
		cores->n_busy[cores->n++] = threads > 0 ? (uint32_t)threads : 0;
	}
}

int cores_count(const struct timeline *timeline, uint32_t n_cpus, struct cores *ret_cores)
{
	struct cores cores = {.n_cpus = n_cpus};
	struct core_change *changes;
	size_t n = 0;

	for (size_t i = 0; i < timeline->n_threads; i++)
		n += 2 * timeline->threads[i].n_offs + 2;
	changes = calloc(n + 1, sizeof(*changes));
	cores.at_ns = calloc(n + 1, sizeof(uint64_t));
	cores.busy_ns = calloc(n + 1, sizeof(uint64_t));
	cores.full_ns = calloc(n + 1, sizeof(uint64_t));
	cores.n_busy = calloc(n + 1, sizeof(uint32_t));
	if (!changes || !cores.at_ns || !cores.busy_ns || !cores.full_ns || !cores.n_busy) {
		free(changes);
		cores_free(&cores);
		return -ENOMEM;
	}
	n = 0;
	for (size_t i = 0; i < timeline->n_threads; i++)
		n += changes_of(&timeline->threads[i], changes + n);
	qsort(changes, n, sizeof(*changes), change_compare);
	sum_up(changes, n, n_cpus, &cores);
	free(changes);
	*ret_cores = cores;
	return 0;
}

void cores_free(struct cores *cores)
{
	free(cores->at_ns);
	free(cores->busy_ns);
	free(cores->full_ns);
	free(cores->n_busy);
	*cores = (struct cores){0};
}

/* Returns the index of the last moment at or before at_ns; n: before all of them. */
static size_t moment(const struct cores *cores, uint64_t at_ns)
{
	size_t n = sorted_count(cores->n, i, cores->at_ns[i] <= at_ns);

	return n ? n - 1 : cores->n;
}

static uint64_t busy_until(const struct cores *cores, uint64_t at_ns)
{
	size_t i = moment(cores, at_ns);

	return i == cores->n ? 0 : cores->busy_ns[i] + cores->n_busy[i] * (at_ns - cores->at_ns[i]);
}

uint64_t cores_busy(const struct cores *cores, uint64_t begin_ns, uint64_t end_ns)
{
	return end_ns > begin_ns ? busy_until(cores, end_ns) - busy_until(cores, begin_ns) : 0;
}

static uint64_t full_until(const struct cores *cores, uint64_t at_ns)
{
	size_t i = moment(cores, at_ns);

	if (i == cores->n)
		return 0;
	return cores->full_ns[i] + (cores->n_busy[i] >= cores->n_cpus ? at_ns - cores->at_ns[i] : 0);
}

uint64_t cores_full(const struct cores *cores, uint64_t begin_ns, uint64_t end_ns)
{
	return end_ns > begin_ns ? full_until(cores, end_ns) - full_until(cores, begin_ns) : 0;
}
