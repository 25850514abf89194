/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
#pragma once

/* A record that the probes on ranges write for the collector: an event and the name. */

#include "bpf/event.h"
#include "bpf/phase.h"

struct phase_record {
	struct event event;
	char name[PHASE_NAME_MAX]; /* terminated; "": event.phase.value has the key already, or no key exists
				    */
};

/* A USDT probe's cookie is the name's key; in the probe that ends the range it also has this bit. */
#define PHASE_COOKIE_END (1ULL << 63)

#ifndef __BPF__
_Static_assert(sizeof(struct phase_record) == 128, "the BPF programs use this layout");
#endif
