/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The watcher: loads the BPF programs, records the jobs it is told of, and answers each TICK with where their
 * trainers' time went since the last one.
 *
 * Waits and steps are known all the time, from libdiesel's marks and the backward passes. What the rest of
 * the time was (device, starved of cores, checkpoint) is looked at in slices of some seconds
 * (sensor_detail.h), and taken to be as in the last slice in between.
 */

#include <stdint.h>

/* Runs until STOP or the daemon's end; returns the exit status of its process. *beat changes each time around
 * (every POLL_MS or so), but not before the programs are loaded. */
int sensor_watch_run(int fd, _Atomic uint32_t *beat);
