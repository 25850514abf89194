/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* redis://[USER:PASSWORD@]HOST[:PORT]/PREFIX, or rediss:// for TLS. All parts consist of letters, digits and
 * a few signs, so that they can do no harm in a key or on a terminal. A password may have any byte but white
 * space and '@' (as %40), escaped as in all URLs. */

#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

#define REDIS_URL_PART 256

struct redis_url {
	bool tls;
	char user[REDIS_URL_PART], password[REDIS_URL_PART];
	char host[REDIS_URL_PART];
	char port[6];
	char prefix[REDIS_URL_PART]; /* "" if left out, where that is permitted */
};

struct redis_address {
	char host[REDIS_URL_PART];
	char port[6];
};

/* Takes an address that a server names. The host may be empty. -EPROTO: no host has this name, or no server
 * this port. */
int redis_address_of(const char *host, size_t length, int64_t port, struct redis_address *ret);

/* Parses a URL. -EINVAL. The error text never contains the password. */
int redis_url_parse(const char *text, bool needs_prefix, struct redis_url *ret, struct error *err);
/* Formats the URL without user and password, to be shown and stored. */
char *redis_url_public(const struct redis_url *url, char *text, size_t size);
#define REDIS_URL_TEXT (2 * REDIS_URL_PART + 32)
