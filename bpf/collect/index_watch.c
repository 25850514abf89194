/* SPDX-License-Identifier: Apache-2.0 */
#include "bpf/index_watch.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>

#include "index_watch.skel.h"
#include "lib/error.h"
#include "private.h"
#include "refusal.h"

struct index_watch {
	struct index_watch_programs *programs;
	struct ring_buffer *ring;
	void (*record)(void *user, const struct index_record *r, const void *bytes);
	void *user;
	struct bpf_link *forks, *enter, *exit;
	uint64_t n_forks; /* number of forks passed on so far */
};

static int on_record(void *user, void *data, size_t size)
{
	struct index_watch *w = user;
	const struct index_record *r = data;

	if (size >= sizeof(*r) && size >= sizeof(*r) + r->bytes)
		w->record(w->user, r, r + 1);
	return 0;
}

static int attach(struct bpf_link **link, struct bpf_program *program, bool wanted)
{
	if (!wanted) {
		bpf_link__destroy(*link);
		*link = NULL;
	} else if (!*link) {
		*link = bpf_program__attach(program);
		if (!*link)
			return -errno;
	}
	return 0;
}

int index_watch_attend(struct index_watch *w, enum index_attention wanted)
{
	int r = attach(&w->enter, w->programs->progs.index_enter, wanted >= INDEX_TRAINERS);

	return r < 0 ? r : attach(&w->exit, w->programs->progs.index_exit, wanted >= INDEX_ALL);
}

void index_watch_forks(struct index_watch *w, void (*forked)(void *user, uint32_t parent, uint32_t child),
		       void *user)
{
	uint64_t n = __atomic_load_n(&w->programs->bss->n_forks, __ATOMIC_RELAXED);

	if (n - w->n_forks > INDEX_FORKS)
		w->n_forks = n - INDEX_FORKS;
	for (; w->n_forks < n; w->n_forks++) {
		struct index_fork *f = &w->programs->bss->forks[w->n_forks % INDEX_FORKS];

		forked(user, __atomic_load_n(&f->parent, __ATOMIC_RELAXED),
		       __atomic_load_n(&f->child, __ATOMIC_RELAXED));
	}
}

static int load_error(int r, struct error *err)
{
	const struct refusal *refusal = refusal_get();

	if (refusal_of_privilege(r))
		return error_set(err, r,
				 "no privilege to load BPF programs: run dieseld as root, or give it CAP_BPF "
				 "and CAP_PERFMON");
	if (refusal->program[0])
		return error_set(err, r, "the kernel refused %s, a BPF program that watches pipes: %s",
				 refusal->program, refusal->reason);
	return error_errno(
	    err, r, "the kernel refused the BPF programs that watch pipes: they need Linux 5.11 with BTF");
}

static int load(struct index_watch *w, struct error *err)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .btf_custom_path = DEFAULT_BTF);
	struct index_watch_programs *p = index_watch_programs__open_opts(&opts);
	int r;

	if (!p)
		return error_errno(err, -errno, "cannot open the BPF programs that watch pipes");
	w->programs = p;
	r = index_watch_programs__load(p);
	if (r == 0)
		r = attach(&w->forks, p->progs.index_fork, true);
	if (r == 0) /* reports a failure to attach at once */
		r = index_watch_attend(w, INDEX_ALL);
	if (r == 0)
		r = index_watch_attend(w, INDEX_FORKS_ONLY);
	return r < 0 ? load_error(r, err) : 0;
}

static void index_watch_close(struct index_watch *w)
{
	if (!w)
		return;
	ring_buffer__free(w->ring);
	bpf_link__destroy(w->forks);
	bpf_link__destroy(w->enter);
	bpf_link__destroy(w->exit);
	index_watch_programs__destroy(w->programs);
	free(w);
}

int index_watch_open(struct index_watch **ret, struct error *err)
{
	struct index_watch *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return error_set(err, -ENOMEM, "no memory to watch pipes");
	refusal_listen();
	r = load(w, err);
	if (r == 0) {
		w->ring = ring_buffer__new(bpf_map__fd(w->programs->maps.ring), on_record, w, NULL);
		if (!w->ring)
			r = error_errno(err, -errno,
					"cannot map the ring buffer of the BPF programs that watch pipes");
	}
	if (r < 0) {
		index_watch_close(w);
		return r;
	}
	*ret = w;
	return 0;
}

int index_watch_fd(const struct index_watch *w)
{
	return ring_buffer__epoll_fd(w->ring);
}

int index_watch_take(struct index_watch *w,
		     void (*record)(void *user, const struct index_record *r, const void *bytes), void *user)
{
	int r;

	w->record = record;
	w->user = user;
	r = ring_buffer__consume(w->ring);
	return r < 0 ? r : 0;
}

int index_watch_trainer(struct index_watch *w, uint32_t tgid, bool wanted)
{
	struct index_trainer *all = w->programs->bss->trainers, *free_one = NULL;

	for (size_t i = 0; i < INDEX_TRAINERS_MAX; i++) {
		uint32_t is = __atomic_load_n(&all[i].tgid, __ATOMIC_RELAXED);

		if (is == tgid) {
			if (!wanted)
				__atomic_store_n(&all[i].tgid, 0, __ATOMIC_RELAXED);
			return 0;
		}
		if (!is && !free_one)
			free_one = &all[i];
	}
	if (!wanted)
		return 0;
	if (!free_one)
		return -EAGAIN;
	__atomic_store_n(&free_one->tgid, tgid, __ATOMIC_RELAXED);
	return 0;
}

uint64_t index_watch_lost(const struct index_watch *w)
{
	uint64_t n = __atomic_load_n(&w->programs->bss->n_lost, __ATOMIC_RELAXED);

	for (size_t i = 0; i < INDEX_TRAINERS_MAX; i++)
		n += __atomic_load_n(&w->programs->bss->trainers[i].n_left_out, __ATOMIC_RELAXED);
	return n;
}
