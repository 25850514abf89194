/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The parts of the trainer's time. docs/explanation/measuring.md defines each. All code that shows, stores or
 * sums shares uses this enum, except the daemon's tuner. Its struct stall_shares has only the shares that the
 * tuner may know, without compiling. */

enum analysis_share {
	SHARE_DEVICE,
	SHARE_FETCH_STALL,
	SHARE_PREP_STALL,
	SHARE_CHECKPOINT_STALL,
	SHARE_CPU_STARVED,
	SHARE_OTHER,
	SHARE_COMPILING, /* paid once, so not part of steady shares; only Python stack samples show it */
	SHARE_COUNT,
};

/* Returns the name in JSON reports, e.g. "fetch_stall". */
const char *analysis_share_name(enum analysis_share share);
