/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as texts of /proc. The first byte chooses the parser. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/proc.h"
#include "lib/proc_task.h"
#include "lib/psi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(uint8_t which, char *text)
{
	struct proc_schedstat schedstat;
	struct proc_cpu_ticks ticks;
	struct proc_meminfo meminfo;
	struct proc_mapping mapping;
	struct proc_syscall call;
	struct proc_status status;
	struct proc_stat stat;
	struct proc_io io;
	struct psi psi;

	switch (which % 11) {
	case 0: proc_stat_parse(text, &stat); break;
	case 1: proc_status_parse(text, &status); break;
	case 2: proc_schedstat_parse(text, &schedstat); break;
	case 3:
		if (!proc_syscall_parse(text, &call) && call.running + call.in_call + call.ended > 1)
			abort();
		break;
	case 4: proc_io_parse(text, &io); break;
	case 5: proc_link_parse(text); break;
	case 6: proc_wchan_wait(text, text[0] & 1); break;
	case 7: proc_cpu_ticks_parse(text, &ticks); break;
	case 8: proc_meminfo_parse(text, &meminfo); break;
	case 9: proc_mapping_parse(text, &mapping); break;
	case 10: psi_parse(text, &psi); break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size)
		return 0;
	text = malloc(size); /* of exactly this size, so that sanitizers notice a read past the end */
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	parse(data[0], text);
	free(text);
	return 0;
}
