/* SPDX-License-Identifier: Apache-2.0 */
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/proc.h"
#include "lib/psi.h"
#include "sample.h"

static void look_at_pressure(const char *root, const char *name, double *ret_ratio)
{
	char path[4200];
	struct psi psi;

	snprintf(path, sizeof(path), "%s/pressure/%s", root, name);
	if (!psi_read(path, &psi))
		*ret_ratio = psi.some.avg10_ratio;
}

static void look_at_load(const char *root, double *ret_load)
{
	_cleanup_(freep) char *text = NULL;
	char path[4200], *end;
	size_t length;
	double load;

	snprintf(path, sizeof(path), "%s/loadavg", root);
	if (proc_read_file(path, 256, &text, &length))
		return;
	load = strtod(text, &end);
	if (end != text)
		*ret_load = load;
}

void host_look(struct host *host, const char *root, uint64_t now_ns, struct host_sample *ret_sample)
{
	long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct proc_cpu_ticks ticks;
	struct proc_meminfo memory;

	if (gethostname(ret_sample->name, sizeof(ret_sample->name)))
		ret_sample->name[0] = '\0';
	ret_sample->name[sizeof(ret_sample->name) - 1] = '\0';
	if (n_cpus > 0)
		ret_sample->n_cpus = (uint64_t)n_cpus;
	if (!proc_cpu_ticks_read(root, &ticks)) {
		uint64_t busy = ticks.user + ticks.nice + ticks.system + ticks.irq + ticks.softirq;
		double s = (double)(now_ns - host->at_ns) / 1e9;

		if (host->at_ns && s > 0 && busy >= host->busy_ticks)
			ret_sample->cpu_ratio =
			    (double)(busy - host->busy_ticks) / (double)sysconf(_SC_CLK_TCK) / s;
		host->busy_ticks = busy;
		host->at_ns = now_ns;
	}
	if (!proc_meminfo_read(root, &memory)) {
		ret_sample->memory_bytes = (double)memory.total_bytes;
		ret_sample->available_bytes = (double)memory.available_bytes;
	}
	look_at_load(root, &ret_sample->load1);
	look_at_pressure(root, "cpu", &ret_sample->psi_cpu);
	look_at_pressure(root, "io", &ret_sample->psi_io);
	look_at_pressure(root, "memory", &ret_sample->psi_memory);
}
