/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * The kernel's types as far as the recorder reads them. preserve_access_index makes libbpf relocate every
 * field to where the running kernel has it, so names and types matter here, and order does not. They are
 * written by hand instead of taken from vmlinux.h: the build machine needs no BTF, and a review shows all we
 * depend on.
 */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_entity {
	uint64_t exec_start;
	uint64_t sum_exec_runtime;
};

struct sched_info {
	unsigned long long run_delay;
};

struct super_block {
	uint32_t s_dev;
	unsigned long s_magic;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct inode {
	uint16_t i_mode;
	uint64_t i_ino;
	int64_t i_size;
	struct super_block *i_sb;
	struct hlist_head i_dentry;
};

struct address_space {
	struct inode *host;
};

/* Before Linux 5.17, the page cache consisted of pages, not folios. */
struct page {
	unsigned long flags;
	struct address_space *mapping;
	uint32_t compound_nr; /* in the second of several pages */
};

/* Linux 6.18 made flags a structure. libbpf ignores the part of a name from ___ on. */
struct folio {
	struct address_space *mapping;
	unsigned long flags;
	uint32_t _nr_pages;
};

struct folio___6_5 {
	uint32_t _folio_nr_pages;
};

typedef struct {
	unsigned long f;
} memdesc_flags_t;

struct folio___6_18 {
	memdesc_flags_t flags;
};

enum pageflags {
	PG_head = 6,
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	union {
		struct hlist_node d_alias;
	} d_u;
};

/* Linux 7.1 removed the union's name. */
struct dentry___7_1 {
	struct hlist_node d_alias;
};

struct io_uring_cqe {
	int32_t res;
};

struct io_ring_ctx;

struct path {
	struct dentry *dentry;
};

struct sock_common {
	uint16_t skc_family;
};

struct sock {
	struct sock_common __sk_common;
};

struct socket {
	struct sock *sk;
};

struct file {
	uint32_t f_mode;
	uint32_t f_flags;
	void *private_data; /* for a socket: struct socket */
	struct inode *f_inode;
	struct path f_path;
};

struct io_kiocb {
	struct file *file;
	uint8_t opcode;
};

struct fdtable {
	uint32_t max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct upid {
	int32_t nr;
};

struct pid {
	uint32_t level;
	struct upid numbers[1];
};

/* x86-64. */
struct thread_struct {
	unsigned long fsbase; /* the C library's thread pointer, which pthread_self() returns */
};

struct mm_struct {
	struct file *exe_file; /* the program */
};

struct task_struct {
	uint32_t __state;
	uint32_t on_cpu; /* a byte in Linux 7.3; libbpf adapts the load, as the field is unsigned */
	int32_t pid;
	int32_t tgid;
	uint32_t flags;
	unsigned in_iowait : 1;
	struct sched_entity se;
	struct sched_info sched_info;
	unsigned long nvcsw;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	uint64_t start_boottime;
	char comm[16];
	struct mm_struct *mm;
	struct files_struct *files;
	struct thread_struct thread;
};

/* x86-64. */
struct pt_regs {
	unsigned long r15;
	unsigned long r14;
	unsigned long r13;
	unsigned long r12;
	unsigned long bp;
	unsigned long bx;
	unsigned long r8;
	unsigned long r9;
	unsigned long r10;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long sp;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop
