/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * Sums of the job's reads, kept in the kernel: exact for the whole job; for each file and folder as far as
 * the maps have space (they drop the least recently used). places.h says how often the collector takes out
 * the sums.
 *
 * A thread collects its use of a file and adds it when it uses another file, after USE_MAX_NS at the latest,
 * when it ends, and at the end of the recording.
 *
 * The names of a file and its folders, up to the root of the file system, are taken when the file first turns
 * up, because later it may be closed or gone, and its process too.
 */

#include "bpf/shared/place_shared.h"
#include "recorder.h"

#define USE_MAX_NS   100000000
#define FOLDERS_DEEP 16

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct place_key);
	__type(value, struct read_place);
} places SEC(".maps");

/* Space for one place, which is too large for the stack of a program. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct read_place);
} place_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct job_totals);
} totals SEC(".maps");

static __always_inline struct job_totals *this_totals(void)
{
	uint32_t key = 0;

	return bpf_map_lookup_elem(&totals, &key);
}

/* Returns one of the file's names, or NULL if none is in memory. */
static __always_inline struct dentry *dentry_of(struct inode *inode)
{
	struct hlist_node *alias = BPF_CORE_READ(inode, i_dentry.first);

	if (!alias)
		return NULL;
	if (bpf_core_field_exists(struct dentry, d_u.d_alias))
		return (void *)alias - bpf_core_field_offset(struct dentry, d_u.d_alias);
	return (void *)alias - bpf_core_field_offset(struct dentry___7_1, d_alias);
}

static __always_inline void place_name(struct read_place *place, struct dentry *dentry)
{
	__builtin_memset(place, 0, sizeof(*place));
	bpf_probe_read_kernel_str(place->name, sizeof(place->name), BPF_CORE_READ(dentry, d_name.name));
}

/* Adds the folders above a file, up to the first one that the maps have already. */
static __always_inline void folders_add(struct read_place *scratch, struct place_key *key,
					struct dentry *dentry)
{
	key->folder = 1;
	for (int i = 0; i < FOLDERS_DEEP; i++) {
		struct dentry *parent = BPF_CORE_READ(dentry, d_parent);

		key->inode = BPF_CORE_READ(dentry, d_inode, i_ino);
		if (!key->inode || bpf_map_lookup_elem(&places, key))
			return;
		place_name(scratch, dentry);
		scratch->parent = BPF_CORE_READ(parent, d_inode, i_ino);
		bpf_map_update_elem(&places, key, scratch, BPF_NOEXIST);
		if (!parent || parent == dentry)
			return;
		dentry = parent;
	}
}

static __always_inline void place_add(struct inode *inode, uint64_t number, uint32_t device)
{
	struct place_key key = {.inode = number, .device = device};
	struct dentry *dentry, *parent;
	struct read_place *scratch;
	uint32_t zero = 0;

	if (bpf_map_lookup_elem(&places, &key))
		return;
	dentry = dentry_of(inode);
	scratch = bpf_map_lookup_elem(&place_scratch, &zero);
	if (!dentry || !scratch)
		return;
	parent = BPF_CORE_READ(dentry, d_parent);
	place_name(scratch, dentry);
	scratch->parent = BPF_CORE_READ(parent, d_inode, i_ino);
	bpf_map_update_elem(&places, &key, scratch, BPF_NOEXIST);
	if (parent != dentry)
		folders_add(scratch, &key, parent);
}

static __always_inline void place_sum(struct read_place *place, const struct file_use *use)
{
	__sync_fetch_and_add(&place->accessed_pages, use->accessed_pages);
	__sync_fetch_and_add(&place->missed_pages, use->missed_pages);
	__sync_fetch_and_add(&place->n_reads, use->n_reads);
	__sync_fetch_and_add(&place->used_bytes, use->used_bytes);
	__sync_fetch_and_add(&place->direct_bytes, use->direct_bytes);
}

static __always_inline void sizes_sum(struct file_use *use)
{
	struct job_totals *sums = this_totals();

	if (sums && use->n_of_size && use->size_class < READ_CLASSES)
		__sync_fetch_and_add(&sums->read_sizes[use->size_class], use->n_of_size);
	use->n_of_size = 0;
}

static __always_inline void totals_sum(const struct file_use *use)
{
	struct job_totals *sums = this_totals();

	if (!sums)
		return;
	__sync_fetch_and_add(&sums->accessed_pages, use->accessed_pages);
	__sync_fetch_and_add(&sums->missed_pages, use->missed_pages);
	__sync_fetch_and_add(&sums->n_reads, use->n_reads);
	__sync_fetch_and_add(&sums->used_bytes, use->used_bytes);
	if (use->direct_bytes)
		__sync_fetch_and_add(&sums->direct_bytes, use->direct_bytes);
	if (use->network_bytes)
		__sync_fetch_and_add(&sums->network_bytes, use->network_bytes);
	if (use->n_minor_faults)
		__sync_fetch_and_add(&sums->n_minor_faults, use->n_minor_faults);
	if (use->n_major_faults) {
		__sync_fetch_and_add(&sums->n_major_faults, use->n_major_faults);
		__sync_fetch_and_add(&sums->fault_ns, use->fault_ns);
	}
}

static __always_inline void use_clear(struct file_use *use)
{
	use->since_ns = 0;
	use->accessed_pages = use->missed_pages = use->n_reads = 0;
	use->n_minor_faults = use->n_major_faults = 0;
	use->fault_ns = use->used_bytes = use->direct_bytes = use->network_bytes = 0;
}

/* Not inlined: it is called from many places and would bloat their programs. */
static __attribute__((noinline)) int use_close(struct file_use *use)
{
	struct place_key key = {};
	struct read_place *place;

	if (!use || !use->since_ns)
		return 0;
	key.inode = use->inode;
	key.device = use->device;
	totals_sum(use);
	sizes_sum(use);
	if (use->inode) {
		place = bpf_map_lookup_elem(&places, &key);
		if (place) {
			place_sum(place, use);
			key.inode = place->parent;
			key.folder = 1;
			place = bpf_map_lookup_elem(&places, &key);
			if (place)
				place_sum(place, use);
		}
	}
	use_clear(use);
	return 0;
}

/* Returns the use of this file, which becomes the thread's current one. inode: NULL if names are not
 * available. */
static __always_inline struct file_use *use_of(struct member *member, struct inode *inode, uint64_t number,
					       uint32_t device)
{
	struct file_use *use = &member->use;
	uint64_t now_ns;

	if (use->since_ns && use->inode == number && use->device == device)
		return use;
	now_ns = bpf_ktime_get_ns();
	use_close(use);
	use->since_ns = now_ns;
	use->inode = number;
	use->device = device;
	if (inode)
		place_add(inode, number, device);
	return use;
}

/* Like use_of(), for the file that the current call reads by its descriptor. */
static __always_inline struct file_use *use_of_call(struct task_struct *task, struct member *member)
{
	struct file_use *use = &member->use;
	struct file *file;

	if (use->since_ns && use->inode == member->inode && use->device == member->device)
		return use;
	file = file_of_fd(task, member->fd);
	return use_of(member, BPF_CORE_READ(file, f_inode), member->inode, member->device);
}

/* Adds the collected use regularly, so that even a thread that reads one large file shows. The next use finds
 * the file again, and names it again if the collector has taken its place out. */
static __always_inline void use_age(struct file_use *use, uint64_t now_ns)
{
	if (now_ns > use->since_ns + USE_MAX_NS)
		use_close(use);
}

static __always_inline uint32_t size_class(uint64_t bytes)
{
	uint32_t k = 0;

	if (bytes >> 16) {
		k = 16;
		bytes >>= 16;
	}
	if (bytes >> 8) {
		k += 8;
		bytes >>= 8;
	}
	if (bytes >> 4) {
		k += 4;
		bytes >>= 4;
	}
	if (bytes >> 2) {
		k += 2;
		bytes >>= 2;
	}
	k += bytes >> 1 & 1;
	return k > 23 ? 23 : k;
}

/* Reads of one size usually come in series, so this adds a series at once. */
static __always_inline void size_count(struct file_use *use, uint64_t bytes)
{
	uint32_t k = size_class(bytes);

	if (k != use->size_class)
		sizes_sum(use);
	use->size_class = k;
	use->n_of_size++;
}
