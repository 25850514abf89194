/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Numeric addresses with ports, "10.0.0.1:7700" or "[fe00::1]:7700", and the owner of a connection's other
 * end on this machine. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define NET_ADDRESS_BYTES 64

struct net_address {
	struct sockaddr_storage name;
	socklen_t bytes;
};

/* Parses an address. -EINVAL: not an address, or one with a scope ("%eth0"). */
int net_address_parse(const char *text, struct net_address *ret);
void net_address_format(const struct net_address *a, char text[NET_ADDRESS_BYTES]);
uint16_t net_address_port(const struct net_address *a);
void net_address_set_port(struct net_address *a, uint16_t port);
bool net_address_is_loopback(const struct net_address *a);
/* Returns true for 0.0.0.0 and [::]. */
bool net_address_is_any(const struct net_address *a);
/* Returns true if both have the same host, whatever the port. */
bool net_address_same_host(const struct net_address *a, const struct net_address *b);
/* Finds the address of this end of a socket. Returns 0 or -errno. */
int net_address_local(int fd, struct net_address *ret);

/* Returns 1 if the other end of a connection is on another machine. Else finds the same user as
 * net_address_owner(), at a cost that does not grow with the number of connections. Returns 0, or -errno: the
 * user was not found, or the kernel does not support this. */
int net_address_user(int fd, const struct net_address *far, uint32_t *ret_uid);

/* Returns the user who has the other end of this connection open, if both ends are in this network namespace.
 * -ENOENT: there is no such end, or nobody has it open. */
int net_address_owner(int fd, uint32_t *ret_uid);
