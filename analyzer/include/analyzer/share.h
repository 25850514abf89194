/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The parts of the trainer's time. docs/measuring.md defines each. */

enum analysis_share {
	SHARE_DEVICE,
	SHARE_FETCH_STALL,
	SHARE_PREP_STALL,
	SHARE_CHECKPOINT_STALL,
	SHARE_CPU_STARVED,
	SHARE_OTHER,
	SHARE_COMPILING, /* is in no step that is steady: it is paid once */
	SHARE_COUNT,
};
