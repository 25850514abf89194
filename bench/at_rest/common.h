/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the benchmarks' programs in C: the names of samples, random numbers, and a pipelined socket. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define N_CLASSES  1000
#define PATH_BYTES 22 /* class0000/00000000.bin */
#define PIPELINE   256

static inline double clock_now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Ends the program with an error unless `fine` is true. */
static inline void need(int fine, const char *what)
{
	if (!fine) {
		fprintf(stderr, "%s\n", what);
		exit(1);
	}
}

static inline char *digits(char *at, uint64_t value, int n)
{
	for (int i = n; i-- > 0; value /= 10)
		at[i] = (char)('0' + value % 10);
	return at + n;
}

/* Writes the path of sample i of n, not terminated. Without printf(), which would take most of a look-up's
 * time. */
static inline void path_of(char path[PATH_BYTES], uint64_t i, uint64_t n)
{
	memcpy(path, "class", 5);
	path[9] = '/';
	digits(path + 5, i * N_CLASSES / n, 4);
	memcpy(digits(path + 10, i, 8), ".bin", 4);
}

static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline int unix_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	need(strlen(path) < sizeof(address.sun_path), "the socket's path is too long");
	memcpy(address.sun_path, path, strlen(path));
	need(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0,
	     "cannot connect to the server's socket");
	return fd;
}

static inline void send_all(int fd, const char *data, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = write(fd, data + at, bytes - at);

		need(n > 0, "cannot send to the server");
		at += (size_t)n;
	}
}

/* All replies have the same length, so none has to be parsed to find its end. */
static inline void receive_all(int fd, char *data, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = read(fd, data + at, bytes - at);

		need(n > 0, "cannot receive from the server");
		at += (size_t)n;
	}
}
