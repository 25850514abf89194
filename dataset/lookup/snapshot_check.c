/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the checksums of a snapshot: of the tables, which are small, and of the sections that grow with the
 * samples. */
#include "dataset/snapshot.h"

#include <errno.h>

#include "dataset/checksum/checksum.h"
#include "snapshot_map.h"

static int damaged(const struct snapshot *s, const char *what, struct error *err)
{
	return error_set(err, -EBADMSG, "%s: %s damaged (checksum mismatch); " SNAPSHOT_DAMAGED, s->origin,
			 what);
}

static int check_section(const struct snapshot *s, enum snapshot_section section, struct error *err)
{
	static const char *const names[SNAPSHOT_N_SECTIONS] = {
	    [SNAPSHOT_CHUNKS] = "chunk table", [SNAPSHOT_RECORDS] = "records",
	    [SNAPSHOT_HASH] = "hash index",    [SNAPSHOT_TREE] = "tree order",
	    [SNAPSHOT_PATHS] = "paths",        [SNAPSHOT_CLASSES] = "class table",
	    [SNAPSHOT_DIGESTS] = "digests",    [SNAPSHOT_TIMES] = "times",
	};
	const struct snapshot_extent *e = &s->header.sections[section];

	if (section == SNAPSHOT_DIGESTS && !s->digests)
		return 0;
	return checksum_xxh3(s->map + e->offset, e->bytes) == e->xxh3 ? 0 : damaged(s, names[section], err);
}

static int check_sections(const struct snapshot *s, const enum snapshot_section *sections, size_t n,
			  struct error *err)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = check_section(s, sections[i], err);
	return r;
}

int snapshot_check_tables(const struct snapshot *s, struct error *err)
{
	static const enum snapshot_section tables[] = {SNAPSHOT_CHUNKS, SNAPSHOT_CLASSES, SNAPSHOT_DIGESTS};

	return check_sections(s, tables, sizeof(tables) / sizeof(tables[0]), err);
}

int snapshot_check_rest(const struct snapshot *s, struct error *err)
{
	static const enum snapshot_section rest[] = {SNAPSHOT_RECORDS, SNAPSHOT_HASH, SNAPSHOT_TREE,
						     SNAPSHOT_PATHS, SNAPSHOT_TIMES};

	return check_sections(s, rest, sizeof(rest) / sizeof(rest[0]), err);
}

int snapshot_check_lookups(struct snapshot *s, struct error *err)
{
	int r = atomic_load(&s->is_checked) ? 0 : snapshot_check_rest(s, err);

	if (r == 0)
		atomic_store(&s->is_checked, true);
	return r;
}
