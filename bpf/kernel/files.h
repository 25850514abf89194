/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/* Describes the file behind a descriptor: its identity, type, open flags, and the kind of its file system. */

#include "recorder.h"

#define FMODE_WRITE 0x2
#define O_DIRECT    040000

#define AF_UNIX  1
#define AF_INET  2
#define AF_INET6 10

/* Magic numbers come from linux/magic.h, or from the file system's own sources. */
static __always_inline uint8_t source_of_magic(uint32_t magic)
{
	switch (magic) {
	case 0x01021994: /* tmpfs */
	case 0x858458f6: /* ramfs */
	case 0x958458f6: /* hugetlbfs */
	case 0x9fa0:     /* proc */
	case 0x62656572: /* sysfs */
	case 0x09041934: /* anonymous inodes */
	case 0x19800202: /* message queues */ return SOURCE_MEMORY;
	case 0x65735546: return SOURCE_FUSE;
	case 0x6969:     /* NFS */
	case 0xff534d42: /* CIFS */
	case 0xfe534d42: /* SMB2 */
	case 0x517b:     /* SMB */
	case 0x01021997: /* 9p */
	case 0x00c36400: /* Ceph */
	case 0x5346414f: /* AFS */
	case 0x0bd00bd0: /* Lustre */
	case 0x47504653: /* GPFS */
	case 0x19830326: /* BeeGFS */
	case 0x20030528: /* OrangeFS */ return SOURCE_NETWORK;
	}
	return SOURCE_STORAGE;
}

static __always_inline uint8_t source_of_socket(struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);
	uint16_t family = BPF_CORE_READ(socket, sk, __sk_common.skc_family);

	return family == AF_INET || family == AF_INET6 ? SOURCE_NETWORK : SOURCE_LOCAL;
}

static __always_inline void member_no_file(struct member *member)
{
	member->inode = 0;
	member->file_type = EVENT_FILE_NONE;
	member->file_mode = 0;
	member->file_flags = 0;
	member->device = 0;
	member->source = SOURCE_UNKNOWN;
}

static __always_inline void member_source(struct member *member, struct file *file, uint32_t magic)
{
	if (member->file_type == EVENT_FILE_REG || member->file_type == EVENT_FILE_DIR)
		member->source = source_of_magic(magic);
	else if (member->file_type == EVENT_FILE_SOCK)
		member->source = source_of_socket(file);
}

#ifndef RECORDER_WITHOUT_CAST
/* Like file_of_fd() and probe reads, at a third of the cost: a probe read is a call of tens of ns. */
static __always_inline void member_file_fast(struct task_struct *task, struct member *member, int32_t fd)
{
	struct files_struct *files = typed(task, task_struct)->files;
	struct fdtable *table;
	struct inode *inode;
	struct file *file;

	member_no_file(member);
	if (fd < 0 || !files)
		return;
	table = files->fdt;
	if (!table || (uint32_t)fd >= table->max_fds)
		return;
	/* hlist_head represents any pointer, because there is no type for struct file * to cast to. */
	file = (struct file *)typed(table->fd + fd, hlist_head)->first;
	if (!file)
		return;
	inode = typed(file, file)->f_inode;
	member->file_mode = typed(file, file)->f_mode;
	member->file_flags = typed(file, file)->f_flags;
	member->inode = inode->i_ino;
	member->file_type = inode->i_mode >> 12;
	member->device = inode->i_sb->s_dev;
	member_source(member, file, inode->i_sb->s_magic);
}
#endif

static __always_inline void member_file_probe(struct task_struct *task, struct member *member, int32_t fd)
{
	struct file *file = file_of_fd(task, fd);
	struct inode *inode;

	member_no_file(member);
	if (!file)
		return;
	inode = BPF_CORE_READ(file, f_inode);
	member->file_mode = BPF_CORE_READ(file, f_mode);
	member->file_flags = BPF_CORE_READ(file, f_flags);
	member->inode = BPF_CORE_READ(inode, i_ino);
	member->file_type = BPF_CORE_READ(inode, i_mode) >> 12;
	member->device = BPF_CORE_READ(inode, i_sb, s_dev);
	member_source(member, file, BPF_CORE_READ(inode, i_sb, s_magic));
}

static __always_inline void member_file(struct task_struct *task, struct member *member, int32_t fd,
					bool fast)
{
#ifndef RECORDER_WITHOUT_CAST
	if (fast) {
		member_file_fast(task, member, fd);
		return;
	}
#endif
	member_file_probe(task, member, fd);
}
