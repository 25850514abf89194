/* SPDX-License-Identifier: Apache-2.0 */
#include "cxx_name.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct parser {
	const char *at;
	char *name;
	size_t size, n;
	const char *last; /* last component */
	size_t n_last;
	bool cut;
};

static void put(struct parser *p, const char *text, size_t length)
{
	int n = snprintf(p->name + p->n, p->size - p->n, "%s%.*s", p->n ? "::" : "", (int)length, text);

	if (n > 0)
		p->n = (size_t)n < p->size - p->n ? p->n + (size_t)n : p->size - 1;
}

/* Parses <number> <identifier>. Returns the identifier. */
static const char *source_name(struct parser *p, size_t *ret_length)
{
	size_t length = 0, there;
	const char *begin;

	while (isdigit((unsigned char)*p->at) && length < 10000)
		length = 10 * length + (size_t)(*p->at++ - '0');
	there = strnlen(p->at, length);
	p->cut |= there < length;
	begin = p->at;
	p->at += there;
	*ret_length = there;
	return begin;
}

static void component(struct parser *p)
{
	static const char anonymous[] = "_GLOBAL__N";
	size_t length;
	const char *text = source_name(p, &length);

	if (length >= sizeof(anonymous) - 1 && !memcmp(text, anonymous, sizeof(anonymous) - 1)) {
		put(p, "(anonymous)", sizeof("(anonymous)") - 1);
		return;
	}
	p->last = text;
	p->n_last = length;
	put(p, text, length);
}

/* Skips the digits and capitals, up to '_', of a substitution or a template parameter. */
static void skip_number(struct parser *p)
{
	while (isdigit((unsigned char)*p->at) || isupper((unsigned char)*p->at))
		p->at++;
	p->at += *p->at == '_';
}

/* Skips a substitution after its 'S'. Returns true if it stands for std. */
static bool substitution(struct parser *p)
{
	bool standard = islower((unsigned char)*p->at);

	if (standard)
		p->at++;
	else
		skip_number(p);
	return standard;
}

/* Skips a literal: type, value, 'E'. */
static void skip_literal(struct parser *p)
{
	size_t length;

	if (isdigit((unsigned char)*p->at))
		source_name(p, &length);
	else if (*p->at)
		p->at++;
	while (*p->at && *p->at != 'E')
		p->at++;
	p->at += *p->at == 'E';
}

/* Skips the rest of a group, up to the 'E' that ends it. */
static void skip_group(struct parser *p)
{
	size_t depth = 1, length;

	while (*p->at && depth) {
		char c = *p->at;

		if (isdigit((unsigned char)c)) {
			source_name(p, &length);
			continue;
		}
		p->at++;
		if (c == 'S')
			substitution(p);
		else if (c == 'T')
			skip_number(p);
		else if (c == 'L' && (islower((unsigned char)*p->at) || isdigit((unsigned char)*p->at)))
			skip_literal(p);
		else if (strchr("INXJFLUZ", c))
			depth++;
		else if (c == 'E')
			depth--;
	}
	p->cut |= depth > 0;
}

/* Parses the parts of a nested name that this parser supports. */
static void nested(struct parser *p)
{
	while (*p->at && strchr("rVKRO", *p->at))
		p->at++;
	while (*p->at && *p->at != 'E') {
		char c = *p->at;

		if (isdigit((unsigned char)c)) {
			component(p);
			continue;
		}
		p->at++;
		if (c == 'S') {
			if (substitution(p))
				put(p, "std", 3);
		} else if (c == 'I') {
			skip_group(p);
		} else if (c == 'C' || c == 'D') {
			if (c == 'C')
				put(p, p->last ? p->last : "", p->n_last);
			else
				put(p, "~", 1);
			p->at += isdigit((unsigned char)*p->at) != 0;
		} else if (c == 'U' && *p->at == 'l') {
			skip_group(p);
			skip_number(p);
			put(p, "{lambda}", 8);
		} else if (c == 'B') {
			size_t length;

			source_name(p, &length);
		} else if (c == 'c' && *p->at == 'l') {
			p->at++;
			put(p, "operator()", 10);
		} else if (islower((unsigned char)c)) {
			put(p, "operator", 8);
			return;
		} else if (c != 'L') {
			return;
		}
	}
	p->cut |= !*p->at;
}

void cxx_name(const char *mangled, char *name, size_t size)
{
	struct parser p = {.at = mangled + 2, .name = name, .size = size};

	name[0] = '\0';
	if (mangled[0] == '_' && mangled[1] == 'Z') {
		while (*p.at == 'Z' || *p.at == 'L') /* a local name is shown as its function's */
			p.at++;
		if (*p.at == 'N') {
			p.at++;
			nested(&p);
		} else {
			if (p.at[0] == 'S' && p.at[1] == 't') {
				p.at += 2;
				put(&p, "std", 3);
			}
			if (isdigit((unsigned char)*p.at))
				component(&p);
			else
				p.n = 0;
		}
	}
	if (!p.n)
		snprintf(name, size, "%s", mangled);
	else if (p.cut)
		snprintf(name + p.n, size - p.n, "...");
}
