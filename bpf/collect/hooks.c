/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "bpf/probes/uprobe.h"

#define LOST_CONTEXT "correct wake-up chains: wake-ups by interrupts are attributed to threads"
#define LOST_BATCHES "batches of PyTorch's DataLoader, and the waits for them"
#define LOST_GPU     "launches of GPU work, copies, and waits for a GPU"
#define LOST_NVTX    "phases that a job marks with NVTX"

/* Hooks in the order of attaching: exits of interrupts before their entries (see context.h). A program has
 * the name of its tracepoint. */
static const struct collector_hook known_hooks[] = {
    {"irq_handler_exit", LOST_CONTEXT, false, false},
    {"softirq_exit", LOST_CONTEXT, false, false},
    {"local_timer_exit", LOST_CONTEXT, false, false},
    {"irq_handler_entry", LOST_CONTEXT, false, false},
    {"softirq_entry", LOST_CONTEXT, false, false},
    {"local_timer_entry", LOST_CONTEXT, false, false},
    {"sched_switch", "the whole report: time off the CPU is unknown", false, true},
    {"sched_waking", "which thread ended a wait, and whether a thread waits for a CPU or sleeps", false,
     true},
    {"sched_wakeup_new", "who started a thread", false, false},
    {"sys_exit", "all shares: reads, polls and locks are unknown", false, true},
    {"sys_enter", "all shares: reads, polls and locks are unknown", false, true},
    {"task_newtask", "threads and processes that start during the recording", false, true},
    {"sched_process_exec", "the program that a process runs after exec()", false, false},
    {"task_rename", "names that threads give themselves", false, false},
    {"mm_filemap_add_to_page_cache", "bytes read from storage, and the hit ratio", false, false},
    {"mm_filemap_fault", "which mapped files were read, and how long the reads took", false, false},
    {"mm_filemap_map_pages", "how often mapped files were found in memory", false, false},
    {"io_uring_complete", "bytes read by io_uring", false, false},
    {"balance_dirty_pages", "waits of write() for storage, as distinct from other waits", false, false},
    {"folio_wait_writeback", "waits of fsync() for storage, as distinct from other waits", false, false},
};

/* Programs that have no tracepoint. */
static const struct collector_hook known_programs[] = {
    {"tag_tasks", "the whole report: the job's threads cannot be found", true, true},
    {"close_tasks", "the whole report: the totals of the job's threads are unknown", true, true},
    {"major_fault", "how long reads of mapped files took", true, false},
    {"sample_cpu", "stack samples: the functions in which preparing spends its time", true, false},
    {"engine_execute", "steps of jobs that do not mark their steps", true, false},
    {"diesel_mark", "steps and batches that a job marks", true, false},
    {"batch_named", LOST_BATCHES, true, false},
    {"batch_begin", LOST_BATCHES, true, false},
    {"batch_end", LOST_BATCHES, true, false},
    {"gpu_enter", LOST_GPU, true, false},
    {"gpu_leave", LOST_GPU, true, false},
    {"nvtx_push", LOST_NVTX, true, false},
    {"nvtx_push_attributes", LOST_NVTX, true, false},
    {"nvtx_pop", LOST_NVTX, true, false},
    {"usdt_phase", "phases that a job marks with USDT probes", true, false},
};

#define N_PROGRAMS (sizeof(known_programs) / sizeof(known_programs[0]))

#define N_HOOKS (sizeof(known_hooks) / sizeof(known_hooks[0]))

_Static_assert(N_HOOKS <= COLLECTOR_HOOKS_MAX, "known_hooks must fit the arrays of callers");

int hooks_btf(const char *path, struct btf **ret_btf, struct error *err)
{
	struct btf *btf = NULL;
	int r;

	btf = btf__parse(path, NULL);
	r = libbpf_get_error(btf);
	if (r == -ENOENT)
		return error_set(err, -ENOENT,
				 "%s: the kernel has no BTF type information; use a kernel built with "
				 "CONFIG_DEBUG_INFO_BTF=y (Debian 11, Ubuntu 20.10, RHEL 8.2 or newer)",
				 path);
	if (r < 0)
		return error_errno(err, r, "%s: cannot read the kernel's BTF type information", path);
	*ret_btf = btf;
	return 0;
}

/* Tracepoints whose arguments changed, with a program for each known variant. n_arguments counts the
 * leading void *. The other tracepoints have one program of the same name. */
static const struct variant {
	const char *hook, *program;
	unsigned int n_arguments;
	const char *type; /* name of the structure that the first argument points to; NULL: any */
} variants[] = {
    {"sched_switch", "sched_switch", 5, NULL},
    {"sched_switch", "sched_switch_old", 4, NULL}, /* before 5.18 */
    {"mm_filemap_add_to_page_cache", "mm_filemap_add_to_page_cache", 2, "folio"},
    {"mm_filemap_add_to_page_cache", "mm_filemap_add_to_page_cache_old", 2, "page"}, /* before 5.17 */
    {"io_uring_complete", "io_uring_complete", 4, NULL},
    {"io_uring_complete", "io_uring_complete_old", 8, NULL}, /* 5.19 to 6.13 */
};

#define N_VARIANTS (sizeof(variants) / sizeof(variants[0]))

static const struct btf_type *target(const struct btf *btf, uint32_t id)
{
	const struct btf_type *type = btf__type_by_id(btf, id);

	while (type && (btf_is_typedef(type) || btf_is_ptr(type) || btf_is_mod(type)))
		type = btf__type_by_id(btf, type->type);
	return type;
}

static bool fits(const struct btf *btf, const struct btf_type *function, const struct variant *variant)
{
	const struct btf_type *type;

	if (btf_vlen(function) != variant->n_arguments)
		return false;
	if (!variant->type)
		return true;
	type = target(btf, btf_params(function)[1].type);
	return type && !strcmp(btf__name_by_offset(btf, type->name_off), variant->type);
}

/* Returns the name of the program for a hook, or NULL if the kernel has no known variant of it. */
static const char *program_for(const struct btf *btf, const char *hook)
{
	const struct btf_type *function;
	bool varies = false;
	char name[64];
	int id;

	snprintf(name, sizeof(name), "btf_trace_%s", hook);
	id = btf__find_by_name_kind(btf, name, BTF_KIND_TYPEDEF);
	function = id > 0 ? target(btf, (uint32_t)id) : NULL;
	if (!function || !btf_is_func_proto(function))
		return NULL;
	for (size_t i = 0; i < N_VARIANTS; i++) {
		if (strcmp(variants[i].hook, hook))
			continue;
		if (fits(btf, function, &variants[i]))
			return variants[i].program;
		varies = true;
	}
	return varies ? NULL : hook;
}

int collector_hooks(const char *btf_path, struct collector_hook hooks[COLLECTOR_HOOKS_MAX], size_t *ret_n,
		    struct error *err)
{
	_cleanup_(btf_freep) struct btf *btf = NULL;
	int r = hooks_btf(btf_path ? btf_path : DEFAULT_BTF, &btf, err);

	if (r < 0)
		return r;
	memcpy(hooks, known_hooks, sizeof(known_hooks));
	for (size_t i = 0; i < N_HOOKS; i++)
		hooks[i].present = program_for(btf, hooks[i].name) != NULL;
	*ret_n = N_HOOKS;
	return 0;
}

/* Returns the loaded program of a hook, possibly one of several variants; NULL: none is loaded. */
static struct bpf_program *program_of(struct bpf_object *object, const char *hook)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object, hook);

	for (size_t i = 0; i < N_VARIANTS && !bpf_program__autoload(program); i++)
		if (!strcmp(variants[i].hook, hook))
			program = bpf_object__find_program_by_name(object, variants[i].program);
	return bpf_program__autoload(program) ? program : NULL;
}

/* Returns true if the type has an enumerator of this name. */
static bool has_enumerator(const struct btf *btf, const char *type_name, const char *name)
{
	int id = btf__find_by_name_kind(btf, type_name, BTF_KIND_ENUM);
	const struct btf_type *type = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;

	for (uint32_t i = 0; type && i < btf_vlen(type); i++)
		if (!strcmp(btf__name_by_offset(btf, btf_enum(type)[i].name_off), name))
			return true;
	return false;
}

bool hooks_can_probe(const struct btf *btf)
{
	return has_enumerator(btf, "bpf_attach_type", "BPF_TRACE_UPROBE_MULTI") && uprobe_has_multi();
}

int hooks_select(struct bpf_object *object, const struct btf *btf, bool profile, struct error *err)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, object)
	{
		if (strncmp(bpf_program__section_name(program), "tp_btf/", 7))
			bpf_program__set_autoload(program, true);
	}
	for (size_t i = 0; i < N_HOOKS; i++) {
		const struct collector_hook *hook = &known_hooks[i];
		const char *name = program_for(btf, hook->name);

		if (!name && hook->required)
			return error_set(err, -EOPNOTSUPP,
					 "this kernel has no tracepoint %s. Lost without it: %s", hook->name,
					 hook->lost_without);
		if (name)
			bpf_program__set_autoload(bpf_object__find_program_by_name(object, name), true);
	}
	if (hooks_can_probe(btf))
		uprobe_use_multi(object);
	bpf_program__set_autoload(bpf_object__find_program_by_name(object, "sample_cpu"), profile);
	return 0;
}

const struct collector_hook *hooks_of_program(const char *program)
{
	const char *name = program;

	for (size_t i = 0; i < N_VARIANTS; i++)
		if (!strcmp(variants[i].program, program))
			name = variants[i].hook;
	for (size_t i = 0; i < N_HOOKS; i++)
		if (!strcmp(known_hooks[i].name, name))
			return &known_hooks[i];
	for (size_t i = 0; i < N_PROGRAMS; i++)
		if (!strcmp(known_programs[i].name, name))
			return &known_programs[i];
	return NULL;
}

int hooks_attach(struct collector *collector, struct bpf_object *object, struct error *err)
{
	for (size_t i = 0; i < N_HOOKS; i++) {
		struct bpf_program *program = program_of(object, known_hooks[i].name);
		struct bpf_link *link;

		if (!program)
			continue;
		link = bpf_program__attach(program);
		if (!link)
			return error_errno(err, -errno, "cannot attach to tracepoint %s",
					   known_hooks[i].name);
		collector->links[collector->n_links++] = link;
	}
	return 0;
}
