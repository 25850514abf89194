/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * The kernel side of bpf/index_watch.h, separate from the recorder's programs. These programs run even while
 * no job is measured, so frequent events must cost next to nothing. They check the first bytes of reads and
 * writes, and only the number of all other system calls except openat. While no job is known or suspected,
 * they watch only forks.
 */

#include <stdbool.h>

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "bpf/index_watch.h"
#include "core_types.h"

#define FMODE_READ     0x1
#define FMODE_WRITE    0x2
#define S_IFIFO        1
#define S_IFREG        8
#define NS_PER_S       1000000000ULL
#define PICKLE_MIN     16
#define PICKLE_PROTO   0x80
#define PICKLE_FRAME   0x95
#define FRAME_AT       2
#define FIRST_VALUE_AT 11

#define AT_FDCWD    (-100)
#define CALL_READ   0 /* x86-64 */
#define CALL_WRITE  1
#define CALL_OPENAT 257

struct known_pipe {
	uint64_t found_ns; /* time of the last INDEX_FOUND record */
	uint32_t trainer;
	uint32_t inode;
};

struct known_worker {
	uint32_t trainer;
	uint32_t pipe;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, uint64_t); /* address of the pipe's kernel object */
	__type(value, struct known_pipe);
} pipes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, uint32_t); /* tgid */
	__type(value, struct known_worker);
} workers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} ring SEC(".maps");

struct scratch {
	struct index_record record;
	char bytes[INDEX_MESSAGE_BYTES];
};

/* One entry for each program; a program never runs twice at the same time on one CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3);
	__type(key, uint32_t);
	__type(value, struct scratch);
} scratches SEC(".maps");

struct index_trainer trainers[INDEX_TRAINERS_MAX]; /* tgid is set by user space */
uint64_t n_lost;
struct index_fork forks[INDEX_FORKS];
uint64_t n_forks;

static __always_inline struct index_trainer *trainer_of(uint32_t tgid)
{
	for (int i = 0; i < INDEX_TRAINERS_MAX; i++)
		if (trainers[i].tgid == tgid)
			return &trainers[i];
	return NULL;
}

/* Returns false if the trainer has reached its limit for this second. */
static __always_inline bool trainer_may(struct index_trainer *t, uint64_t now_ns, uint32_t bytes)
{
	if (now_ns - t->window_ns > NS_PER_S) {
		t->window_ns = now_ns;
		t->n_bytes = 0;
	}
	if (__sync_fetch_and_add(&t->n_bytes, sizeof(struct index_record) + bytes) < INDEX_BYTES_MAX)
		return true;
	__sync_fetch_and_add(&t->n_left_out, 1);
	return false;
}

static __always_inline struct scratch *scratch_get(uint32_t which, uint32_t type, uint64_t now_ns)
{
	struct scratch *s = bpf_map_lookup_elem(&scratches, &which);
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t ids = bpf_get_current_uid_gid();

	if (!s)
		return NULL;
	s->record.at_ns = now_ns;
	s->record.exec_ns = task->se.sum_exec_runtime;
	s->record.queue_ns = task->sched_info.run_delay;
	s->record.start_ns = task->se.exec_start;
	s->record.n_sleeps = task->nvcsw;
	s->record.cpu = bpf_get_smp_processor_id();
	s->record.uid = (uint32_t)ids;
	s->record.gid = ids >> 32;
	s->record.type = type;
	s->record.length = 0;
	return s;
}

static __always_inline void submit(struct scratch *s, uint32_t bytes, uint64_t flags)
{
	if (bytes > INDEX_MESSAGE_BYTES)
		return;
	s->record.bytes = bytes;
	if (bpf_ringbuf_output(&ring, s, sizeof(s->record) + bytes, flags))
		__sync_fetch_and_add(&n_lost, 1);
}

/* Returns true if the bytes look like Python's pickle of a batch number and its list of indices. */
static __always_inline bool head_fits(const uint8_t *head)
{
	const uint8_t *value = head + FIRST_VALUE_AT;

	if (head[0] != PICKLE_PROTO || head[FRAME_AT] != PICKLE_FRAME)
		return false;
	return (value[0] == 'K' && value[2] == ']') || (value[0] == 'M' && value[3] == ']') ||
	       (value[0] == 'J' && value[5] == ']');
}

/* Like head_fits(), for user memory. *ret_skip: bytes of the length prefix before the pickle. */
static __always_inline bool looks_like_indices(const char *from, uint32_t *ret_skip)
{
	uint8_t head[24];

	if (bpf_probe_read_user(head, sizeof(head), from))
		return false;
	*ret_skip = head[0] == PICKLE_PROTO ? 0 : 4;
	return *ret_skip ? head_fits(head + 4) : head_fits(head);
}

static __always_inline void found(struct known_pipe *pipe, uint64_t now_ns)
{
	struct scratch *s;

	if (now_ns - pipe->found_ns < NS_PER_S)
		return;
	pipe->found_ns = now_ns;
	s = scratch_get(0, INDEX_FOUND, now_ns);
	if (!s)
		return;
	s->record.trainer = pipe->trainer;
	s->record.pipe = pipe->inode;
	submit(s, 0, BPF_RB_FORCE_WAKEUP);
}

/* Returns the open file behind a descriptor of the current task, or NULL. The result is for probe reads
 * only. */
static __always_inline struct file *file_of(int32_t fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct files_struct *files = task->files;
	struct file *file = NULL;
	struct fdtable *table;

	if (fd < 0 || !files)
		return NULL;
	table = files->fdt;
	if (!table || (uint32_t)fd >= table->max_fds)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd);
	return file;
}

static __always_inline uint32_t file_type(struct file *file)
{
	return BPF_CORE_READ(file, f_inode, i_mode) >> 12;
}

/* Returns the address of the pipe behind a descriptor, or 0. */
static __always_inline uint64_t pipe_key(struct file *file)
{
	return file && file_type(file) == S_IFIFO ? (uint64_t)BPF_CORE_READ(file, private_data) : 0;
}

static __always_inline struct known_pipe *pipe_remember(int32_t fd, uint32_t tgid)
{
	struct file *file = file_of(fd);
	uint64_t key = pipe_key(file);
	struct known_pipe fresh = {.trainer = tgid};
	struct known_pipe *pipe;

	if (!key)
		return NULL;
	fresh.inode = BPF_CORE_READ(file, f_inode, i_ino);
	pipe = bpf_map_lookup_elem(&pipes, &key);
	if (pipe && pipe->trainer == tgid && pipe->inode == fresh.inode)
		return pipe;
	bpf_map_update_elem(&pipes, &key, &fresh, BPF_ANY);
	return bpf_map_lookup_elem(&pipes, &key);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(index_enter, struct pt_regs *regs, long nr)
{
	unsigned long count;
	const char *start;
	struct index_trainer *trainer;
	struct known_pipe *pipe;
	struct scratch *s;
	uint32_t skip = 0, length;
	uint64_t now_ns;

	if (nr != CALL_WRITE)
		return 0;
	count = regs->dx;
	start = (const char *)regs->si;
	if (count < PICKLE_MIN + 4 || count > INDEX_MESSAGE_BYTES + 4 || !looks_like_indices(start, &skip))
		return 0;
	pipe = pipe_remember(regs->di, bpf_get_current_pid_tgid() >> 32);
	if (!pipe)
		return 0;
	now_ns = bpf_ktime_get_ns();
	trainer = trainer_of(pipe->trainer);
	if (!trainer) {
		found(pipe, now_ns);
		return 0;
	}
	length = count - skip;
	s = trainer_may(trainer, now_ns, length) ? scratch_get(0, INDEX_WRITE, now_ns) : NULL;
	if (!s || length > INDEX_MESSAGE_BYTES || bpf_probe_read_user(s->bytes, length, start + skip))
		return 0;
	s->record.trainer = pipe->trainer;
	s->record.pipe = pipe->inode;
	s->record.length = length;
	submit(s, length, BPF_RB_FORCE_WAKEUP);
	return 0;
}

static __always_inline int read_ends(struct pt_regs *regs, long result)
{
	const char *start = (const char *)regs->si;
	struct known_pipe *pipe;
	struct known_worker worker;
	struct index_trainer *trainer;
	struct scratch *s;
	uint32_t tgid, length, skip = 0;
	uint64_t key, now_ns;

	if (result < PICKLE_MIN + 4 || result > INDEX_MESSAGE_BYTES || !looks_like_indices(start, &skip) ||
	    skip)
		return 0;
	key = pipe_key(file_of(regs->di));
	pipe = key ? bpf_map_lookup_elem(&pipes, &key) : NULL;
	if (!pipe)
		return 0;
	tgid = bpf_get_current_pid_tgid() >> 32;
	trainer = trainer_of(pipe->trainer);
	if (!trainer || tgid == pipe->trainer)
		return 0;
	worker.trainer = pipe->trainer;
	worker.pipe = pipe->inode;
	bpf_map_update_elem(&workers, &tgid, &worker, BPF_ANY);
	now_ns = bpf_ktime_get_ns();
	s = trainer_may(trainer, now_ns, INDEX_HEAD_BYTES) ? scratch_get(1, INDEX_READ, now_ns) : NULL;
	length = result < INDEX_HEAD_BYTES ? result : INDEX_HEAD_BYTES;
	if (!s || length > INDEX_HEAD_BYTES || bpf_probe_read_user(s->bytes, length, start))
		return 0;
	s->record.trainer = worker.trainer;
	s->record.pipe = worker.pipe;
	s->record.length = result;
	submit(s, length, BPF_RB_FORCE_WAKEUP);
	return 0;
}

static __always_inline int open_ends(struct pt_regs *regs, long result)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32;
	struct known_worker *worker = bpf_map_lookup_elem(&workers, &tgid);
	struct index_trainer *trainer;
	struct file *file;
	struct scratch *s;
	uint64_t now_ns;
	long length;

	if (!worker || result < 0)
		return 0;
	trainer = trainer_of(worker->trainer);
	file = trainer ? file_of(result) : NULL;
	if (!file || file_type(file) != S_IFREG ||
	    (BPF_CORE_READ(file, f_mode) & (FMODE_READ | FMODE_WRITE)) != FMODE_READ)
		return 0;
	now_ns = bpf_ktime_get_ns();
	s = trainer_may(trainer, now_ns, 64) ? scratch_get(2, INDEX_OPEN, now_ns) : NULL;
	if (!s)
		return 0;
	length = bpf_probe_read_user_str(s->bytes, INDEX_PATH_BYTES, (const char *)regs->si);
	if (length <= 1 || length >= INDEX_PATH_BYTES)
		return 0;
	if (s->bytes[0] != '/' && (int32_t)regs->di != AT_FDCWD)
		return 0;
	s->record.trainer = worker->trainer;
	s->record.pipe = worker->pipe;
	submit(s, length, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(index_exit, struct pt_regs *regs, long result)
{
	if (regs->orig_ax == CALL_READ)
		return read_ends(regs, result);
	return regs->orig_ax == CALL_OPENAT ? open_ends(regs, result) : 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(index_fork, struct task_struct *parent, struct task_struct *child)
{
	struct index_fork *f;

	if (child->pid != child->tgid)
		return 0;
	f = &forks[__sync_fetch_and_add(&n_forks, 1) % INDEX_FORKS];
	f->parent = parent->tgid;
	f->child = child->tgid;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
