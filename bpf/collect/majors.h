/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The kernel's software event for major page faults, on every CPU: what tells the recorder that one ended. */

struct bpf_program;
struct majors;

/* NULL where the kernel refuses: faults are then known by their sleeps only. */
struct majors *majors_open(const struct bpf_program *program);
/* CPUs on which it is open. */
int majors_count(const struct majors *majors);
void majors_close(struct majors *majors);
