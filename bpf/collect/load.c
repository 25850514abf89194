/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/proc.h"
#include "recorder.skel.h"
#include "recorder_without_cast.skel.h"
#include "refusal.h"
#include "stack_sample.h"

#define DEFAULT_RING_BYTES (UINT64_C(8) << 20)
#define MIN_RING_BYTES     UINT64_C(4096)
#define MAX_RING_BYTES     (UINT64_C(1) << 30)

static uint64_t ring_size(uint64_t wanted_bytes)
{
	uint64_t bytes = MIN_RING_BYTES;

	if (!wanted_bytes)
		wanted_bytes = DEFAULT_RING_BYTES;
	while (bytes < wanted_bytes && bytes < MAX_RING_BYTES)
		bytes <<= 1;
	return bytes;
}

/* Holds what all CPUs gather in 200 ms, four times as long as a caller takes to come back. */
static uint64_t stack_ring_size(uint32_t rate_hz)
{
	uint64_t n_cpus = (uint64_t)sysconf(_SC_NPROCESSORS_CONF);

	return ring_size(n_cpus * (rate_hz / 5 + 1) * (sizeof(struct stack_sample) + 8));
}

/* Both objects are made from one source, so one's skeleton describes the other. */
_Static_assert(sizeof(struct recorder) == sizeof(struct recorder_without_cast), "maps and programs differ");

/* Opens the object that this kernel can load. One that names a function of the kernel needs it there. */
static int open_recorder(const char *btf_path, bool can_cast, struct recorder **ret_recorder)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .btf_custom_path = btf_path);
	struct recorder *recorder = calloc(1, sizeof(*recorder));
	int r = recorder ? recorder__create_skeleton(recorder) : -ENOMEM;

	if (r == 0 && !can_cast)
		recorder->skeleton->data =
		    (void *)recorder_without_cast__elf_bytes(&recorder->skeleton->data_sz);
	if (r == 0)
		r = bpf_object__open_skeleton(recorder->skeleton, &opts);
	if (r < 0)
		recorder__destroy(recorder);
	else
		*ret_recorder = recorder;
	return r;
}

static int prepare(const struct collector *collector, const struct collector_options *options,
		   struct error *err)
{
	struct recorder *recorder = collector->recorder;
	uint64_t ring_bytes = ring_size(options->ring_bytes);
	int r;

	recorder->rodata->recorder_tgid = (uint32_t)getpid();
	recorder->rodata->wakeup_bytes = ring_bytes / 8;
	recorder->rodata->no_children = options->no_children;
	recorder->rodata->recording_start_boottime_ns = clock_snapshot_take().boottime_ns;
	r = bpf_map__set_max_entries(recorder->maps.data_ring, (uint32_t)ring_bytes);
	if (r < 0)
		return error_errno(err, r, "cannot size the ring");
	r = bpf_map__set_max_entries(recorder->maps.stack_ring,
				     (uint32_t)stack_ring_size(collector->profile_hz));
	return r < 0 ? error_errno(err, r, "cannot size the ring of samples") : 0;
}

/* Says in terms that a user understands why the kernel did not accept the programs. */
static int load_error(int r, struct error *err)
{
	const struct refusal *refusal = refusal_get();

	if (refusal_of_privilege(r))
		return error_set(err, -EPERM,
				 "no privilege to load BPF programs: run as root (sudo), or give the program "
				 "CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE");
	if (refusal->program[0])
		return error_set(err, -ENOSYS,
				 "the kernel refused the recorder's program %s: %s (diesel-analyze -v record "
				 "shows its log)",
				 refusal->program, refusal->reason);
	return error_errno(err, r,
			   "the kernel did not accept the recorder (diesel-analyze -v record shows its log)");
}

/* Returns true if the recorder can do without the program that was refused, which is remembered. */
static bool leave_out(struct collector *collector, int r)
{
	const struct refusal *refusal = refusal_get();
	const struct collector_hook *hook = hooks_of_program(refusal->program);
	struct collector_refusal *left_out = &collector->refusals[collector->n_refusals];

	if (!hook || hook->required || r == -ENOMEM || r == -EINTR || refusal_of_privilege(r) ||
	    collector->n_refusals == COLLECTOR_REFUSALS_MAX)
		return false;
	snprintf(left_out->program, sizeof(left_out->program), "%s", hook->name);
	memcpy(left_out->reason, refusal->reason, sizeof(left_out->reason));
	left_out->lost_without = hook->lost_without;
	collector->n_refusals++;
	return true;
}

/* *refused: it failed in the kernel, or on the way there, and err is not written yet. */
static int load_once(struct collector *collector, const struct collector_options *options,
		     const struct btf *btf, bool *refused, struct error *err)
{
	const char *btf_path = options->btf_path ? options->btf_path : DEFAULT_BTF;
	int r;

	*refused = false;
	refusal_listen();
	r = open_recorder(btf_path, hooks_can_cast(btf), &collector->recorder);
	if (r < 0)
		return error_errno(err, r, "cannot open the recorder");
	r = hooks_select(collector->recorder->obj, btf, collector->profile_hz > 0, err);
	for (size_t i = 0; r == 0 && i < collector->n_refusals; i++)
		hooks_leave_out(collector->recorder->obj, collector->refusals[i].lost_without);
	if (r == 0)
		r = prepare(collector, options, err);
	if (r < 0)
		return r;
	refusal_listen();
	r = recorder__load(collector->recorder);
	*refused = r < 0;
	return r;
}

static bool is_admin(void)
{
	struct proc_status status;

	return proc_status_read("/proc", getpid(), &status) == 0 &&
	       status.effective_capabilities & 1ULL << CAP_SYS_ADMIN;
}

int load_recorder(struct collector *collector, const struct collector_options *options, struct error *err)
{
	_cleanup_(btf_freep) struct btf *btf = NULL;
	bool refused = false;
	int r = hooks_btf(options->btf_path ? options->btf_path : DEFAULT_BTF, &btf, err);

	if (r < 0)
		return r;
	collector->no_probes = !hooks_can_probe(btf) && !is_admin();
	if (options->profile_hz)
		collector->profile_error = hooks_can_profile();
	if (!collector->profile_error)
		collector->profile_hz = options->profile_hz;
	r = load_once(collector, options, btf, &refused, err);
	while (refused && leave_out(collector, r)) {
		recorder__destroy(collector->recorder);
		collector->recorder = NULL;
		r = load_once(collector, options, btf, &refused, err);
	}
	if (refused)
		return load_error(r, err);
	if (r == 0 && collector->profile_hz &&
	    !bpf_program__autoload(collector->recorder->progs.sample_cpu)) {
		collector->profile_hz = 0;
		collector->profile_error = -EOPNOTSUPP;
	}
	return r;
}
