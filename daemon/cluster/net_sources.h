/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How often connections may come, from where: each source has a budget of its own, so that one that connects
 * all the time keeps no other one out. A source is a machine (of IPv6, a /64), or a user of this machine,
 * whatever addresses he takes. Pure.
 */

#include <stdbool.h>
#include <stdint.h>

#include "net_address.h"

/* Connections a second, and at once: each costs a handshake. */
#define NET_SOURCE_PER_S 32.0
#define NET_SOURCE_BURST 128.0
/* Of all sources that are strangers. */
#define NET_STRANGERS_PER_S 256.0
#define NET_STRANGERS_BURST 512.0

struct net_source {
	uint32_t family; /* 0: nothing is known */
	uint32_t uid;    /* of a process of this machine; UINT32_MAX: it is not, or it is not known */
	uint8_t host[16];
};

struct net_budget {
	double tokens;
	uint64_t at_ns; /* 0: it is full */
};

/* Of more sources, those that have not come for longest are forgotten. */
#define NET_SOURCES 256

struct net_sources {
	struct net_budget strangers;
	struct {
		struct net_source source;
		struct net_budget budget;
	} of[NET_SOURCES];
};

/* Of another machine. */
struct net_source net_source_far(const struct net_address *far);
/* Of this one. is_trusted: one of the daemon's user, or root's, who may be several nodes at several
 * addresses. uid UINT32_MAX: it is not known. */
struct net_source net_source_here(const struct net_address *far, uint32_t uid, bool is_trusted);
bool net_source_equal(const struct net_source *a, const struct net_source *b);

/* Returns true if a connection of the source may be let in now; it is counted then. is_stranger: it is no
 * node that is known. */
bool net_sources_admit(struct net_sources *s, const struct net_source *source, bool is_stranger,
		       uint64_t now_ns);
