/* SPDX-License-Identifier: Apache-2.0 */
/* Detaches links on threads, many at a time, so that they share the kernel's waits for all CPUs. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/array.h"
#include "lib/thread.h"
#include "uprobe.h"

#define THREADS_MAX 32

struct uprobe_reaper {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct uprobe_link *links; /* links that no thread has taken yet */
	size_t n, n_allocated;
	size_t n_threads, n_busy; /* busy: threads that remove a link */
	bool ended;
	pthread_t threads[THREADS_MAX];
};

static void link_close(struct uprobe_link link)
{
	if (link.link)
		bpf_link__destroy(link.link);
	else
		close(link.fd);
}

static void *reap(void *user)
{
	struct uprobe_reaper *reaper = user;

	pthread_mutex_lock(&reaper->lock);
	while (reaper->n || !reaper->ended) {
		struct uprobe_link link;

		if (!reaper->n) {
			pthread_cond_wait(&reaper->changed, &reaper->lock);
			continue;
		}
		link = reaper->links[--reaper->n];
		reaper->n_busy++;
		pthread_mutex_unlock(&reaper->lock);
		link_close(link);
		pthread_mutex_lock(&reaper->lock);
		reaper->n_busy--;
		if (!reaper->n && !reaper->n_busy)
			pthread_cond_broadcast(&reaper->changed);
	}
	pthread_mutex_unlock(&reaper->lock);
	return NULL;
}

struct uprobe_reaper *uprobe_reaper_new(void)
{
	struct uprobe_reaper *reaper = calloc(1, sizeof(*reaper));

	if (!reaper)
		return NULL;
	pthread_mutex_init(&reaper->lock, NULL);
	pthread_cond_init(&reaper->changed, NULL);
	return reaper;
}

/* Call it with the lock held. */
static void add_thread(struct uprobe_reaper *reaper)
{
	if (reaper->n_threads < THREADS_MAX && reaper->n_threads < reaper->n + reaper->n_busy &&
	    thread_start(&reaper->threads[reaper->n_threads], reap, reaper) == 0)
		reaper->n_threads++;
}

void uprobe_reaper_take(struct uprobe_reaper *reaper, struct uprobe_links *links)
{
	pthread_mutex_lock(&reaper->lock);
	for (size_t i = 0; i < links->n; i++) {
		bool queued = array_reserve(reaper->links, reaper->n, reaper->n_allocated) == 0;

		if (queued)
			reaper->links[reaper->n++] = links->items[i];
		add_thread(reaper);
		if (!queued || !reaper->n_threads) {
			reaper->n -= queued;
			link_close(links->items[i]);
		}
	}
	pthread_cond_broadcast(&reaper->changed);
	pthread_mutex_unlock(&reaper->lock);
	free(links->items);
	*links = (struct uprobe_links){0};
}

size_t uprobe_reaper_backlog(struct uprobe_reaper *reaper)
{
	size_t n;

	pthread_mutex_lock(&reaper->lock);
	n = reaper->n + reaper->n_busy;
	pthread_mutex_unlock(&reaper->lock);
	return n;
}

void uprobe_reaper_wait(struct uprobe_reaper *reaper)
{
	pthread_mutex_lock(&reaper->lock);
	while (reaper->n || reaper->n_busy)
		pthread_cond_wait(&reaper->changed, &reaper->lock);
	pthread_mutex_unlock(&reaper->lock);
}

void uprobe_reaper_free(struct uprobe_reaper *reaper)
{
	if (!reaper)
		return;
	pthread_mutex_lock(&reaper->lock);
	reaper->ended = true;
	pthread_cond_broadcast(&reaper->changed);
	pthread_mutex_unlock(&reaper->lock);
	for (size_t i = 0; i < reaper->n_threads; i++)
		pthread_join(reaper->threads[i], NULL);
	pthread_cond_destroy(&reaper->changed);
	pthread_mutex_destroy(&reaper->lock);
	free(reaper->links);
	free(reaper);
}
