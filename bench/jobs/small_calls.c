/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the cost of system calls that do almost nothing.
 *
 *	small_calls SECONDS FILE
 *
 * Prints, as JSON, nanoseconds per call of getppid, read of 64 bytes of FILE, which is in the page cache,
 * write of 64 bytes to /dev/null, and openat of FILE with its close. For each, blocks of calls are timed for
 * SECONDS, and the block in the middle counts.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BLOCK      20000
#define BLOCKS_MAX 4096
#define BYTES      64

struct what {
	const char *name;
	int (*call)(void);
};

static const char *path;
static int data_fd, null_fd;
static uint8_t buffer[BYTES];

static int call_getppid(void)
{
	return syscall(SYS_getppid) < 0;
}

static int call_read(void)
{
	ssize_t n = read(data_fd, buffer, BYTES);

	if (n == 0)
		return lseek(data_fd, 0, SEEK_SET) != 0;
	return n < 0;
}

static int call_write(void)
{
	return write(null_fd, buffer, BYTES) != BYTES;
}

static int call_openat(void)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 || close(fd) < 0;
}

static const struct what whats[] = {
    {"getppid", call_getppid}, {"read", call_read}, {"write", call_write}, {"openat", call_openat}};

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

static double measure(const struct what *what, double seconds)
{
	static double blocks[BLOCKS_MAX];
	double end = now_ns() + 1e9 * seconds;
	size_t n = 0;

	do {
		double begin = now_ns();

		for (int i = 0; i < BLOCK; i++) {
			if (what->call()) {
				perror(what->name);
				exit(1);
			}
		}
		blocks[n++] = (now_ns() - begin) / BLOCK;
	} while (n < BLOCKS_MAX && now_ns() < end);
	qsort(blocks, n, sizeof(*blocks), ascending);
	return blocks[n / 2];
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	path = argv[2];
	data_fd = open(path, O_RDONLY | O_CLOEXEC);
	null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (data_fd < 0 || null_fd < 0) {
		perror(path);
		return 1;
	}
	for (size_t i = 0; i < sizeof(whats) / sizeof(whats[0]); i++)
		printf("%s\"%s\": %.1f", i ? ", " : "{", whats[i].name, measure(&whats[i], atof(argv[1])));
	printf("}\n");
	return 0;
}
