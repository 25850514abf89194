/* SPDX-License-Identifier: Apache-2.0 */
/* Parses a server's answers in XML, which are untrusted. Refuses documents with a DTD, so that no entity can
 * expand, and nesting deeper than in any valid answer. */
#include "bucket_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <expat.h>

#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/units.h"

#define MAX_DEPTH 16
#define MAX_VALUE 8192

struct xml_parser {
	XML_Parser xml;
	const char *root; /* required root element of the document */
	int depth;
	bool bad;
	char value[MAX_VALUE + 1];
	size_t value_bytes;

	struct xml_list *list; /* NULL: search for one element */
	bool in_contents;
	struct xml_object object;
	bool has_size;

	const char *wanted;
	char *found;
	size_t found_size;
	bool is_found;
};

/* Returns a name without the prefix of its namespace. */
static const char *local_name(const char *name)
{
	const char *colon = strrchr(name, ':');

	return colon ? colon + 1 : name;
}

static void give_up(struct xml_parser *p)
{
	p->bad = true;
	XML_StopParser(p->xml, XML_FALSE);
}

static void XMLCALL on_start(void *user, const XML_Char *full_name, const XML_Char **attributes)
{
	struct xml_parser *p = user;
	const char *name = local_name(full_name);

	(void)attributes;
	p->value_bytes = 0;
	p->value[0] = '\0';
	if ((p->depth == 0 && strcmp(name, p->root) != 0) || p->depth >= MAX_DEPTH) {
		give_up(p);
		return;
	}
	if (p->list && p->depth == 1 && !strcmp(name, "Contents")) {
		p->in_contents = true;
		p->has_size = false;
	}
	p->depth++;
}

static void end_object(struct xml_parser *p)
{
	p->in_contents = false;
	if (!p->object.key || !p->has_size ||
	    array_reserve(p->list->objects, p->list->n, p->list->n_allocated) < 0) {
		give_up(p);
		return;
	}
	p->list->objects[p->list->n++] = p->object;
	p->object = (struct xml_object){0};
}

static void set_text(struct xml_parser *p, char **to)
{
	free(*to);
	*to = strdup(p->value);
	if (!*to)
		give_up(p);
}

static void end_in_list(struct xml_parser *p, const char *name)
{
	int64_t number;

	if (p->in_contents && p->depth == 1) {
		end_object(p);
	} else if (p->in_contents && p->depth == 2 && !strcmp(name, "Key")) {
		set_text(p, &p->object.key);
	} else if (p->in_contents && p->depth == 2 && !strcmp(name, "Size")) {
		if (units_parse_integer(p->value, 0, INT64_MAX, &number) < 0) {
			give_up(p);
			return;
		}
		p->object.bytes = (uint64_t)number;
		p->has_size = true;
	} else if (p->depth == 1 && !strcmp(name, "IsTruncated")) {
		p->list->truncated = !strcmp(p->value, "true");
	} else if (p->depth == 1 && !strcmp(name, "EncodingType")) {
		p->list->url_encoded = !strcmp(p->value, "url");
	} else if (p->depth == 1 && !strcmp(name, "NextContinuationToken")) {
		set_text(p, &p->list->next);
	}
}

static void XMLCALL on_end(void *user, const XML_Char *full_name)
{
	struct xml_parser *p = user;
	const char *name = local_name(full_name);

	p->depth--;
	if (p->list) {
		end_in_list(p, name);
	} else if (p->depth == 1 && !p->is_found && !strcmp(name, p->wanted)) {
		snprintf(p->found, p->found_size, "%s", p->value);
		p->is_found = true;
	}
	p->value_bytes = 0;
	p->value[0] = '\0';
}

static void XMLCALL on_text(void *user, const XML_Char *text, int n)
{
	struct xml_parser *p = user;

	if (p->value_bytes + (size_t)n > MAX_VALUE) {
		give_up(p);
		return;
	}
	memcpy(p->value + p->value_bytes, text, (size_t)n);
	p->value_bytes += (size_t)n;
	p->value[p->value_bytes] = '\0';
}

static void XMLCALL on_doctype(void *user, const XML_Char *name, const XML_Char *system,
			       const XML_Char *public, int has_internal)
{
	(void)name;
	(void)system;
	(void)public;
	(void)has_internal;
	give_up(user);
}

static int parse(struct xml_parser *p, const char *text, size_t bytes)
{
	p->xml = XML_ParserCreate(NULL);
	if (!p->xml)
		return -ENOMEM;
	XML_SetUserData(p->xml, p);
	XML_SetElementHandler(p->xml, on_start, on_end);
	XML_SetCharacterDataHandler(p->xml, on_text);
	XML_SetStartDoctypeDeclHandler(p->xml, on_doctype);
	bool good = bytes <= INT32_MAX && XML_Parse(p->xml, text, (int)bytes, 1) == XML_STATUS_OK && !p->bad;

	XML_ParserFree(p->xml);
	free(p->object.key);
	return good ? 0 : -EBADMSG;
}

int xml_parse_list(const char *text, size_t bytes, struct xml_list *ret)
{
	struct xml_list list = {0};
	struct xml_parser p = {.root = "ListBucketResult", .list = &list};
	int r = parse(&p, text, bytes);

	if (r < 0) {
		xml_list_free(&list);
		return r;
	}
	*ret = list;
	return 0;
}

void xml_list_free(struct xml_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->objects[i].key);
	free(l->objects);
	free(l->next);
	*l = (struct xml_list){0};
}

bool xml_find(const char *text, size_t bytes, const char *root, const char *name, char *ret, size_t size)
{
	struct xml_parser p = {.root = root, .wanted = name, .found = ret, .found_size = size};

	ret[0] = '\0';
	return parse(&p, text, bytes) == 0 && p.is_found;
}
