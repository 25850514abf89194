/* SPDX-License-Identifier: Apache-2.0 */
/* Task iterators: BPF programs that visit the machine's threads, to make processes part of the job and to
 * write the threads' last records. */
#include "private.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/kernel_calls.h"
#include "bpf/probes/probes.h"
#include "recorder.skel.h"

int collector_iterate(struct collector *collector, struct bpf_program *program)
{
	struct bpf_link *link = bpf_program__attach_iter(program, NULL);
	_cleanup_(closep) int fd = -1;
	int r = 0;

	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd < 0)
		r = -errno;
	while (r == 0) {
		char *pending = realloc(collector->pending, collector->pending_bytes + 65536);
		ssize_t n;

		if (!pending) {
			r = -ENOMEM;
			break;
		}
		collector->pending = pending;
		n = read(fd, pending + collector->pending_bytes, 65536);
		if (n > 0)
			collector->pending_bytes += (size_t)n;
		else if (n == 0)
			break;
		else if (errno != EINTR && errno != EAGAIN)
			r = -errno;
	}
	bpf_link__destroy(link);
	return r;
}

bool collector_has(const struct collector *collector, pid_t tgid)
{
	_cleanup_(closep) int fd = kernel_pidfd_open(tgid);

	return fd >= 0 && probes_is_member(bpf_map__fd(collector->recorder->maps.members), fd);
}

int collector_tag(struct collector *collector, pid_t tgid, struct error *err)
{
	int r;

	collector->recorder->bss->tag_tgid = (uint32_t)tgid;
	/* Iterates twice, because an untagged thread may create a thread behind the iterator's position. */
	for (int i = 0; i < 2; i++) {
		r = collector_iterate(collector, collector->recorder->progs.tag_tasks);
		if (r < 0)
			return error_errno(err, r, "cannot list the threads of process %d", (int)tgid);
	}
	if (!collector_has(collector, tgid))
		return kill(tgid, 0) == 0 || errno == EPERM
			   ? error_set(
				 err, -EPERM,
				 "process %d cannot be recorded: this kernel keeps it from being traced",
				 (int)tgid)
			   : error_set(err, -ESRCH, "there is no process %d", (int)tgid);
	return 0;
}

/* Scans the processes that the records in [from, pending_bytes) name. */
static void scan_tagged(struct collector *collector, size_t from)
{
	pid_t previous = 0;

	for (size_t at = from; at + sizeof(struct event) <= collector->pending_bytes;
	     at += sizeof(struct event)) {
		struct event event;

		memcpy(&event, collector->pending + at, sizeof(event));
		if ((pid_t)event.tgid != previous)
			probes_scan(collector->probes, (pid_t)event.tgid);
		previous = (pid_t)event.tgid;
	}
	probes_settle(collector->probes);
}

int collector_attach(struct collector *collector, pid_t tgid, struct error *err)
{
	size_t from = collector->pending_bytes;
	int r = collector_tag(collector, tgid, err);

	if (r == 0)
		scan_tagged(collector, from);
	return r;
}

void collector_flush_pending(struct collector *collector)
{
	for (size_t at = 0; at + sizeof(struct event) <= collector->pending_bytes;
	     at += sizeof(struct event)) {
		struct event event;

		memcpy(&event, collector->pending + at, sizeof(event));
		collector_record(collector, &event, sizeof(event));
	}
	free(collector->pending);
	collector->pending = NULL;
	collector->pending_bytes = 0;
}
