/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* redis://[USER:PASSWORD@]HOST[:PORT]/PREFIX, or rediss:// for TLS. All parts are plain text: letters, digits
 * and a few signs, so that neither a key nor a terminal is steered by them; a password may have any byte but
 * white space and '@' (as %40), escaped as in all URLs. */

#include <stddef.h>

#include "lib/error.h"

#define REDIS_URL_PART 256

struct redis_url {
	bool tls;
	char user[REDIS_URL_PART], password[REDIS_URL_PART];
	char host[REDIS_URL_PART];
	char port[6];
	char prefix[REDIS_URL_PART]; /* "" where it may be left out */
};

/* What the name or address of a host may have in it. */
bool redis_url_host_char(char c);
/* -EINVAL. The text that it says never holds the password. */
int redis_url_parse(const char *text, bool needs_prefix, struct redis_url *ret, struct error *err);
/* Without user and password: what may be shown and stored. */
char *redis_url_public(const struct redis_url *url, char *text, size_t size);
#define REDIS_URL_TEXT (2 * REDIS_URL_PART + 32)
