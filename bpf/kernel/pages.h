/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * The page cache: counts pages that the job looks up, and pages that are read from storage for these
 * look-ups. The pages that a read looks up follow from its result. There is no hook for them, because there
 * may be 100,000 small reads per second. Pages added by a write are no misses. All of this happens in the
 * reading thread, including read-ahead; with io_uring that is a thread of the job too.
 */

#include "groups.h"
#include "usage.h"

#define PAGE_SHIFT 12
#define S_IFREG    8

/* Returns the minimum number of pages that hold this many bytes at an unknown position. */
static __always_inline uint32_t pages_of(uint64_t bytes)
{
	return (bytes + (1 << PAGE_SHIFT) - 1) >> PAGE_SHIFT;
}

/* Returns true during a call that writes to the file. */
static __always_inline bool in_write(const struct member *member, const struct inode *inode)
{
	if (!member->call_ns)
		return false;
	if (member->nr == NR_sendfile)
		return member->inode != inode->i_ino; /* not the file that the call reads */
	return member->nr == NR_write || member->nr == NR_pwrite64 || member->nr == NR_writev ||
	       member->nr == NR_pwritev || member->nr == NR_pwritev2;
}

/* Before Linux 6.1, not the folio (the first page) but the second page held the number of pages. */
static __always_inline uint32_t pages_from(void *first)
{
	struct page *second = first + bpf_core_type_size(struct page);

	return BPF_CORE_READ(second, compound_nr);
}

static __always_inline bool is_head(unsigned long flags)
{
	return flags & 1UL << bpf_core_enum_value(enum pageflags, PG_head);
}

static __always_inline uint32_t folio_pages(struct folio *folio)
{
	struct folio___6_5 *older = (void *)folio;
	unsigned long flags;

	if (bpf_core_type_exists(memdesc_flags_t))
		flags = ((struct folio___6_18 *)folio)->flags.f;
	else
		flags = folio->flags;
	if (!is_head(flags))
		return 1;
	if (bpf_core_field_exists(folio->_nr_pages))
		return folio->_nr_pages;
	if (bpf_core_field_exists(older->_folio_nr_pages))
		return BPF_CORE_READ(older, _folio_nr_pages);
	return pages_from(folio);
}

static __always_inline bool call_reads(long nr)
{
	return nr == NR_read || nr == NR_pread64 || nr == NR_readv || nr == NR_preadv || nr == NR_preadv2;
}

/* Returns true during a read of a file by its descriptor. On a stacked file system, the page cache is used
 * for another file than the descriptor's, and the job knows only the latter. */
static __always_inline bool in_read(const struct member *member)
{
	return member->call_ns && member->file_type == EVENT_FILE_REG && call_reads(member->nr);
}

static __always_inline int on_added(struct task_struct *task, struct member *member, struct inode *inode,
				    uint32_t n)
{
	struct file_use *use;

	use = in_read(member) ? use_of_call(task, member)
			      : use_of(member, inode, inode->i_ino, inode->i_sb->s_dev);
	use->missed_pages += n;
	if (member->fault.start_ns)
		member->fault.added_pages += n;
	return 0;
}

SEC("?tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(mm_filemap_add_to_page_cache, struct folio *folio)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct member *member = member_of(task);
	struct inode *inode;

	if (!member)
		return 0;
	inode = typed(folio, folio)->mapping->host;
	if (in_write(member, inode) || inode->i_mode >> 12 != S_IFREG)
		return 0;
	return on_added(task, member, inode, folio_pages(folio));
}

/* Before Linux 5.17. */
SEC("?tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(mm_filemap_add_to_page_cache_old, struct page *page)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct member *member = member_of(task);
	struct inode *inode;

	if (!member)
		return 0;
	inode = page->mapping->host;
	if (in_write(member, inode) || inode->i_mode >> 12 != S_IFREG)
		return 0;
	return on_added(task, member, inode, is_head(page->flags) ? pages_from(page) : 1);
}
