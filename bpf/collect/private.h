/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The collector's state, and the functions that its files share. */

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "lib/error.h"
#include "bpf/collector.h"

/* libbpf always gets this path. Otherwise it searches the BTF of all modules for missing types, which takes
 * CAP_SYS_ADMIN. */
#define DEFAULT_BTF "/sys/kernel/btf/vmlinux"

struct recorder;
struct majors;
struct places;
struct probe_set;
struct profiler;

/* The CPU time of the BPF programs. It is measured in samples because permanent measuring would cost the job
 * 1 to 3 %. */
struct cost {
	int stats_fd; /* open while counting is switched on for a sample; else -1 */
	uint64_t start_ns, next_ns;
	uint64_t begin_ns, begin_run_ns; /* start of the current sample; 0: none */
	uint64_t sampled_ns;
	double rate;        /* CPU time per elapsed time in the last sample */
	double estimate_ns; /* estimated CPU time up to known_ns */
	uint64_t known_ns;
};

struct collector {
	struct recorder *recorder;
	struct ring_buffer *rings;
	struct bpf_link *links[COLLECTOR_HOOKS_MAX];
	size_t n_links;
	struct probe_set *probes;
	struct majors *majors;
	struct places *places;
	struct profiler *profiler; /* NULL: no stack samples */
	uint32_t profile_hz;
	int profile_error;
	struct collector_refusal refusals[COLLECTOR_REFUSALS_MAX];
	size_t n_refusals;
	bool no_probes;
	struct cost cost;
	/* records that a task iterator wrote, until the next poll */
	char *pending;
	size_t pending_bytes;
	const struct collector_sink *sink; /* sink of the poll in progress */
	uint64_t events[COLLECTOR_EVENT_TYPES];
	uint64_t start_ns, start_cpu_ns;
	uint64_t polled_ns, polled_lost; /* last check for lost records: its time, and their number */
};

static inline void btf_freep(struct btf **btf)
{
	btf__free(*btf);
}

/* hooks.c: the table of hooks and the running kernel. */
int hooks_btf(const char *path, struct btf **ret_btf, struct error *err);
/* Returns true if the kernel lets programs cast pointers, which makes system calls cheaper to record. */
static inline bool hooks_can_cast(const struct btf *btf)
{
	return btf__find_by_name_kind(btf, "bpf_rdonly_cast", BTF_KIND_FUNC) > 0;
}

/* Returns true if the kernel has links that probe user code. Otherwise probing takes a kind of perf event
 * that only CAP_SYS_ADMIN may open. */
bool hooks_can_probe(const struct btf *btf);
/* Selects for loading the programs that this kernel can run. profile: includes the program that takes stack
 * samples. */
int hooks_select(struct bpf_object *object, const struct btf *btf, bool profile, struct error *err);
/* Returns the row of a program, which has the name of its hook or of the program; NULL: no such program. */
const struct collector_hook *hooks_of_program(const char *program);
int hooks_attach(struct collector *collector, struct bpf_object *object, struct error *err);

/* collector.c: passes a record on if a poll is in progress. A ring_buffer_sample_fn. */
int collector_record(void *user, void *data, size_t size);

/* collector_tasks.c */
/* Tags a process; its records wait in pending. */
int collector_tag(struct collector *collector, pid_t tgid, struct error *err);
/* Runs a task iterator and appends the records it writes to pending. */
int collector_iterate(struct collector *collector, struct bpf_program *program);
void collector_flush_pending(struct collector *collector);
