/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts N samples of BYTES random bytes from memory into a store, one after the other.
 *
 *	put dataset FOLDER N BYTES [URL]     the dataset's writer; metadata in meta.db, or on a Redis server
 *	put redis|memcached SOCKET N BYTES   pipelined, 256 at a time, each reply checked
 *
 * Prints, as JSON, the seconds taken and the CPU seconds of this process. A dataset is durable and can be
 * read at the end; the servers keep everything in memory.
 */
#include "common.h"
#include "dataset/writer.h"

#define POOL_BYTES (16u << 20)

struct samples {
	const char *pool;
	uint64_t n, bytes;
};

/* Returns the bytes of sample i, without a copy. Neighbouring samples differ. */
static const char *sample_of(const struct samples *s, uint64_t i)
{
	return s->pool + i * s->bytes % (POOL_BYTES - s->bytes);
}

static void put_dataset(const struct samples *s, const char *folder, const char *url)
{
	struct error err = ERROR_INIT;
	struct writer_result result;
	struct writer *w;
	char path[PATH_BYTES];

	need(writer_open_on(folder, WRITER_PACK, CHUNK_DEFAULT_BYTES, url, &w, &err) == 0, err.text);
	for (uint64_t i = 0; i < s->n; i++) {
		struct chunk_sample sample = {.path = path,
					      .path_length = PATH_BYTES,
					      .data = (const unsigned char *)sample_of(s, i),
					      .bytes = (uint32_t)s->bytes,
					      .mode = 0100644};

		path_of(path, i, s->n);
		need(writer_add(w, &sample, &err) == 0, err.text);
	}
	need(writer_commit(w, &result, &err) == 0, err.text);
	need(result.n_paths == s->n, "the dataset does not contain all samples");
	writer_free(w);
}

static size_t redis_set(char *at, const char *path, const char *data, size_t bytes)
{
	int n =
	    sprintf(at, "*3\r\n$3\r\nSET\r\n$%d\r\n%.*s\r\n$%zu\r\n", PATH_BYTES, PATH_BYTES, path, bytes);

	memcpy(at + n, data, bytes);
	return (size_t)(stpcpy(at + n + bytes, "\r\n") - at);
}

static size_t memcached_set(char *at, const char *path, const char *data, size_t bytes)
{
	int n = sprintf(at, "set %.*s 0 0 %zu\r\n", PATH_BYTES, path, bytes);

	memcpy(at + n, data, bytes);
	return (size_t)(stpcpy(at + n + bytes, "\r\n") - at);
}

static void put_server(const struct samples *s, const char *socket_path,
		       size_t (*set)(char *, const char *, const char *, size_t), const char *reply)
{
	int fd = unix_connect(socket_path);
	size_t filled = 0, reply_bytes = strlen(reply);
	char *buffer = malloc(PIPELINE * (s->bytes + 128)), replies[PIPELINE * 8], path[PATH_BYTES];
	unsigned count = 0;

	need(buffer != NULL, "no memory");
	for (uint64_t i = 0; i < s->n; i++) {
		path_of(path, i, s->n);
		filled += set(buffer + filled, path, sample_of(s, i), s->bytes);
		if (++count < PIPELINE && i + 1 < s->n)
			continue;
		send_all(fd, buffer, filled);
		receive_all(fd, replies, count * reply_bytes);
		for (unsigned k = 0; k < count; k++)
			need(memcmp(replies + k * reply_bytes, reply, reply_bytes) == 0,
			     "the server refused a sample");
		filled = count = 0;
	}
	free(buffer);
	close(fd);
}

static char *random_pool(void)
{
	uint64_t *words = malloc(POOL_BYTES), state = 88172645463325252u;

	need(words != NULL, "no memory");
	for (size_t i = 0; i < POOL_BYTES / sizeof(*words); i++)
		words[i] = next_random(&state);
	return (char *)words;
}

int main(int argc, char **argv)
{
	need(argc == 5 || argc == 6, "usage: put dataset|redis|memcached STORE N BYTES [URL]");
	char *pool = random_pool();
	struct samples s = {pool, strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10)};

	need(s.n > 0 && s.n <= 100000000 && s.bytes > 0 && s.bytes <= POOL_BYTES / 2,
	     "N or BYTES is out of range");
	double start = clock_now(CLOCK_MONOTONIC), cpu = clock_now(CLOCK_PROCESS_CPUTIME_ID);

	if (strcmp(argv[1], "dataset") == 0)
		put_dataset(&s, argv[2], argv[5]);
	else if (strcmp(argv[1], "redis") == 0)
		put_server(&s, argv[2], redis_set, "+OK\r\n");
	else
		put_server(&s, argv[2], memcached_set, "STORED\r\n");
	printf("{\"s\": %.6f, \"cpu_s\": %.6f}\n", clock_now(CLOCK_MONOTONIC) - start,
	       clock_now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
	free(pool);
	return 0;
}
