/* SPDX-License-Identifier: Apache-2.0 */

/* A native loader as in image libraries: threads of the training process read files, prepare them and put
 * batches into a bounded queue. Python calls it through ctypes, which releases the interpreter lock. */

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 16
#define FILES_MAX   1024
#define QUEUE_MAX   4

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t ready, space;
	pthread_t threads[THREADS_MAX];
	unsigned int n_threads, n_started, n_batches, n_ready, n_taken;
	unsigned int n_samples; /* per batch */
	uint64_t prep_ns;       /* per sample */
	char *files[FILES_MAX];
	size_t n_files;
};

struct pool *loader_pool_open(const char *folder, unsigned int n_threads, unsigned int n_batches,
			      unsigned int n_samples, uint64_t prep_ns);
int loader_pool_next(struct pool *pool);
void loader_pool_close(struct pool *pool);

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void sample_load(const struct pool *pool, unsigned int number)
{
	static _Thread_local char data[65536];
	int fd = open(pool->files[number % pool->n_files], O_RDONLY | O_CLOEXEC);
	uint64_t end_ns;

	while (fd >= 0 && read(fd, data, sizeof(data)) > 0)
		;
	close(fd);
	end_ns = cpu_ns() + pool->prep_ns;
	while (cpu_ns() < end_ns)
		data[0]++;
}

static void *thread_run(void *user)
{
	struct pool *pool = user;

	pthread_mutex_lock(&pool->lock);
	while (pool->n_started < pool->n_batches) {
		unsigned int batch = pool->n_started++;

		pthread_mutex_unlock(&pool->lock);
		for (unsigned int i = 0; i < pool->n_samples; i++)
			sample_load(pool, batch * pool->n_samples + i);
		pthread_mutex_lock(&pool->lock);
		while (pool->n_ready == QUEUE_MAX)
			pthread_cond_wait(&pool->space, &pool->lock);
		pool->n_ready++;
		pthread_cond_signal(&pool->ready);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static void files_list(struct pool *pool, const char *folder)
{
	DIR *directory = opendir(folder);
	struct dirent *entry;

	while (directory && pool->n_files < FILES_MAX && (entry = readdir(directory)))
		if (entry->d_name[0] != '.' &&
		    asprintf(&pool->files[pool->n_files], "%s/%s", folder, entry->d_name) > 0)
			pool->n_files++;
	if (directory)
		closedir(directory);
}

/* Returns NULL without memory, or without files in the folder. */
struct pool *loader_pool_open(const char *folder, unsigned int n_threads, unsigned int n_batches,
			      unsigned int n_samples, uint64_t prep_ns)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->ready, NULL);
	pthread_cond_init(&pool->space, NULL);
	pool->n_batches = n_batches;
	pool->n_samples = n_samples;
	pool->prep_ns = prep_ns;
	files_list(pool, folder);
	while (pool->n_files && pool->n_threads < n_threads && pool->n_threads < THREADS_MAX &&
	       !pthread_create(&pool->threads[pool->n_threads], NULL, thread_run, pool))
		pool->n_threads++;
	if (pool->n_threads)
		return pool;
	loader_pool_close(pool);
	return NULL;
}

/* Waits for a batch. Returns 0 if there are no more. */
int loader_pool_next(struct pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	if (pool->n_taken == pool->n_batches) {
		pthread_mutex_unlock(&pool->lock);
		return 0;
	}
	while (!pool->n_ready)
		pthread_cond_wait(&pool->ready, &pool->lock);
	pool->n_ready--;
	pool->n_taken++;
	pthread_cond_signal(&pool->space);
	pthread_mutex_unlock(&pool->lock);
	return 1;
}

/* All batches must have been taken, or none started. */
void loader_pool_close(struct pool *pool)
{
	for (unsigned int i = 0; i < pool->n_threads; i++)
		pthread_join(pool->threads[i], NULL);
	for (size_t i = 0; i < pool->n_files; i++)
		free(pool->files[i]);
	free(pool);
}
