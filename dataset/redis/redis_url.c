/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_url.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/units.h"

static bool is_plain(const char *text, size_t length, const char *signs)
{
	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
		    (c == '\0' || !strchr(signs, c)))
			return false;
	}
	return true;
}

static int copy_plain(const char *from, size_t length, const char *signs, char ret[REDIS_URL_PART])
{
	if (length >= REDIS_URL_PART || !is_plain(from, length, signs))
		return -EINVAL;
	memcpy(ret, from, length);
	ret[length] = '\0';
	return 0;
}

static int hex_value(char c)
{
	const char *digits = "0123456789abcdef",
		   *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;

	return at ? (int)(at - digits) : -1;
}

static int copy_escaped(const char *from, size_t length, char text[REDIS_URL_PART])
{
	size_t n = 0;

	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)from[i];

		if (c == '%') {
			int high = length - i >= 3 ? hex_value(from[i + 1]) : -1;
			int low = high >= 0 ? hex_value(from[i + 2]) : -1;

			if (low < 0 || 16 * high + low == 0)
				return -EINVAL;
			c = (unsigned char)(16 * high + low);
			i += 2;
		} else if (c <= ' ' || c == 0x7f) {
			return -EINVAL;
		}
		if (n + 1 >= REDIS_URL_PART)
			return -EINVAL;
		text[n++] = (char)c;
	}
	text[n] = '\0';
	return 0;
}

static int parse_user(const char *text, size_t length, struct redis_url *ret)
{
	const char *colon = memchr(text, ':', length);
	int r;

	if (!colon)
		return -EINVAL;
	r = copy_escaped(text, (size_t)(colon - text), ret->user);
	return r < 0 ? r : copy_escaped(colon + 1, length - (size_t)(colon + 1 - text), ret->password);
}

/* Parses HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT. */
static int parse_host(const char *text, size_t length, struct redis_url *ret)
{
	bool bracket = length && text[0] == '[';
	const char *end = memchr(text, bracket ? ']' : ':', length), *port = NULL;
	size_t host_length = end ? (size_t)(end - text) : length;
	char digits[REDIS_URL_PART] = "6379";
	int64_t number;

	if (bracket && !end)
		return -EINVAL;
	if (bracket) {
		text++;
		host_length--;
		end++;
		length--;
		if (end < text + length && *end != ':')
			return -EINVAL;
	}
	if (end && end < text + length)
		port = end + 1;
	if (port && copy_plain(port, (size_t)(text + length - port), "", digits) < 0)
		return -EINVAL;
	if (units_parse_integer(digits, 1, 65535, &number) < 0 || host_length == 0)
		return -EINVAL;
	snprintf(ret->port, sizeof(ret->port), "%d", (int)number);
	return copy_plain(text, host_length, bracket ? ":.%" : ".-_", ret->host);
}

int redis_address_of(const char *host, size_t length, int64_t port, struct redis_address *ret)
{
	if (length >= sizeof(ret->host) || port < 1 || port > 65535 || !is_plain(host, length, ".-_:%"))
		return -EPROTO;
	memcpy(ret->host, host, length);
	ret->host[length] = '\0';
	snprintf(ret->port, sizeof(ret->port), "%d", (int)port);
	return 0;
}

int redis_url_parse(const char *text, bool needs_prefix, struct redis_url *ret, struct error *err)
{
	struct redis_url url = {.tls = !strncmp(text, "rediss://", 9)};
	const char *rest = text + (url.tls ? 9 : 8), *slash, *at = NULL;
	size_t length;

	if (!url.tls && strncmp(text, "redis://", 8) != 0)
		return error_set(err, -EINVAL, "must begin with redis:// or rediss://");
	slash = strchr(rest, '/');
	length = slash ? (size_t)(slash - rest) : strlen(rest);
	for (size_t i = 0; i < length; i++)
		if (rest[i] == '@')
			at = rest + i;
	if (at && parse_user(rest, (size_t)(at - rest), &url) < 0)
		return error_set(err, -EINVAL,
				 "must have USER:PASSWORD before the @, with %%XX for special characters");
	if (parse_host(at ? at + 1 : rest, length - (at ? (size_t)(at + 1 - rest) : 0), &url) < 0)
		return error_set(err, -EINVAL, "must name the server as HOST or HOST:PORT");
	if (slash && copy_plain(slash + 1, strlen(slash + 1), "._-/:", url.prefix) < 0)
		return error_set(
		    err, -EINVAL,
		    "the prefix may have only letters, digits and . _ - / : and at most %d characters",
		    REDIS_URL_PART - 1);
	if (needs_prefix && !url.prefix[0])
		return error_set(err, -EINVAL, "must have a prefix for the keys, as in redis://HOST/PREFIX");
	*ret = url;
	return 0;
}

char *redis_url_public(const struct redis_url *url, char *text, size_t size)
{
	bool bracket = strchr(url->host, ':');

	snprintf(text, size, "redis%s://%s%s%s:%s/%s", url->tls ? "s" : "", bracket ? "[" : "", url->host,
		 bracket ? "]" : "", url->port, url->prefix);
	return text;
}
