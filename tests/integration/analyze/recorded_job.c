/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs with known behaviour for the recorder's tests: recorded_job NAME [COUNT [FILE]]. Each prints the
 * figures that the test needs. */

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint32_t turn; /* thread whose turn it is: 0 or 1 */
static long count;

static uint64_t thread_cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Hands the turn to the other thread and sleeps until it comes back. */
static void *play(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg;

	printf("thread %ld\n", syscall(SYS_gettid));
	fflush(stdout);
	for (long i = 0; i < count; i++) {
		while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != me)
			syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !me, NULL, NULL, 0);
		__atomic_store_n(&turn, !me, __ATOMIC_RELEASE);
		syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
	return NULL;
}

static int run_pingpong(void)
{
	pthread_t threads[2];

	for (uintptr_t i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, play, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

static int run_sleep(void)
{
	const struct timespec pause = {.tv_nsec = 2000000};

	for (long i = 0; i < count; i++)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	return 0;
}

static int run_direct_reads(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECT);
	void *buffer;

	if (fd < 0 || posix_memalign(&buffer, 4096, 65536)) {
		perror(path);
		return 77;
	}
	for (long i = 0; i < count; i++) {
		if (pread(fd, buffer, 65536, i * 65536) != 65536)
			return 1;
	}
	free(buffer);
	close(fd);
	return 0;
}

/* Touches every page of a cold file through a mapping. */
static int run_faults(const char *path)
{
	int fd = open(path, O_RDONLY);
	volatile const char *map = mmap(NULL, (size_t)count * 65536, PROT_READ, MAP_PRIVATE, fd, 0);
	int sum = 0;

	if (map == MAP_FAILED)
		return 77;
	madvise((void *)(uintptr_t)map, (size_t)count * 65536, MADV_RANDOM);
	for (long i = 0; i < count; i++)
		sum += map[i * 65536];
	return sum == -1;
}

static int run_calls(void)
{
	char buffer[64];
	int fd = open("/proc/self/exe", O_RDONLY);

	for (long i = 0; i < count; i++) {
		if (pread(fd, buffer, sizeof(buffer), 0) != sizeof(buffer))
			return 1;
	}
	printf("cpu_ns %llu\n", (unsigned long long)thread_cpu_ns());
	return 0;
}

/* Makes calls that are recorded one by one. */
static int run_writes(void)
{
	int fd = open("/dev/null", O_WRONLY);

	for (long i = 0; i < count; i++) {
		if (write(fd, "", 1) != 1)
			return 1;
	}
	printf("cpu_ns %llu\n", (unsigned long long)thread_cpu_ns());
	return 0;
}

/* Makes reads that are never next to each other, so that each read and each write is a record. */
static int run_mixed(void)
{
	char buffer[64];
	int in = open("/proc/self/exe", O_RDONLY), out = open("/dev/null", O_WRONLY);

	for (long i = 0; i < count; i++) {
		if (pread(in, buffer, sizeof(buffer), 0) != sizeof(buffer) || write(out, "", 1) != 1)
			return 1;
	}
	return 0;
}

static void *burn(void *arg)
{
	volatile uint64_t sum = 0;

	while (thread_cpu_ns() < 20000000)
		sum += 1;
	usleep(5000);
	*(uint64_t *)arg = thread_cpu_ns();
	return NULL;
}

static int run_thread(void)
{
	uint64_t cpu_ns = 0;
	pthread_t thread;

	pthread_create(&thread, NULL, burn, &cpu_ns);
	pthread_join(thread, NULL);
	printf("cpu_ns %llu\n", (unsigned long long)cpu_ns);
	return 0;
}

static int run_family(void)
{
	for (long i = 0; i < count; i++) {
		if (fork() == 0) {
			execlp("sh", "sh", "-c", "true; exec true", (char *)NULL);
			_exit(127);
		}
	}
	while (wait(NULL) > 0)
		;
	return 5;
}

/* Starts threads that sleep in different places until standard input ends. */
static void *idle(void *arg)
{
	char byte;

	(void)arg;
	return read(0, &byte, 1) ? arg : NULL;
}

static int run_idle(void)
{
	pthread_t thread;

	for (long i = 1; i < count; i++)
		pthread_create(&thread, NULL, idle, NULL);
	if (fork() == 0) {
		idle(NULL);
		_exit(0);
	}
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	idle(NULL);
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	const char *path = argc > 3 ? argv[3] : "";

	count = argc > 2 ? atol(argv[2]) : 1;
	if (!strcmp(name, "pingpong"))
		return run_pingpong();
	if (!strcmp(name, "sleep"))
		return run_sleep();
	if (!strcmp(name, "direct"))
		return run_direct_reads(path);
	if (!strcmp(name, "faults"))
		return run_faults(path);
	if (!strcmp(name, "calls"))
		return run_calls();
	if (!strcmp(name, "writes"))
		return run_writes();
	if (!strcmp(name, "mixed"))
		return run_mixed();
	if (!strcmp(name, "thread"))
		return run_thread();
	if (!strcmp(name, "family"))
		return run_family();
	if (!strcmp(name, "idle"))
		return run_idle();
	fprintf(stderr, "unknown job %s\n", name);
	return 2;
}
