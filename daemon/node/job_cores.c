/* SPDX-License-Identifier: Apache-2.0 */
#include "job_cores.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/proc.h"

#define FILE_BYTES 4096

/* Reads a control file. NULL: it does not exist, or its owner is neither root nor the daemon's user. */
static char *read_trusted(const char *folder, const char *name)
{
	char path[PATH_MAX], *text = NULL;
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path) || stat(path, &st) < 0 ||
	    (st.st_uid != 0 && st.st_uid != geteuid()) || proc_read_file(path, FILE_BYTES, &text, NULL) < 0)
		return NULL;
	return text;
}

/* Parses "0-3,8". */
static bool parse_cpus(const char *text, cpu_set_t *ret)
{
	CPU_ZERO(ret);
	while (*text >= '0' && *text <= '9') {
		char *end;
		unsigned long first = strtoul(text, &end, 10), last = first;

		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (unsigned long i = first; i <= last && i < CPU_SETSIZE; i++)
			CPU_SET(i, ret);
		text = end + (*end == ',');
	}
	return CPU_COUNT(ret) > 0;
}

static uint64_t number_of(const char *folder)
{
	struct stat st;

	return stat(folder, &st) == 0 ? st.st_ino : 0;
}

/* Takes the CPUs from the nearest group that sets them; groups above it are ignored (*known). */
static void take_cpus(const char *folder, const char *name, struct job_cores *c, bool *known)
{
	_cleanup_(freep) char *text = *known ? NULL : read_trusted(folder, name);

	if (!text || !parse_cpus(text, &c->cpus))
		return;
	*known = true;
	c->has_cpus = CPU_COUNT(&c->cpus) < sysconf(_SC_NPROCESSORS_ONLN);
	if (c->has_cpus)
		c->group = number_of(folder);
}

static void take_quota(const char *folder, struct job_cores *c)
{
	_cleanup_(freep) char *text = read_trusted(folder, "cpu.max");
	double quota, period;

	if (!text || sscanf(text, "%lf %lf", &quota, &period) != 2 || !(quota > 0) || !(period > 0) ||
	    (c->quota > 0 && quota / period >= c->quota))
		return;
	c->quota = quota / period;
	if (!c->has_cpus)
		c->group = number_of(folder);
}

/* Reads the limits of the group and all groups above it. */
static void walk_up(const char *mount, const char *group, const char *cpus, struct job_cores *c, bool *known)
{
	char path[PATH_MAX];

	/* In a container a group may be outside the visible hierarchy. */
	if (strncmp(group, "/..", 3) == 0 ||
	    snprintf(path, sizeof(path), "%s%s", mount, group) >= (int)sizeof(path))
		return;
	for (char *end = path + strlen(path); end > path + strlen(mount); end = strrchr(path, '/')) {
		*end = '\0';
		take_cpus(path, cpus, c, known);
		take_quota(path, c);
	}
}

void job_cores_read(const char *root, pid_t pid, struct job_cores *ret)
{
	double n_machine = (double)sysconf(_SC_NPROCESSORS_ONLN);
	_cleanup_(freep) char *text = NULL;
	char path[PATH_MAX], *save = NULL;
	bool known = false;

	*ret = (struct job_cores){.quota = 0};
	snprintf(path, sizeof(path), "%s/proc/%d/cgroup", root, (int)pid);
	if (proc_read_file(path, FILE_BYTES, &text, NULL) < 0)
		return;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *controllers = strchr(line, ':'),
		     *group = controllers ? strchr(++controllers, ':') : NULL;

		if (!group)
			continue;
		*group++ = '\0';
		snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s", root, *controllers ? "/cpuset" : "");
		if (!*controllers)
			walk_up(path, group, "cpuset.cpus.effective", ret, &known);
		else if (strcmp(controllers, "cpuset") == 0)
			walk_up(path, group, "cpuset.effective_cpus", ret, &known);
	}
	if (ret->quota >= (ret->has_cpus ? CPU_COUNT(&ret->cpus) : n_machine))
		ret->quota = 0;
}

/* Returns true for the first job of its group: jobs of one group share its cores. */
static bool is_first_of_group(const struct user_cores *jobs, size_t at)
{
	for (size_t i = 0; i < at; i++)
		if (jobs[i].cores->group == jobs[at].cores->group)
			return false;
	return true;
}

uint32_t job_cores_left(const struct user_cores *jobs, size_t n, uint32_t uid, const cpu_set_t *daemon,
			uint32_t n_machine)
{
	double n_all = CPU_COUNT(daemon), own_quota = 0, others_quota = 0, left;
	cpu_set_t own, others;

	CPU_ZERO(&own);
	CPU_ZERO(&others);
	for (size_t i = 0; i < n; i++) {
		const struct job_cores *c = jobs[i].cores;
		bool is_own = jobs[i].uid == uid;

		if (c->has_cpus)
			CPU_OR(is_own ? &own : &others, is_own ? &own : &others, &c->cpus);
		else if (c->quota > 0 && is_first_of_group(jobs, i))
			*(is_own ? &own_quota : &others_quota) += c->quota;
	}
	CPU_AND(&own, &own, daemon);
	CPU_AND(&others, &others, daemon);
	own_quota += CPU_COUNT(&own);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &own))
			CPU_CLR(i, &others);
	/* A quota applies to any cores; count it first against cores that the daemon may not use. */
	others_quota = fmax(0, others_quota - fmax(0, n_machine - n_all));
	left = fmin(fmax(n_all - CPU_COUNT(&others) - others_quota, own_quota), n_all);
	return left < 1 ? 1 : (uint32_t)left;
}
