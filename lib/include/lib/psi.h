/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pressure stall information: /proc/pressure/{cpu,io,memory}, and the same files of a cgroup. */

#include <stdbool.h>
#include <stdint.h>

struct psi_line {
	double avg10_ratio, avg60_ratio, avg300_ratio; /* shares of the last 10, 60, 300 s; 0 to 1 */
	uint64_t total_ns;                             /* total stall time since boot */
};

struct psi {
	struct psi_line some; /* at least one task was stalled */
	struct psi_line full; /* all tasks were stalled; zeros before Linux 5.13 for cpu */
	bool has_full;
};

/* path is the whole path, such as "/proc/pressure/io". -ENOENT: the kernel has no PSI; -EOPNOTSUPP: it is
 * compiled in but switched off; -EBADMSG. */
int psi_read(const char *path, struct psi *ret_psi);
