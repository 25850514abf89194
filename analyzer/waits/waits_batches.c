/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "analyzer/timeline/downloads.h"
#include "waits.h"

int data_waits_find_reads(const struct timeline_thread *trainer, const struct downloads *downloads,
			  struct data_waits *waits)
{
	struct interval_list *reads = &waits->file_calls;

	for (size_t i = 0; i < trainer->n_calls; i++) {
		const struct timeline_call *call = &trainer->calls[i];

		/* Treats a group as all its calls, then all its computing, because only the sums matter. */
		if (downloads_touches(downloads, call) &&
		    interval_list_add(reads, call->begin_ns, call->begin_ns + call->busy_ns) < 0)
			return -ENOMEM;
	}
	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if (timeline_off_is_fault(trainer, off) &&
		    interval_list_add(reads, off->begin_ns, off->end_ns) < 0)
			return -ENOMEM;
	}
	interval_list_tidy(reads);
	return 0;
}

int data_waits_find_batches(const struct timeline_thread *trainer, struct data_waits *waits)
{
	struct downloads downloads = {0};
	int r = data_waits_find_marks(trainer, MARK_BATCH_BEGIN, MARK_BATCH_END, waits);

	if (r == 0)
		r = downloads_find(trainer, &downloads);
	if (r == 0)
		r = data_waits_find_reads(trainer, &downloads, waits);
	downloads_free(&downloads);
	return r;
}
