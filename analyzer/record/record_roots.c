/* SPDX-License-Identifier: Apache-2.0 */
#include "record_roots.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cgroup.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/kernel_calls.h"
#include "analyzer/source.h"
#include "lib/sorted.h"

int record_roots_add(struct record_roots *roots, pid_t tgid, struct error *err)
{
	pid_t *tgids = reallocarray(roots->tgids, roots->n + 1, sizeof(*tgids));
	int *fds = reallocarray(roots->fds, roots->n + 1, sizeof(*fds));
	int fd;

	roots->tgids = tgids ? tgids : roots->tgids;
	roots->fds = fds ? fds : roots->fds;
	if (!tgids || !fds)
		return error_set(err, -ENOMEM, "no memory for the job's processes");
	fd = kernel_pidfd_open(tgid);
	if (fd < 0 && errno != ESRCH)
		return error_errno(err, -errno, "cannot watch process %d", (int)tgid);
	roots->tgids[roots->n] = tgid;
	roots->fds[roots->n++] = fd;
	return 0;
}

int record_roots_set_cgroup(struct record_roots *roots, const char *path, struct error *err)
{
	char folder[PATH_MAX];
	int r = cgroup_find("/proc", path, folder, sizeof(folder));

	if (r == -ENOENT)
		return error_set(err, r,
				 "%s: no such control group; give its folder below /sys/fs/cgroup, or what "
				 "/proc/PID/cgroup says",
				 path);
	if (r < 0)
		return error_errno(err, r, "%s: cannot find the control group", path);
	roots->cgroup = strdup(folder);
	return roots->cgroup ? 0 : error_set(err, -ENOMEM, "no memory for the job's processes");
}

void record_roots_free(struct record_roots *roots)
{
	for (size_t i = 0; i < roots->n; i++)
		closep(&roots->fds[i]);
	free(roots->tgids);
	free(roots->fds);
	free(roots->cgroup);
	free(roots->members);
	*roots = (struct record_roots){0};
}

void record_roots_exit(struct record_roots *roots, pid_t tgid)
{
	for (size_t i = 0; i < roots->n; i++)
		roots->n_gone += roots->tgids[i] == tgid;
}

bool record_roots_all_gone(const struct record_roots *roots)
{
	return roots->n_gone >= roots->n;
}

int record_roots_join(struct record_roots *roots, struct source *source, bool *ret_ended, struct error *err)
{
	_cleanup_(freep) pid_t *pids = NULL;
	size_t n = 0;
	bool ended;
	int r;

	if (!roots->cgroup) {
		*ret_ended = false;
		return 0;
	}
	r = cgroup_processes(roots->cgroup, &pids, &n);
	if (r == -ENOMEM)
		return error_set(err, r, "no memory for the processes of %s", roots->cgroup);
	/* A group that was removed counts as empty. */
	ended = roots->any && !n && !source_alive(source);
	for (size_t i = 0; i < n; i++) {
		bool known = roots->n_members &&
			     bsearch(&pids[i], roots->members, roots->n_members, sizeof(*pids), compare_int);

		roots->any = true;
		/* Most new processes were made by one that is in the job. */
		if (known || source_has(source, pids[i]))
			continue;
		r = source_attach(source, pids[i], err);
		if (r < 0 && r != -ESRCH) /* it may have come and gone */
			return r;
	}
	free(roots->members);
	roots->members = steal_pointer(pids);
	roots->n_members = n;
	*ret_ended = ended;
	return 0;
}
