/* SPDX-License-Identifier: Apache-2.0 */
#include "net_sources.h"

#include <netinet/in.h>
#include <string.h>

#define V6_NETWORK_BYTES 8 /* a machine may take any address within a /64 */

struct net_source net_source_of(enum net_source_kind kind, const struct net_address *far, uint32_t uid)
{
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)&far->name)->sin6_addr;
	struct net_source s = {.family = far->name.ss_family, .uid = uid};

	if (kind == NET_SOURCE_USER)
		return s;
	if (s.family == AF_INET6)
		memcpy(s.host, v6, sizeof(s.host));
	else
		memcpy(s.host, &((const struct sockaddr_in *)&far->name)->sin_addr, sizeof(struct in_addr));
	if (kind == NET_SOURCE_MACHINE && s.family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(v6))
		memset(s.host + V6_NETWORK_BYTES, 0, sizeof(s.host) - V6_NETWORK_BYTES);
	return s;
}

bool net_source_equal(const struct net_source *a, const struct net_source *b)
{
	return a->family == b->family && a->uid == b->uid && memcmp(a->host, b->host, sizeof(a->host)) == 0;
}

static bool take(struct net_budget *b, double per_s, double burst, uint64_t now_ns)
{
	bool has = net_budget_has(b, per_s, burst, now_ns);

	b->tokens -= has;
	return has;
}

static struct net_budget *budget_of(struct net_sources *s, const struct net_source *source)
{
	uint32_t oldest = 0;

	for (uint32_t i = 0; i < NET_SOURCES; i++) {
		if (net_source_equal(&s->of[i].source, source))
			return &s->of[i].budget;
		if (s->of[i].budget.at_ns < s->of[oldest].budget.at_ns)
			oldest = i;
	}
	s->of[oldest].source = *source;
	s->of[oldest].budget = (struct net_budget){.at_ns = 0};
	return &s->of[oldest].budget;
}

bool net_sources_admit(struct net_sources *s, const struct net_source *source, bool is_stranger,
		       uint64_t now_ns)
{
	/* Checks the source's own budget first, so that refusals take nothing from other strangers. */
	return take(budget_of(s, source), NET_SOURCE_PER_S, NET_SOURCE_BURST, now_ns) &&
	       (!is_stranger || take(&s->strangers, NET_STRANGERS_PER_S, NET_STRANGERS_BURST, now_ns));
}
