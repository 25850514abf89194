/* SPDX-License-Identifier: Apache-2.0 */
#include "majors.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/log.h"

struct majors {
	int n;
	struct bpf_link *links[]; /* of each CPU; NULL where it is offline */
};

static struct bpf_link *cpu_open(const struct bpf_program *program, int cpu)
{
	struct perf_event_attr attr = {
	    .type = PERF_TYPE_SOFTWARE,
	    .size = sizeof(attr),
	    .config = PERF_COUNT_SW_PAGE_FAULTS_MAJ,
	    .sample_period = 1,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	struct bpf_link *link;

	if (fd < 0) {
		log_debug("no event for major page faults on CPU %d: %s", cpu, strerror(errno));
		return NULL;
	}
	link = bpf_program__attach_perf_event(program, fd);
	if (!link) {
		log_debug("cannot attach to major page faults on CPU %d: %s", cpu, strerror(errno));
		close(fd); /* a link owns it */
	}
	return link;
}

struct majors *majors_open(const struct bpf_program *program)
{
	int n = libbpf_num_possible_cpus();
	struct majors *majors =
	    n > 0 ? calloc(1, sizeof(*majors) + (size_t)n * sizeof(majors->links[0])) : NULL;

	if (!majors)
		return NULL;
	majors->n = n;
	for (int cpu = 0; cpu < n; cpu++)
		majors->links[cpu] = cpu_open(program, cpu);
	return majors;
}

int majors_count(const struct majors *majors)
{
	int n = 0;

	for (int cpu = 0; majors && cpu < majors->n; cpu++)
		n += majors->links[cpu] != NULL;
	return n;
}

void majors_close(struct majors *majors)
{
	if (!majors)
		return;
	for (int cpu = 0; cpu < majors->n; cpu++)
		bpf_link__destroy(majors->links[cpu]);
	free(majors);
}
