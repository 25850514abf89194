/* SPDX-License-Identifier: Apache-2.0 */
#include "writes.h"

void writes_sample(struct writes *w, const char *proc_root, pid_t pid, struct writes_seen *ret)
{
	uint64_t bytes, before = w->bytes;
	bool was_known = w->known;
	int n = 0;

	*ret = (struct writes_seen){0};
	w->known = pid > 0 && proc_written_read(proc_root, pid, &bytes) == 0;
	if (!w->known)
		return;
	w->bytes = bytes;
	ret->known = true;
	if (was_known && bytes >= before + WRITES_MANY_BYTES)
		n = proc_write_devices(proc_root, pid, ret->devices);
	ret->n_devices = n > 0 ? (uint32_t)n : 0;
}
