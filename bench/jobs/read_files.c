/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads files one after the other, like a program without knowledge of DIESEL.
 *
 *	read_files whole|parts SECONDS ROOT <LIST
 *
 * LIST has a path below ROOT in each line. It reads them in this order: whole (open, fstat, read, close), or
 * 8 parts of 512 bytes of each, at random places (open, fstat, 8 times pread, close). It reads all of them
 * once, and again until SECONDS are over. Prints, as JSON, the number of files read, the seconds, and the sum
 * of the bytes of the first time, modulo 2^64.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define N_PARTS    8
#define PART_BYTES 512

static uint8_t buffer[1 << 20];
static uint64_t drawn = 1;

static void fail(const char *path)
{
	fprintf(stderr, "read_files: %s: %s\n", path, errno ? strerror(errno) : "unexpected length");
	exit(1);
}

static uint64_t sum_of(size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += buffer[i];
	return sum;
}

/* Adds up the bytes only if `add` is set: the sum costs more than the read. */
static uint64_t read_one(const char *path, int parts, int add)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	uint64_t sum = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		fail(path);
	for (off_t at = 0; !parts && at < st.st_size;) {
		ssize_t n = read(fd, buffer, sizeof(buffer));

		if (n <= 0)
			fail(path);
		at += n;
		sum += add ? sum_of((size_t)n) : 0;
	}
	for (int i = 0; parts && i < N_PARTS; i++) {
		drawn = drawn * UINT64_C(6364136223846793005) + 1442695040888963407;
		off_t at = (off_t)((drawn >> 33) % (uint64_t)(st.st_size - PART_BYTES + 1));

		if (pread(fd, buffer, PART_BYTES, at) != PART_BYTES)
			fail(path);
		sum += add ? sum_of(PART_BYTES) : 0;
	}
	close(fd);
	return sum;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	char **paths = NULL, line[4096];
	size_t n = 0;
	uint64_t sum = 0, files = 0;
	double from, seconds;

	if (argc != 4 || chdir(argv[3]) < 0)
		return 2;
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		paths = realloc(paths, (n + 1) * sizeof(*paths));
		if (!paths || !(paths[n++] = strdup(line)))
			return 1;
	}
	from = now_s();
	do {
		for (size_t i = 0; i < n; i++)
			sum += read_one(paths[i], argv[1][0] == 'p', files == 0);
		files += n;
		seconds = now_s() - from;
	} while (n > 0 && seconds < atof(argv[2]));
	printf("{\"files\": %llu, \"seconds\": %.6f, \"sum\": %llu}\n", (unsigned long long)files, seconds,
	       (unsigned long long)sum);
	return 0;
}
