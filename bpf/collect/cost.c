/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/clock.h"

#define SAMPLE_NS     (100 * NS_PER_MS)
#define SAMPLE_MAX_NS (5 * NS_PER_S)    /* between samples, in the long run */
#define SAMPLE_MIN_NS (500 * NS_PER_MS) /* in the first second, so that short jobs have a figure too */

uint64_t cost_own_cpu_ns(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * NS_PER_S +
	       ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * NS_PER_US;
}

static bool program_info(const struct bpf_program *program, struct bpf_prog_info *ret_info)
{
	struct bpf_prog_info info = {0};
	unsigned length = sizeof(info);

	if (bpf_program__fd(program) < 0 || bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &length))
		return false;
	*ret_info = info;
	return true;
}

static uint64_t run_ns(struct bpf_object *object)
{
	struct bpf_program *program;
	struct bpf_prog_info info;
	uint64_t sum_ns = 0;

	bpf_object__for_each_program(program, object)
	{
		if (program_info(program, &info))
			sum_ns += info.run_time_ns;
	}
	return sum_ns;
}

uint64_t cost_missed(struct bpf_object *object)
{
	struct bpf_program *program;
	struct bpf_prog_info info;
	uint64_t sum = 0;

	bpf_object__for_each_program(program, object)
	{
		if (program_info(program, &info))
			sum += info.recursion_misses;
	}
	return sum;
}

/* Returns true if the kernel counts all the time anyway; switching that on takes CAP_SYS_ADMIN. */
static bool always_counted(void)
{
	int fd = open("/proc/sys/kernel/bpf_stats_enabled", O_RDONLY | O_CLOEXEC);
	char value = '0';
	bool on = fd >= 0 && read(fd, &value, 1) == 1 && value == '1';

	if (fd >= 0)
		close(fd);
	return on;
}

/* Samples become rarer up to a limit, because an early one matters little later on. */
static uint64_t pause_ns(const struct cost *cost, uint64_t now_ns)
{
	uint64_t pause = (now_ns - cost->start_ns) / 2;

	if (pause > SAMPLE_MAX_NS)
		return SAMPLE_MAX_NS;
	return pause < SAMPLE_MIN_NS ? SAMPLE_MIN_NS : pause;
}

/* A sample stands for the time since the one before, because a job's start is busier than its steps and
 * sampled more densely. */
void cost_end(struct cost *cost, struct bpf_object *object, uint64_t now_ns)
{
	if (!cost->begin_ns || now_ns <= cost->begin_ns)
		return;
	cost->next_ns = now_ns + pause_ns(cost, now_ns);
	if (cost->stats_fd < 0 && !always_counted()) {
		cost->begin_ns = 0; /* counting was switched off meanwhile, and nobody knows when */
		return;
	}
	cost->rate = (double)(run_ns(object) - cost->begin_run_ns) / (double)(now_ns - cost->begin_ns);
	cost->estimate_ns += cost->rate * (double)(now_ns - cost->known_ns);
	cost->known_ns = now_ns;
	cost->sampled_ns += now_ns - cost->begin_ns;
	cost->begin_ns = 0;
	if (cost->stats_fd >= 0)
		close(cost->stats_fd);
	cost->stats_fd = -1;
}

void cost_step(struct cost *cost, struct bpf_object *object, uint64_t now_ns)
{
	if (!cost->start_ns) {
		cost->start_ns = cost->known_ns = now_ns;
		cost->next_ns = now_ns + SAMPLE_MIN_NS;
	}
	if (cost->begin_ns) {
		if (now_ns - cost->begin_ns >= SAMPLE_NS)
			cost_end(cost, object, now_ns);
		return;
	}
	if (now_ns < cost->next_ns)
		return;
	cost->stats_fd = bpf_enable_stats(BPF_STATS_RUN_TIME);
	if (cost->stats_fd < 0 && !always_counted()) {
		cost->next_ns = now_ns + SAMPLE_MAX_NS; /* not permitted: the cost stays unknown for now */
		return;
	}
	cost->begin_run_ns = run_ns(object);
	cost->begin_ns = now_ns;
}

uint64_t cost_estimate_ns(const struct cost *cost, uint64_t now_ns)
{
	double rest_ns = now_ns > cost->known_ns ? (double)(now_ns - cost->known_ns) : 0;

	return cost->sampled_ns ? (uint64_t)(cost->estimate_ns + cost->rate * rest_ns) : 0;
}
