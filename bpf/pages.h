/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * The page cache: what the job looks up in it, and what is brought in for that.
 *
 * A look-up by a read names the pages from the position to the end of the call's buffer, once for each batch
 * of pages: only the first counts. What a write adds is no miss. Everything happens in the reading thread,
 * read-ahead included; with io_uring that is a thread of the job too.
 */

#include "groups.h"
#include "usage.h"

#define PAGE_SHIFT 12
#define S_IFREG    8

static __always_inline bool in_write(const struct member *member)
{
	if (!member->call_ns)
		return false;
	return member->nr == 1 || member->nr == 18 || member->nr == 20 || member->nr == 296 ||
	       member->nr == 328;
}

SEC("?tp_btf/mm_filemap_get_pages")
int BPF_PROG(mm_filemap_get_pages, struct address_space *mapping, unsigned long first, unsigned long last)
{
	struct member *member = member_of(bpf_get_current_task_btf());
	struct file_use *use;
	struct inode *inode;
	uint64_t end;

	if (!member)
		return 0;
	inode = mapping->host;
	end = inode->i_size > 0 ? (uint64_t)(inode->i_size - 1) >> PAGE_SHIFT : 0;
	if (last > end)
		last = end;
	use = &member->use;
	if (!use->since_ns || use->inode_address != (uint64_t)inode || use->inode != inode->i_ino) {
		use = use_of(member, inode, inode->i_ino, inode->i_sb->s_dev);
		use->inode_address = (uint64_t)inode;
	}
	if (use->call_ns != member->call_ns)
		use->call_pages = 0;
	if (first <= last && !(last == use->last_page && first > use->first_page)) {
		use->accessed_pages += last - first + 1;
		use->call_pages += last - first + 1;
	}
	use->first_page = first;
	use->last_page = last;
	use->call_ns = member->call_ns;
	return 0;
}

static __always_inline uint32_t folio_pages(struct folio *folio)
{
	unsigned long flags;

	if (bpf_core_type_exists(memdesc_flags_t))
		flags = ((struct folio___6_18 *)folio)->flags.f;
	else
		flags = folio->flags;
	if (!(flags & 1UL << bpf_core_enum_value(enum pageflags, PG_head)))
		return 1;
	if (bpf_core_field_exists(folio->_nr_pages))
		return folio->_nr_pages;
	return BPF_CORE_READ((struct folio___6_5 *)folio, _folio_nr_pages);
}

SEC("?tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(mm_filemap_add_to_page_cache, struct folio *folio)
{
	struct member *member = member_of(bpf_get_current_task_btf());
	struct inode *inode;
	uint32_t n;

	if (!member || in_write(member))
		return 0;
	inode = folio->mapping->host;
	if (inode->i_mode >> 12 != S_IFREG)
		return 0;
	n = folio_pages(folio);
	use_of(member, inode, inode->i_ino, inode->i_sb->s_dev)->missed_pages += n;
	if (member->fault.start_ns)
		member->fault.added_pages += n;
	return 0;
}
