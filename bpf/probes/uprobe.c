/* SPDX-License-Identifier: Apache-2.0 */
#include "uprobe.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/file_open.h"
#include "lib/log.h"
#include "lib/thread.h"

/* Constants missing from Debian 12's headers and from libbpf 1.1. */
#define TRACE_UPROBE_MULTI    48 /* enum bpf_attach_type */
#define UPROBE_MULTI_RETURN   1
#define LINK_CREATE_ATTR_SIZE 64

/* The part of union bpf_attr for BPF_LINK_CREATE with TRACE_UPROBE_MULTI. */
struct link_create {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t n, uprobe_flags, pid, reserved;
};

_Static_assert(sizeof(struct link_create) == LINK_CREATE_ATTR_SIZE, "must match the kernel's layout");

void uprobe_use_multi(struct bpf_object *object)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, object)
	{
		const char *section = bpf_program__section_name(program);

		if (!strcmp(section, "uprobe") || !strcmp(section, "uretprobe"))
			bpf_program__set_expected_attach_type(program,
							      (enum bpf_attach_type)TRACE_UPROBE_MULTI);
	}
}

bool uprobe_has_multi(void)
{
	static const struct bpf_insn insns[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
						{.code = BPF_JMP | BPF_EXIT}};
	LIBBPF_OPTS(bpf_prog_load_opts, opts,
		    .expected_attach_type = (enum bpf_attach_type)TRACE_UPROBE_MULTI);
	_cleanup_(closep) int program =
	    bpf_prog_load(BPF_PROG_TYPE_KPROBE, NULL, "GPL", insns, sizeof(insns) / sizeof(insns[0]), &opts);
	uint64_t offset = 0;
	struct link_create attr = {
	    .prog_fd = (uint32_t)program,
	    .attach_type = TRACE_UPROBE_MULTI,
	    .path = (uintptr_t) "/",
	    .offsets = (uintptr_t)&offset,
	    .n = 1,
	    .pid = UINT32_MAX,
	};

	/* Kernels that filter by thread, not by process, first reject the path, which is no file. */
	return program >= 0 && syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr)) < 0 && errno == EINVAL;
}

static int link_add(struct uprobe_links *links, struct uprobe_link link)
{
	struct uprobe_link *items = reallocarray(links->items, links->n + 1, sizeof(*items));

	if (!items)
		return -ENOMEM;
	links->items = items;
	items[links->n++] = link;
	return 0;
}

static int attach_multi(struct uprobe_links *links, struct bpf_program *program, bool at_return,
			const char *path, pid_t tgid, const struct uprobe_point *points, size_t n_points)
{
	uint64_t *offsets = calloc(3 * n_points, sizeof(*offsets));
	uint64_t *cookies = offsets + n_points, *semaphores = cookies + n_points;
	struct link_create attr = {
	    .prog_fd = (uint32_t)bpf_program__fd(program),
	    .attach_type = TRACE_UPROBE_MULTI,
	    .path = (uintptr_t)path,
	    .offsets = (uintptr_t)offsets,
	    .cookies = (uintptr_t)cookies,
	    .ref_ctr_offsets = (uintptr_t)semaphores,
	    .n = (uint32_t)n_points,
	    .uprobe_flags = at_return ? UPROBE_MULTI_RETURN : 0,
	    .pid = (uint32_t)tgid,
	};
	int fd, r;

	if (!offsets)
		return -ENOMEM;
	for (size_t i = 0; i < n_points; i++) {
		offsets[i] = points[i].offset;
		cookies[i] = points[i].cookie;
		semaphores[i] = points[i].semaphore_offset;
	}
	fd = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));
	r = fd < 0 ? -errno : 0;
	free(offsets);
	if (r == 0)
		r = link_add(links, (struct uprobe_link){.fd = fd});
	if (r == -ENOMEM && fd >= 0)
		close(fd);
	return r;
}

static int attach_single(struct uprobe_links *links, struct bpf_program *program, bool at_return,
			 const char *path, pid_t tgid, const struct uprobe_point *point)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .retprobe = at_return, .bpf_cookie = point->cookie,
		    .ref_ctr_offset = point->semaphore_offset);
	struct bpf_link *link;
	int r;

	if (bpf_program__expected_attach_type(program) == (enum bpf_attach_type)TRACE_UPROBE_MULTI)
		return attach_multi(links, program, at_return, path, tgid, point, 1);
	link = bpf_program__attach_uprobe_opts(program, tgid, path, point->offset, &opts);
	if (!link)
		return -errno;
	r = link_add(links, (struct uprobe_link){.link = link});
	if (r < 0)
		bpf_link__destroy(link);
	return r;
}

size_t uprobe_attach(struct uprobe_links *links, struct bpf_program *program, bool at_return, int file_fd,
		     pid_t tgid, const struct uprobe_point *points, size_t n_points)
{
	char path[FD_PATH_BYTES];
	size_t n = 0;

	if (!n_points)
		return 0;
	fd_path(file_fd, path);
	if (n_points > 1 &&
	    bpf_program__expected_attach_type(program) == (enum bpf_attach_type)TRACE_UPROBE_MULTI &&
	    !attach_multi(links, program, at_return, path, tgid, points, n_points))
		return n_points;
	/* Attaching many points succeeds for all of them or for none. If it fails, attach them one by one. */
	for (size_t i = 0; i < n_points; i++) {
		int r = attach_single(links, program, at_return, path, tgid, &points[i]);

		n += r == 0;
		if (r < 0)
			log_debug("process %d: cannot attach a probe at offset %#llx: %s", (int)tgid,
				  (unsigned long long)points[i].offset, strerror(-r));
	}
	return n;
}

/* Detaches links on threads, many at a time, so that they share the kernel's waits for all CPUs. */

#define THREADS_MAX 32

struct uprobe_reaper {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct uprobe_link *links; /* links that no thread has taken yet */
	size_t n, n_allocated;
	size_t n_threads, n_busy; /* busy: threads that remove a link */
	bool ended;
	pthread_t threads[THREADS_MAX];
};

static void link_close(struct uprobe_link link)
{
	if (link.link)
		bpf_link__destroy(link.link);
	else
		close(link.fd);
}

static void *reap(void *user)
{
	struct uprobe_reaper *reaper = user;

	pthread_mutex_lock(&reaper->lock);
	while (reaper->n || !reaper->ended) {
		struct uprobe_link link;

		if (!reaper->n) {
			pthread_cond_wait(&reaper->changed, &reaper->lock);
			continue;
		}
		link = reaper->links[--reaper->n];
		reaper->n_busy++;
		pthread_mutex_unlock(&reaper->lock);
		link_close(link);
		pthread_mutex_lock(&reaper->lock);
		reaper->n_busy--;
	}
	pthread_mutex_unlock(&reaper->lock);
	return NULL;
}

struct uprobe_reaper *uprobe_reaper_new(void)
{
	struct uprobe_reaper *reaper = calloc(1, sizeof(*reaper));

	if (!reaper)
		return NULL;
	pthread_mutex_init(&reaper->lock, NULL);
	pthread_cond_init(&reaper->changed, NULL);
	return reaper;
}

/* Call it with the lock held. */
static void add_thread(struct uprobe_reaper *reaper)
{
	if (reaper->n_threads < THREADS_MAX && reaper->n_threads < reaper->n + reaper->n_busy &&
	    thread_start(&reaper->threads[reaper->n_threads], reap, reaper) == 0)
		reaper->n_threads++;
}

void uprobe_reaper_take(struct uprobe_reaper *reaper, struct uprobe_links *links)
{
	pthread_mutex_lock(&reaper->lock);
	for (size_t i = 0; i < links->n; i++) {
		bool queued = array_reserve(reaper->links, reaper->n, reaper->n_allocated) == 0;

		if (queued)
			reaper->links[reaper->n++] = links->items[i];
		add_thread(reaper);
		if (!queued || !reaper->n_threads) {
			reaper->n -= queued;
			link_close(links->items[i]);
		}
	}
	pthread_cond_broadcast(&reaper->changed);
	pthread_mutex_unlock(&reaper->lock);
	free(links->items);
	*links = (struct uprobe_links){0};
}

size_t uprobe_reaper_backlog(struct uprobe_reaper *reaper)
{
	size_t n;

	pthread_mutex_lock(&reaper->lock);
	n = reaper->n + reaper->n_busy;
	pthread_mutex_unlock(&reaper->lock);
	return n;
}

void uprobe_reaper_free(struct uprobe_reaper *reaper)
{
	if (!reaper)
		return;
	pthread_mutex_lock(&reaper->lock);
	reaper->ended = true;
	pthread_cond_broadcast(&reaper->changed);
	pthread_mutex_unlock(&reaper->lock);
	for (size_t i = 0; i < reaper->n_threads; i++)
		pthread_join(reaper->threads[i], NULL);
	pthread_cond_destroy(&reaper->changed);
	pthread_mutex_destroy(&reaper->lock);
	free(reaper->links);
	free(reaper);
}
