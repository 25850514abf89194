/* SPDX-License-Identifier: Apache-2.0 */
#include "net_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/units.h"

static struct sockaddr_in *v4(const struct net_address *a)
{
	return (struct sockaddr_in *)&a->name;
}

static struct sockaddr_in6 *v6(const struct net_address *a)
{
	return (struct sockaddr_in6 *)&a->name;
}

static bool is_v6(const struct net_address *a)
{
	return a->name.ss_family == AF_INET6;
}

static int parse_host(const char *host, bool in_brackets, struct net_address *a)
{
	memset(a, 0, sizeof(*a));
	if (in_brackets && inet_pton(AF_INET6, host, &v6(a)->sin6_addr) == 1) {
		a->name.ss_family = AF_INET6;
		a->bytes = sizeof(struct sockaddr_in6);
		return 0;
	}
	if (!in_brackets && inet_pton(AF_INET, host, &v4(a)->sin_addr) == 1) {
		a->name.ss_family = AF_INET;
		a->bytes = sizeof(struct sockaddr_in);
		return 0;
	}
	return -EINVAL;
}

int net_address_parse(const char *text, struct net_address *ret)
{
	bool in_brackets = text[0] == '[';
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN + 2];
	struct net_address a;
	int64_t port;
	size_t n;

	if (!colon || units_parse_integer(colon + 1, 0, UINT16_MAX, &port) < 0)
		return -EINVAL;
	n = (size_t)(colon - text);
	if (n >= sizeof(host) || (in_brackets && (n < 2 || text[n - 1] != ']')))
		return -EINVAL;
	memcpy(host, text + in_brackets, n - 2 * in_brackets);
	host[n - 2 * in_brackets] = '\0';
	if (parse_host(host, in_brackets, &a) < 0)
		return -EINVAL;
	net_address_set_port(&a, (uint16_t)port);
	*ret = a;
	return 0;
}

void net_address_format(const struct net_address *a, char text[NET_ADDRESS_BYTES])
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (is_v6(a)) {
		(void)inet_ntop(AF_INET6, &v6(a)->sin6_addr, host, sizeof(host));
		snprintf(text, NET_ADDRESS_BYTES, "[%s]:%u", host, net_address_port(a));
	} else {
		(void)inet_ntop(AF_INET, &v4(a)->sin_addr, host, sizeof(host));
		snprintf(text, NET_ADDRESS_BYTES, "%s:%u", host, net_address_port(a));
	}
}

uint16_t net_address_port(const struct net_address *a)
{
	return ntohs(is_v6(a) ? v6(a)->sin6_port : v4(a)->sin_port);
}

void net_address_set_port(struct net_address *a, uint16_t port)
{
	if (is_v6(a))
		v6(a)->sin6_port = htons(port);
	else
		v4(a)->sin_port = htons(port);
}

bool net_address_is_loopback(const struct net_address *a)
{
	return is_v6(a) ? IN6_IS_ADDR_LOOPBACK(&v6(a)->sin6_addr)
			: (ntohl(v4(a)->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
}

bool net_address_is_any(const struct net_address *a)
{
	return is_v6(a) ? IN6_IS_ADDR_UNSPECIFIED(&v6(a)->sin6_addr)
			: v4(a)->sin_addr.s_addr == htonl(INADDR_ANY);
}

bool net_address_same_host(const struct net_address *a, const struct net_address *b)
{
	if (a->name.ss_family != b->name.ss_family)
		return false;
	return is_v6(a) ? memcmp(&v6(a)->sin6_addr, &v6(b)->sin6_addr, sizeof(struct in6_addr)) == 0
			: v4(a)->sin_addr.s_addr == v4(b)->sin_addr.s_addr;
}

int net_address_local(int fd, struct net_address *ret)
{
	struct net_address a = {.bytes = sizeof(a.name)};

	if (getsockname(fd, (struct sockaddr *)&a.name, &a.bytes) < 0)
		return -errno;
	*ret = a;
	return 0;
}

static int net_address_remote(int fd, struct net_address *ret)
{
	struct net_address a = {.bytes = sizeof(a.name)};

	if (getpeername(fd, (struct sockaddr *)&a.name, &a.bytes) < 0)
		return -errno;
	*ret = a;
	return 0;
}

static void put_address(const struct net_address *a, __be32 words[4], __be16 *port)
{
	if (is_v6(a))
		memcpy(words, &v6(a)->sin6_addr, sizeof(struct in6_addr));
	else
		words[0] = v4(a)->sin_addr.s_addr;
	*port = htons(net_address_port(a));
}

int net_address_user(int fd, const struct net_address *far, uint32_t *ret_uid)
{
	struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 request;
	} question = {.header = {.nlmsg_len = sizeof(question),
				 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
				 .nlmsg_flags = NLM_F_REQUEST},
		      .request = {.sdiag_family = (uint8_t)far->name.ss_family,
				  .sdiag_protocol = IPPROTO_TCP,
				  .idiag_states = UINT32_MAX,
				  .id = {.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
	struct {
		struct nlmsghdr header;
		struct inet_diag_msg found;
		uint8_t more[1024];
	} answer;
	const struct inet_diag_sockid *wanted = &question.request.id;
	_cleanup_(closep) int netlink = -EBADF;
	struct net_address near;
	ssize_t n;
	int r = net_address_local(fd, &near);

	if (!net_address_is_loopback(far) && (r < 0 || !net_address_same_host(&near, far)))
		return 1;
	if (r < 0)
		return r;
	netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (netlink < 0)
		return -errno;
	put_address(far, question.request.id.idiag_src, &question.request.id.idiag_sport);
	put_address(&near, question.request.id.idiag_dst, &question.request.id.idiag_dport);
	if (send(netlink, &question, sizeof(question), 0) < 0)
		return -errno;
	n = recv(netlink, &answer, sizeof(answer), MSG_DONTWAIT); /* the kernel answers at once */
	if (n < (ssize_t)(sizeof(answer.header) + sizeof(answer.found)) ||
	    answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return n < 0 ? -errno : -ENOENT;
	/* If there is no such connection, the kernel may return the socket that would accept it. */
	if (answer.found.id.idiag_sport != wanted->idiag_sport ||
	    answer.found.id.idiag_dport != wanted->idiag_dport || answer.found.idiag_inode == 0)
		return -ENOENT;
	*ret_uid = answer.found.idiag_uid;
	return 0;
}

/* Prints an address as the kernel does in /proc/net/tcp: its words as they lie in memory. */
static void print_as_kernel(const struct net_address *a, char text[48])
{
	uint32_t words[4];

	if (is_v6(a)) {
		memcpy(words, &v6(a)->sin6_addr, sizeof(words));
		snprintf(text, 48, "%08X%08X%08X%08X:%04X", words[0], words[1], words[2], words[3],
			 net_address_port(a));
	} else {
		snprintf(text, 48, "%08X:%04X", v4(a)->sin_addr.s_addr, net_address_port(a));
	}
}

int net_address_owner(int fd, uint32_t *ret_uid)
{
	struct net_address near, far;
	_cleanup_(fclosep) FILE *file = NULL;
	char line[512], ours[48], theirs[48], from[48], to[48];
	unsigned long inode;
	unsigned uid;
	int r = net_address_local(fd, &near);

	if (r == 0)
		r = net_address_remote(fd, &far);
	if (r < 0)
		return r;
	print_as_kernel(&near, ours);
	print_as_kernel(&far, theirs);
	file = fopen(is_v6(&near) ? "/proc/net/tcp6" : "/proc/net/tcp", "re");
	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, " %*u: %47s %47s %*s %*s %*s %*s %u %*s %lu", from, to, &uid, &inode) != 4 ||
		    strcmp(from, theirs) != 0 || strcmp(to, ours) != 0 || inode == 0)
			continue;
		*ret_uid = uid;
		return 0;
	}
	return -ENOENT;
}
