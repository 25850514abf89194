/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The parts of the trainer's time. docs/explanation/measuring.md defines each. Everything that shows, stores
 * or sums shares has them by this enum. Only the daemon's tuner has its own, struct stall_shares: those that
 * it may know, without compiling. */

enum analysis_share {
	SHARE_DEVICE,
	SHARE_FETCH_STALL,
	SHARE_PREP_STALL,
	SHARE_CHECKPOINT_STALL,
	SHARE_CPU_STARVED,
	SHARE_OTHER,
	SHARE_COMPILING, /* paid once, so in no steady share; not seen without a Python stack */
	SHARE_COUNT,
};

/* As in JSON: "fetch_stall". */
const char *analysis_share_name(enum analysis_share share);
