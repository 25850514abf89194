/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A stand-in for NVIDIA's libcuda.so.1, for tests on machines without a GPU. Never installed. It exports the
 * names that are probed, with a first instruction chosen at build time (PROLOGUE), and imitates one device
 * that works through what is queued, in order: each launch takes DIESEL_STANDIN_KERNEL_US, each copy
 * DIESEL_STANDIN_COPY_US. A synchronisation waits until all is done, as DIESEL_STANDIN_WAIT says: "spin" as
 * the real driver does by default, or "block". DIESEL_STANDIN_PAGEABLE=1: asynchronous copies to the host
 * wait too, as they do with pageable memory.
 *
 * standin_log() writes what it did to a file, by its own clock: one line an event,
 *   "wait NAME TID BEGIN_NS END_NS", "work NAME TID NS", "idle BEGIN_NS END_NS" (nothing was queued).
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STRING_(x) #x
#define STRING(x)  STRING_(x)

/* The kinds of first instruction that matter to a uprobe. Each stub calls its body with the stack aligned. */
#if PROLOGUE == 1 /* endbr64; push: what gcc makes with -fcf-protection */
#define ENTER "endbr64\n push %rbp\n"
#define LEAVE "pop %rbp\n"
#elif PROLOGUE == 2 /* push */
#define ENTER "push %rbp\n"
#define LEAVE "pop %rbp\n"
#elif PROLOGUE == 3 /* nop, as patchable functions begin */
#define ENTER "nop\n push %rbp\n"
#define LEAVE "pop %rbp\n"
#elif PROLOGUE == 4 /* endbr64; sub: single-stepped, whatever is skipped */
#define ENTER "endbr64\n sub $8, %rsp\n"
#define LEAVE "add $8, %rsp\n"
#else
#error "PROLOGUE must be 1 to 4"
#endif

#define EXPORT(name, body)                                                                                   \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n.p2align 4\n" #name ":\n" ENTER        \
		"lea " #name "_text(%rip), %rdi\n call " #body "\n" LEAVE "ret\n.size " #name ", .-" #name   \
		"\n.section .rodata\n" #name "_text: .string \"" #name "\"\n.text\n")

enum line_kind { LINE_WAIT, LINE_WORK, LINE_IDLE };

struct line {
	enum line_kind kind;
	const char *name;
	int tid;
	uint64_t begin_ns, end_ns;
};

#define LINES_MAX 400000

static struct {
	pthread_mutex_t lock;
	bool ready, spin, pageable;
	uint64_t busy_until_ns; /* when all that is queued is done; 0: nothing ever was */
	struct line *lines;
	size_t n_lines;
} device = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t microseconds(const char *variable, uint64_t fallback_us)
{
	const char *text = getenv(variable);

	return (text ? strtoull(text, NULL, 10) : fallback_us) * 1000;
}

static void device_open(void)
{
	const char *wait = getenv("DIESEL_STANDIN_WAIT"), *pageable = getenv("DIESEL_STANDIN_PAGEABLE");

	if (device.ready)
		return;
	device.spin = !wait || !strcmp(wait, "spin");
	device.pageable = pageable && *pageable == '1';
	device.lines = calloc(LINES_MAX, sizeof(*device.lines));
	device.ready = true;
}

static void note(enum line_kind kind, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
	if (device.lines && device.n_lines < LINES_MAX)
		device.lines[device.n_lines++] =
		    (struct line){kind, name, (int)syscall(SYS_gettid), begin_ns, end_ns};
}

static uint64_t queue(const char *name, uint64_t work_ns)
{
	uint64_t at_ns, until_ns;

	pthread_mutex_lock(&device.lock);
	device_open();
	at_ns = now_ns();
	if (device.busy_until_ns && device.busy_until_ns < at_ns)
		note(LINE_IDLE, name, device.busy_until_ns, at_ns);
	if (device.busy_until_ns < at_ns)
		device.busy_until_ns = at_ns;
	until_ns = device.busy_until_ns += work_ns;
	note(LINE_WORK, name, at_ns, at_ns);
	pthread_mutex_unlock(&device.lock);
	return until_ns;
}

static void wait_until(uint64_t until_ns)
{
	struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};

	if (device.spin)
		while (now_ns() < until_ns)
			__asm__ volatile("pause");
	else
		while (now_ns() < until_ns)
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void wait_for(const char *name, uint64_t until_ns, uint64_t begin_ns)
{
	wait_until(until_ns);
	pthread_mutex_lock(&device.lock);
	note(LINE_WAIT, name, begin_ns, now_ns());
	pthread_mutex_unlock(&device.lock);
}

/* Returns 600 (CUDA_ERROR_NOT_READY) while something is queued, else 0. No probe is set here: polling is
 * computing. */
__attribute__((used, visibility("hidden"))) int standin_query(const char *name);
int standin_query(const char *name)
{
	bool busy;

	(void)name;
	pthread_mutex_lock(&device.lock);
	device_open();
	busy = device.busy_until_ns > now_ns();
	pthread_mutex_unlock(&device.lock);
	return busy ? 600 : 0;
}

/* The stubs pass their name in place of the first argument, which nothing here needs. */
__attribute__((used, visibility("hidden"))) int standin_work(const char *name);
int standin_work(const char *name)
{
	queue(name, microseconds("DIESEL_STANDIN_KERNEL_US", 100));
	return 0;
}

__attribute__((used, visibility("hidden"))) int standin_sync(const char *name);
int standin_sync(const char *name)
{
	uint64_t begin_ns = now_ns(), until_ns;

	pthread_mutex_lock(&device.lock);
	device_open();
	until_ns = device.busy_until_ns;
	pthread_mutex_unlock(&device.lock);
	wait_for(name, until_ns, begin_ns);
	return 0;
}

__attribute__((used, visibility("hidden"))) int standin_copy(const char *name);
int standin_copy(const char *name)
{
	uint64_t begin_ns = now_ns();

	wait_for(name, queue(name, microseconds("DIESEL_STANDIN_COPY_US", 50)), begin_ns);
	return 0;
}

__attribute__((used, visibility("hidden"))) int standin_copy_async(const char *name);
int standin_copy_async(const char *name)
{
	uint64_t begin_ns = now_ns();
	uint64_t until_ns = queue(name, microseconds("DIESEL_STANDIN_COPY_US", 50));

	if (device.pageable)
		wait_for(name, until_ns, begin_ns);
	return 0;
}

EXPORT(cuStreamSynchronize, standin_sync);
EXPORT(cuStreamSynchronize_ptsz, standin_sync);
EXPORT(cuCtxSynchronize, standin_sync);
EXPORT(cuEventSynchronize, standin_sync);
EXPORT(cuEventQuery, standin_query);
EXPORT(cuMemcpyDtoH_v2, standin_copy);
EXPORT(cuMemcpyDtoH_v2_ptds, standin_copy);
EXPORT(cuMemcpyHtoD_v2, standin_copy);
EXPORT(cuMemcpyHtoD_v2_ptds, standin_copy);
EXPORT(cuMemcpyDtoHAsync_v2, standin_copy_async);
EXPORT(cuMemcpyDtoHAsync_v2_ptsz, standin_copy_async);
EXPORT(cuMemcpyHtoDAsync_v2, standin_copy_async);
EXPORT(cuMemcpyHtoDAsync_v2_ptsz, standin_copy_async);
EXPORT(cuLaunchKernel, standin_work);
EXPORT(cuLaunchKernel_ptsz, standin_work);
EXPORT(cuLaunchKernelEx, standin_work);
EXPORT(cuLaunchKernelEx_ptsz, standin_work);
EXPORT(cuGraphLaunch, standin_work);
EXPORT(cuGraphLaunch_ptsz, standin_work);

__attribute__((visibility("default"))) int standin_log(const char *path)
{
	static const char *const words[] = {"wait", "work", "idle"};
	FILE *file = fopen(path, "w");

	if (!file)
		return -1;
	for (size_t i = 0; i < device.n_lines; i++) {
		const struct line *line = &device.lines[i];

		fprintf(file, "%s %s %d %llu %llu\n", words[line->kind], line->name, line->tid,
			(unsigned long long)line->begin_ns, (unsigned long long)line->end_ns);
	}
	return fclose(file);
}
