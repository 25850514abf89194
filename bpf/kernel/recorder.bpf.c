/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * The kernel side of the recorder: one object, with one header for each topic. All programs are tp_btf,
 * uprobe, perf_event and iter programs, which are cheap and work under kernel lockdown. All are optional
 * ("?"): the collector loads those whose tracepoint the running kernel has.
 */

#include "recorder.h"
#include "context.h"
#include "sched.h"
#include "lifecycle.h"
#include "pages.h"
#include "faults.h"
#include "calls.h"
#include "reads.h"
#include "stacks.h"
#include "tasks.h"
#include "user_probes.h"
#include "batch_probes.h"
#include "gpu_probes.h"
#include "phase_probes.h"

char LICENSE[] SEC("license") = "GPL";
