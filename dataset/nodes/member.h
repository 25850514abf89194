/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a node says of itself in a group, as text:
 *
 *	diesel-node 1
 *	node=NAME
 *	address=ADDRESS:PORT or [ADDRESS]:PORT
 *	incarnation=N
 *	weight=BYTES
 *	lanes=N
 *	drift=N
 *	serves=FIRST-LAST and more such runs of lanes, with a space between two
 *	uid=N
 *	job=NAME
 *	dataset=32 hexadecimal digits
 *	path=PATH
 *
 * in this order, each line with a newline. Bytes other than printable ASCII, and '%', are %XX. What is wrong
 *in any way is no member: anybody who reaches the server can have written it. Pure.
 */

#include "dataset/registry.h"

#define MEMBER_TEXT       2048                /* with the NUL; longer ones are none */
#define MEMBER_MAX_WEIGHT (UINT64_C(1) << 50) /* bytes: more memory than a node has */

/* Whether it can be the name of a node: 1 to 63 bytes of UTF-8, without control characters. */
bool member_is_name(const char *text, size_t bytes);
/* Whether others could connect to it: a number, as above. */
bool member_is_address(const char *text);

/* Returns the length. group, key, path and member are the entry's; weights beyond the largest are that. */
size_t member_format(const struct registry_entry *entry, char text[MEMBER_TEXT]);
/* Whether it begins as what a node wrote, of this version or of another. */
bool member_is_ours(const char *text, size_t bytes);
/* -EINVAL. The group is that of its key. */
int member_parse(const char *text, size_t bytes, struct registry_entry *ret);
