/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/proc.h"

#define GROUP_BYTES 4096
#define UID_LENGTH  36 /* length of a pod's UID: 8-4-4-4-12 digits */

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Returns the next component of a path, of *ret_length bytes. NULL: no more. */
static const char *next_component(const char **path, size_t *ret_length)
{
	const char *at = *path + strspn(*path, "/");

	*ret_length = strcspn(at, "/");
	*path = at + *ret_length;
	return *ret_length ? at : NULL;
}

/* Takes the job number from "job_4711" somewhere below /slurm..., or /system.slice/...slurm..., where
 * users cannot create groups. */
static void look_for_slurm(struct job_origin *o, const char *path)
{
	size_t length, digits;
	bool is_below = false;
	const char *at;

	for (int depth = 0; (at = next_component(&path, &length)); depth++) {
		if (depth == 0 && !begins(at, "slurm") && !begins(at, "system.slice/"))
			return;
		if (is_below && begins(at, "job_")) {
			digits = strspn(at + 4, "0123456789");
			if (digits && digits == length - 4 && digits < sizeof(o->slurm_job))
				snprintf(o->slurm_job, sizeof(o->slurm_job), "%.*s", (int)digits, at + 4);
			return;
		}
		if (depth < 2 && memmem(at, length, "slurm", 5))
			is_below = true;
	}
}

/* Takes the pod's UID from "kubepods-burstable-podUID.slice", with '_' instead of '-', or from "podUID". If
 * the daemon itself is in a pod, the path may begin at the daemon's own group, with "/../..". */
static void look_for_pod(struct job_origin *o, const char *path)
{
	const char *at, *uid;
	size_t length;
	bool is_first = true;

	while ((at = next_component(&path, &length))) {
		if (length == 2 && begins(at, ".."))
			continue;
		if (is_first && begins(at, "user.slice")) /* users can create groups below user.slice */
			return;
		is_first = false;
		uid = begins(at, "pod") ? at : memmem(at, length, "-pod", 4);
		if (!uid || (uid != at && !begins(at, "kubepods")))
			continue;
		uid += uid == at ? 3 : 4;
		if (strspn(uid, "0123456789abcdef-_") != UID_LENGTH)
			continue;
		snprintf(o->pod_uid, sizeof(o->pod_uid), "%.*s", UID_LENGTH, uid);
		for (char *c = o->pod_uid; *c; c++)
			if (*c == '_')
				*c = '-';
		return;
	}
}

/* Sets the fields that this text of /proc/PID/cgroup contains. */
static void look_in_groups(struct job_origin *o, const char *text)
{
	/* "N:CONTROLLERS:PATH", a line for each hierarchy. */
	while (*text) {
		size_t length = strcspn(text, "\n");
		char line[GROUP_BYTES], *path = NULL;

		snprintf(line, sizeof(line), "%.*s", (int)length, text);
		text += length + (text[length] == '\n');
		path = strchr(line, ':');
		path = path ? strchr(path + 1, ':') : NULL;
		if (!path)
			continue;
		look_for_slurm(o, path + 1);
		if (!o->pod_uid[0])
			look_for_pod(o, path + 1);
	}
}

struct job_origin job_origin_find(const struct wire_origin *said, const char *proc_root, pid_t pid)
{
	_cleanup_(freep) char *text = NULL;
	struct job_origin o = {.pod_uid = ""};
	char path[256];
	size_t length;

	if (said) {
		memcpy(o.slurm_job, said->slurm_job, sizeof(o.slurm_job));
		memcpy(o.account, said->account, sizeof(o.account));
		memcpy(o.pod, said->pod, sizeof(o.pod));
		memcpy(o.pod_namespace, said->pod_namespace, sizeof(o.pod_namespace));
	}
	if (pid > 0 &&
	    snprintf(path, sizeof(path), "%s/%d/cgroup", proc_root, (int)pid) < (int)sizeof(path) &&
	    proc_read_file(path, GROUP_BYTES, &text, &length) == 0)
		look_in_groups(&o, text);
	return o;
}

bool job_origin_is_known(const struct job_origin *o)
{
	return o->slurm_job[0] || o->account[0] || o->pod[0] || o->pod_uid[0] || o->pod_namespace[0];
}
