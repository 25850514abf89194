/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Limits the rate of incoming connections: each source has a budget of its own, so that a source that
 * connects all the time keeps no other one out. A source is a machine (with IPv6, a /64), or a user of this
 * machine, whatever addresses that user's processes take. Pure.
 */

#include <stdbool.h>
#include <stdint.h>

#include "net_address.h"

/* Maximum connections per second, and burst size, of one source: each costs a handshake. */
#define NET_SOURCE_PER_S 32.0
#define NET_SOURCE_BURST 128.0
/* Maximum connections per second, and burst size, of all strangers together. */
#define NET_STRANGERS_PER_S 256.0
#define NET_STRANGERS_BURST 512.0

struct net_source {
	uint32_t family; /* 0: unused */
	uint32_t uid;    /* user on this machine; UINT32_MAX: another machine's, or not known */
	uint8_t host[16];
};

/* A token bucket. */
struct net_budget {
	double tokens;
	uint64_t at_ns; /* 0: the budget is full */
};

/* Returns true if the budget has a token now. The caller takes the token. */
static inline bool net_budget_has(struct net_budget *b, double per_s, double burst, uint64_t now_ns)
{
	b->tokens += (double)(now_ns - b->at_ns) / 1e9 * per_s;
	if (!b->at_ns || b->tokens > burst)
		b->tokens = burst;
	b->at_ns = now_ns;
	return b->tokens >= 1;
}

/* Number of sources remembered. The least recently seen source is forgotten first. */
#define NET_SOURCES 256

struct net_sources {
	struct net_budget strangers;
	struct {
		struct net_source source;
		struct net_budget budget;
	} of[NET_SOURCES];
};

enum net_source_kind {
	NET_SOURCE_MACHINE, /* another machine */
	NET_SOURCE_USER,    /* a user of this machine */
	NET_SOURCE_NODE,    /* the daemon's user or root, who may run several nodes at several addresses */
};

/* Returns the source of a connection. uid UINT32_MAX: another machine's, or not known. */
struct net_source net_source_of(enum net_source_kind kind, const struct net_address *far, uint32_t uid);
bool net_source_equal(const struct net_source *a, const struct net_source *b);

/* Returns true, and counts the connection, if the source may connect now. is_stranger: not a known node. */
bool net_sources_admit(struct net_sources *s, const struct net_source *source, bool is_stranger,
		       uint64_t now_ns);
