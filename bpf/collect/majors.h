/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The kernel's software event for major page faults, on every CPU: it tells the recorder when one ends. */

struct bpf_program;
struct majors;

/* Returns NULL where the kernel refuses: only the sleeps in faults are known then. */
struct majors *majors_open(const struct bpf_program *program);
/* On how many CPUs the event is open. */
int majors_count(const struct majors *majors);
void majors_close(struct majors *majors);
