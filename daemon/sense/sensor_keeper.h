/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The sensing child. It is two processes, so that the one with the privileges does nothing, and the one that
 * does the work has few privileges:
 *
 * - Keeper: forked from the daemon at its start; user nobody with CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and
 *   CAP_DAC_READ_SEARCH, as far as the daemon had them. It sleeps until START, forks a watcher and waits for
 *   the watcher's end. It ends with the daemon.
 * - Watcher: loads the programs (sensor_watch.h), gives up CAP_BPF, watches the jobs. When it dies, the
 * keeper can start another one, which the daemon no longer could.
 *
 * CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH are for setting probes in libraries that a job of another user has
 * mapped: they are found in /proc/PID/maps, and may lie in a home that nobody else can enter.
 */

#include <stdint.h>

/* What the child needs, as a set of lib/capabilities.h. */
uint64_t sensor_keeper_capabilities(void);
