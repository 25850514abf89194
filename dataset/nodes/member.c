/* SPDX-License-Identifier: Apache-2.0 */
#include "member.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/units.h"
#include "lib/utf8.h"

#define FIRST_WORD "diesel-node "
#define FIRST_LINE FIRST_WORD "1\n"

bool member_is_name(const char *text, size_t bytes)
{
	uint32_t code;

	for (size_t i = 0, length; i < bytes; i += length) {
		length = utf8_decode(text + i, bytes - i, &code);
		if (length == 0 || code < 0x20 || (code >= 0x7f && code < 0xa0))
			return false;
	}
	return bytes > 0 && bytes < REGISTRY_NAME_BYTES;
}

static bool is_host(const char *host, bool is_v6)
{
	struct in6_addr v6;
	struct in_addr v4;

	if (is_v6)
		return inet_pton(AF_INET6, host, &v6) == 1 && !IN6_IS_ADDR_UNSPECIFIED(&v6) &&
		       !IN6_IS_ADDR_MULTICAST(&v6) && !IN6_IS_ADDR_V4MAPPED(&v6);
	/* 0.x is this network; 224.0.0.0 and above are multicast and reserved addresses. */
	return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 != 0 &&
	       ntohl(v4.s_addr) >> 24 < 224;
}

bool member_is_address(const char *text)
{
	const char *colon = strrchr(text, ':');
	bool bracket = text[0] == '[';
	char host[INET6_ADDRSTRLEN + 2] = "";
	size_t length;
	int64_t port;

	if (!colon || colon[1] < '1' || colon[1] > '9' || units_parse_integer(colon + 1, 1, 65535, &port) < 0)
		return false;
	length = (size_t)(colon - text);
	if (length >= sizeof(host) || (bracket && (length < 3 || text[length - 1] != ']')))
		return false;
	memcpy(host, text + bracket, length - 2 * (size_t)bracket);
	return is_host(host, bracket);
}

struct writing {
	char *text;
	size_t n;
};

static void add(struct writing *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct writing *w, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(w->text + w->n, MEMBER_TEXT - w->n, format, args);
	va_end(args);
	w->n += (size_t)n;
}

static void add_escaped(struct writing *w, const char *name, const char *value, size_t size)
{
	add(w, "%s=", name);
	for (size_t i = 0; i < size && value[i]; i++) {
		unsigned char c = (unsigned char)value[i];

		if (c < ' ' || c >= 0x7f || c == '%')
			add(w, "%%%02x", c);
		else
			add(w, "%c", c);
	}
	add(w, "\n");
}

size_t member_format(const struct registry_entry *e, char text[MEMBER_TEXT])
{
	const struct registry_member *m = &e->member;
	struct writing w = {.text = text};

	_Static_assert(3 * (sizeof(m->node) + sizeof(e->key.job) + sizeof(e->path)) + sizeof(m->address) +
			       512 <
			   MEMBER_TEXT,
		       "the longest member fits");
	add(&w, FIRST_LINE);
	add_escaped(&w, "node", m->node, sizeof(m->node));
	add_escaped(&w, "address", m->address, sizeof(m->address));
	add(&w, "incarnation=%llu\n", (unsigned long long)m->incarnation);
	add(&w, "weight=%llu\n",
	    (unsigned long long)(m->weight_bytes < MEMBER_MAX_WEIGHT ? m->weight_bytes : MEMBER_MAX_WEIGHT));
	add(&w, "lanes=%u\ndrift=%u\nserves=", m->lanes.lanes, m->lanes.drift);
	for (uint32_t i = 0; i < m->lanes.n_runs; i++)
		add(&w, "%s%u-%u", i ? " " : "", m->lanes.runs[i].first, m->lanes.runs[i].end - 1);
	add(&w, "\nuid=%u\n", e->key.uid);
	add_escaped(&w, "job", e->key.job, sizeof(e->key.job));
	add(&w, "dataset=");
	for (size_t i = 0; i < sizeof(e->key.dataset); i++)
		add(&w, "%02x", e->key.dataset[i]);
	add(&w, "\n");
	add_escaped(&w, "path", e->path, sizeof(e->path));
	return w.n;
}

struct parsing {
	const char *at, *end;
};

/* Takes "name=" and finds the end of the line. Returns NULL if the line has another name. */
static const char *take_name(struct parsing *p, const char *name)
{
	size_t length = strlen(name), left = (size_t)(p->end - p->at);

	if (left <= length || memcmp(p->at, name, length) != 0 || p->at[length] != '=')
		return NULL;
	p->at += length + 1;
	return memchr(p->at, '\n', (size_t)(p->end - p->at));
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int hex_byte(const char *text, const char *end)
{
	int high = end - text >= 2 ? hex_digit(text[0]) : -1, low = high >= 0 ? hex_digit(text[1]) : -1;

	return low < 0 ? -1 : 16 * high + low;
}

static int take_text(struct parsing *p, const char *name, char *text, size_t size)
{
	const char *end = take_name(p, name);
	size_t n = 0;

	for (; end && p->at < end; p->at++) {
		int c = (unsigned char)*p->at;

		if (c < ' ' || c >= 0x7f)
			return -EINVAL;
		if (c == '%') {
			c = hex_byte(p->at + 1, end);
			p->at += 2;
		}
		if (c <= 0 || n + 1 >= size)
			return -EINVAL;
		text[n++] = (char)c;
	}
	if (!end)
		return -EINVAL;
	p->at = end + 1;
	text[n] = '\0';
	return 0;
}

static int take_number(struct parsing *p, const char *name, uint64_t max, uint64_t *ret)
{
	const char *end = take_name(p, name);
	uint64_t value = 0;

	if (!end || p->at == end)
		return -EINVAL;
	for (; p->at < end; p->at++) {
		unsigned digit = (unsigned)(unsigned char)*p->at - '0';

		if (digit > 9 || __builtin_mul_overflow(value, UINT64_C(10), &value) ||
		    __builtin_add_overflow(value, (uint64_t)digit, &value))
			return -EINVAL;
	}
	p->at = end + 1;
	if (value > max)
		return -EINVAL;
	*ret = value;
	return 0;
}

static int take_digit_run(const char **at, const char *end, uint32_t *ret)
{
	uint64_t value = 0;

	if (*at == end || **at < '0' || **at > '9')
		return -EINVAL;
	for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
		value = 10 * value + (uint64_t)(**at - '0');
		if (value >= UINT32_MAX)
			return -EINVAL;
	}
	*ret = (uint32_t)value;
	return 0;
}

/* Parses runs of lanes such as "0-3 8-8"; each run includes its last lane. */
static int take_runs(struct parsing *p, const char *name, struct owner_lanes *lanes)
{
	const char *end = take_name(p, name);

	if (!end)
		return -EINVAL;
	while (p->at < end) {
		struct owner_run run;

		if (lanes->n_runs == OWNER_RUNS_MAX || (lanes->n_runs > 0 && *p->at++ != ' ') ||
		    take_digit_run(&p->at, end, &run.first) < 0 || p->at == end || *p->at++ != '-' ||
		    take_digit_run(&p->at, end, &run.end) < 0)
			return -EINVAL;
		run.end++;
		lanes->runs[lanes->n_runs++] = run;
	}
	p->at = end + 1;
	return owner_lanes_ok(lanes) ? 0 : -EINVAL;
}

static int take_lanes(struct parsing *p, struct owner_lanes *lanes)
{
	uint64_t n = 0, drift = 0;

	if (take_number(p, "lanes", UINT32_MAX, &n) < 0 || take_number(p, "drift", UINT32_MAX, &drift) < 0)
		return -EINVAL;
	lanes->lanes = (uint32_t)n;
	lanes->drift = (uint32_t)drift;
	return take_runs(p, "serves", lanes);
}

static int take_digest(struct parsing *p, const char *name, uint8_t digest[16])
{
	const char *end = take_name(p, name);

	if (!end || end - p->at != 32)
		return -EINVAL;
	for (size_t i = 0; i < 16; i++) {
		int c = hex_byte(p->at + 2 * i, end);

		if (c < 0)
			return -EINVAL;
		digest[i] = (uint8_t)c;
	}
	p->at = end + 1;
	return 0;
}

bool member_is_ours(const char *text, size_t bytes)
{
	return bytes >= strlen(FIRST_WORD) && memcmp(text, FIRST_WORD, strlen(FIRST_WORD)) == 0;
}

int member_parse(const char *text, size_t bytes, struct registry_entry *ret)
{
	struct parsing p = {.at = text, .end = text + bytes};
	struct registry_entry e = {0};
	struct registry_member *m = &e.member;
	uint64_t uid = 0;

	if (bytes >= MEMBER_TEXT || bytes < strlen(FIRST_LINE) ||
	    memcmp(text, FIRST_LINE, strlen(FIRST_LINE)) != 0)
		return -EINVAL;
	p.at += strlen(FIRST_LINE);
	if (take_text(&p, "node", m->node, sizeof(m->node)) < 0 ||
	    take_text(&p, "address", m->address, sizeof(m->address)) < 0 ||
	    take_number(&p, "incarnation", UINT64_MAX, &m->incarnation) < 0 ||
	    take_number(&p, "weight", MEMBER_MAX_WEIGHT, &m->weight_bytes) < 0 ||
	    take_lanes(&p, &m->lanes) < 0 || take_number(&p, "uid", UINT32_MAX, &uid) < 0 ||
	    take_text(&p, "job", e.key.job, sizeof(e.key.job)) < 0 ||
	    take_digest(&p, "dataset", e.key.dataset) < 0 ||
	    take_text(&p, "path", e.path, sizeof(e.path)) < 0 || p.at != p.end)
		return -EINVAL;
	if (!member_is_name(m->node, strlen(m->node)) || !member_is_address(m->address))
		return -EINVAL;
	e.key.uid = (uint32_t)uid;
	registry_group_id(&e.key, &e.group);
	*ret = e;
	return 0;
}
