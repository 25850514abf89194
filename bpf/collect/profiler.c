/* SPDX-License-Identifier: Apache-2.0 */
#include "profiler.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf/symbols/elf_symbols.h"
#include "lib/hash.h"
#include "lib/log.h"
#include "bpf/symbols/names.h"
#include "bpf/symbols/processes.h"

#define CACHE_SLOTS (1U << 15)
#define NO_CALL     0xffff
#define JIT_NAME    "[generated code]"

/* A cached frame of an address. A newer frame replaces an older one in its slot. */
struct cached {
	uint64_t address, frame;
	uint32_t serial; /* serial number of the process */
};

struct profiler {
	struct bpf_program *program;
	int pythons_fd; /* the map of Python layouts; -1: none */
	struct bpf_link **clocks;
	size_t n_clocks;
	struct names *names;
	struct processes processes;
	struct cached cache[CACHE_SLOTS];
};

void profiler_stop(struct profiler *profiler)
{
	for (size_t i = 0; i < profiler->n_clocks; i++)
		bpf_link__destroy(profiler->clocks[i]);
	free(profiler->clocks);
	profiler->clocks = NULL;
	profiler->n_clocks = 0;
}

void profiler_free(struct profiler *profiler)
{
	if (!profiler)
		return;
	profiler_stop(profiler);
	processes_free(&profiler->processes);
	names_free(profiler->names);
	free(profiler);
}

/* Opens a software clock, because it uses none of the CPU's hardware counters. */
static int open_clock(int cpu, uint32_t rate_hz)
{
	struct perf_event_attr attributes = {
	    .size = sizeof(attributes),
	    .type = PERF_TYPE_SOFTWARE,
	    .config = PERF_COUNT_SW_CPU_CLOCK,
	    .sample_freq = rate_hz,
	    .freq = 1,
	};
	long fd = syscall(SYS_perf_event_open, &attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

static int start_clock(struct profiler *profiler, int cpu, uint32_t rate_hz)
{
	int fd = open_clock(cpu, rate_hz), r;
	struct bpf_link *link;

	if (fd < 0)
		return fd;
	link = bpf_program__attach_perf_event(profiler->program, fd);
	if (!link) {
		r = -errno;
		close(fd);
		return r;
	}
	profiler->clocks[profiler->n_clocks++] = link;
	return 0;
}

static int start_clocks(struct profiler *profiler, uint32_t rate_hz)
{
	int n = libbpf_num_possible_cpus();

	if (n < 0)
		return n;
	profiler->clocks = calloc((size_t)n, sizeof(*profiler->clocks));
	if (!profiler->clocks)
		return -ENOMEM;
	for (int cpu = 0; cpu < n; cpu++) {
		int r = start_clock(profiler, cpu, rate_hz);

		if (r < 0 && r != -ENODEV) /* ENODEV: the CPU is offline */
			return r;
	}
	return profiler->n_clocks ? 0 : -ENODEV;
}

int profiler_open(struct bpf_object *object, uint32_t rate_hz, struct profiler **ret_profiler)
{
	struct profiler *profiler = calloc(1, sizeof(*profiler));
	int r;

	if (!profiler)
		return -ENOMEM;
	profiler->program = bpf_object__find_program_by_name(object, "sample_cpu");
	profiler->pythons_fd = bpf_object__find_map_fd_by_name(object, "pythons");
	profiler->names = names_new();
	r = profiler->names ? processes_init(&profiler->processes, "/proc") : -ENOMEM;
	if (r == 0)
		r = start_clocks(profiler, rate_hz);
	if (r < 0)
		profiler_free(profiler);
	else
		*ret_profiler = profiler;
	return r;
}

static void python_forget(struct profiler *profiler, uint32_t tgid)
{
	if (profiler->pythons_fd >= 0)
		bpf_map_delete_elem(profiler->pythons_fd, &tgid);
}

void profiler_event(struct profiler *profiler, const struct event *event)
{
	if (event->type == EVENT_FORK && event->fork.child_tgid != event->tgid) {
		processes_renew(&profiler->processes, event->fork.child_tgid, event->tgid);
		python_forget(profiler, event->fork.child_tgid);
	}
	if (event->type == EVENT_EXEC) {
		processes_renew(&profiler->processes, event->tgid, 0);
		python_forget(profiler, event->tgid);
	}
	if (event->type == EVENT_EXIT && event->tid == event->tgid)
		python_forget(profiler, event->tgid);
}

static struct cached *cache_slot(struct profiler *profiler, const struct process *process, uint64_t address)
{
	uint64_t mixed = hash_number(address ^ (uint64_t)process->serial << 40);

	return &profiler->cache[mixed >> 49];
}

static bool is_interpreter(const struct code_mapping *mapping)
{
	const char *name = mapping->file ? mapping->file->name : "";

	return !strncmp(name, "python", 6) || !strncmp(name, "libpython", 9);
}

/* Returns the key of the frame at a code address, or 0 if there is no code or no space for names. */
static uint64_t native_frame(struct profiler *profiler, struct process *process, uint64_t address,
			     bool executed, uint64_t now_ns, const struct collector_sink *sink)
{
	struct cached *cached = cache_slot(profiler, process, address);
	const struct code_mapping *mapping;
	struct elf_symbols *symbols;
	char function[256] = "";
	uint64_t frame;

	if (cached->serial == process->serial && cached->address == address)
		return cached->frame;
	/* Reads the mappings again only for an executed address, because any other address may not be a
	 * return address. */
	mapping = executed ? process_code(&profiler->processes, process, address, now_ns)
			   : address_space_find(&process->space, address);
	if (!mapping)
		return 0;
	symbols = code_file_open(&profiler->processes.files, profiler->processes.root, (pid_t)process->tgid,
				 mapping);
	if (symbols)
		elf_symbols_function(symbols, address - mapping->begin + mapping->offset_bytes, function,
				     sizeof(function));
	frame = names_frame(profiler->names, is_interpreter(mapping) ? FRAME_INTERPRETER : FRAME_NATIVE,
			    mapping->file ? mapping->file->name : JIT_NAME, function, sink);
	*cached = (struct cached){address, frame, process->serial};
	return frame;
}

/* Returns the key of the native stack. All addresses except the first are return addresses, which lie after
 * the call. Without frame pointers the kernel's walk fails at some point, which shows as an address without
 * code. */
static uint64_t native_stack(struct profiler *profiler, struct process *process,
			     const struct stack_sample *sample, const struct collector_sink *sink)
{
	uint64_t frames[STACK_NATIVE_MAX];
	size_t n = 0;

	for (size_t i = 0; i < sample->n_native; i++) {
		uint64_t frame =
		    native_frame(profiler, process, sample->native[i] - (i > 0), i == 0, sample->at_ns, sink);

		if (!frame)
			break;
		frames[n++] = frame;
	}
	return names_stack(profiler->names, frames, n, sink);
}

static uint64_t python_frame(struct profiler *profiler, struct process *process, uint64_t code,
			     const struct collector_sink *sink)
{
	struct cached *cached = cache_slot(profiler, process, code);
	struct python_code texts;
	pid_t pid = (pid_t)process->tgid;
	const struct python_memory memory = python_memory_of(&pid);
	uint64_t frame;
	int r;

	if (cached->serial == process->serial && cached->address == code)
		return cached->frame;
	r = python_code_read(&process->python, &memory, code, &texts);
	if (r == -ESRCH && process->parent) {
		pid = (pid_t)process->parent;
		r = python_code_read(&process->python, &memory, code, &texts);
	}
	if (r < 0)
		return 0;
	frame = names_frame(profiler->names, texts.generator ? FRAME_GENERATOR : FRAME_PYTHON,
			    python_code_file(&texts), texts.function, sink);
	*cached = (struct cached){code, frame, process->serial};
	return frame;
}

static uint64_t python_stack(struct profiler *profiler, struct process *process,
			     const struct stack_sample *sample, const struct collector_sink *sink)
{
	uint64_t frames[STACK_PYTHON_MAX];
	size_t n = 0;

	/* The kernel side may have walked with the layout of the parent. */
	if (!process->has_python)
		return 0;
	for (size_t i = 0; i < sample->n_python; i++) {
		uint64_t code = sample->python[i];
		uint64_t frame = code ? python_frame(profiler, process, code, sink) : 0;

		if (frame)
			frames[n++] = frame;
	}
	return names_stack(profiler->names, frames, n, sink);
}

static void python_publish(struct profiler *profiler, const struct process *process)
{
	if (profiler->pythons_fd >= 0 &&
	    bpf_map_update_elem(profiler->pythons_fd, &process->tgid, &process->python.layout, BPF_ANY))
		log_debug("cannot read the Python frames of process %u: %s", process->tgid, strerror(errno));
}

bool profiler_sample(struct profiler *profiler, const struct stack_sample *sample,
		     const struct collector_sink *sink, struct event *ret_event)
{
	struct process *process = processes_get(&profiler->processes, sample->tgid);
	bool had_python;

	if (!process || sample->n_native > STACK_NATIVE_MAX || sample->n_python > STACK_PYTHON_MAX)
		return false;
	had_python = process->has_python;
	process->sample_ns = sample->at_ns;
	*ret_event = (struct event){
	    .start_ns = sample->at_ns,
	    .end_ns = sample->at_ns,
	    .tid = sample->tid,
	    .tgid = sample->tgid,
	    .type = EVENT_STACK,
	    .flags = sample->syscall_nr == NO_CALL ? 0 : EVENT_FLAG_IN_SYSCALL,
	    .cpu = sample->cpu,
	    .stack = {.syscall_nr = sample->syscall_nr, .in_kernel = sample->flags & STACK_IN_KERNEL},
	};
	ret_event->stack.native = native_stack(profiler, process, sample, sink);
	ret_event->stack.python = python_stack(profiler, process, sample, sink);
	if (process->has_python && !had_python)
		python_publish(profiler, process);
	return true;
}
