/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The watcher: loads the BPF programs, makes the jobs it is told of part of the recording, and answers each
 * TICK with where their trainers' time went since the last one.
 *
 * Waits and steps are known all the time, from the markers of libdiesel and the backward passes. What the
 * rest of the time was (device, starved of cores, checkpoint) is looked at in slices of some seconds
 * (sensor_detail.h), and in between held to be as in the last slice.
 */

#include <stdint.h>

/* Talks until STOP or the daemon's end; the exit status of its process. *beat changes each time around (every
 * POLL_MS or so), and not before the programs are loaded. */
int sensor_watch_run(int fd, _Atomic uint32_t *beat);
