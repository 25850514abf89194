/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A node's entry in a group, as text:
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
 * in this order, each line with a newline. Bytes other than printable ASCII, and '%', are %XX. An entry
 * with any error is rejected: anybody who reaches the server can have written it. Pure.
 */

#include "dataset/registry.h"

#define MEMBER_TEXT       2048                /* maximum length with the NUL; longer texts are rejected */
#define MEMBER_MAX_WEIGHT (UINT64_C(1) << 50) /* bytes; more memory than any node has */

/* Returns true if the text can be the name of a node: 1 to 63 bytes of UTF-8, without control characters. */
bool member_is_name(const char *text, size_t bytes);
/* Returns true if others could connect to the address: numeric, as above. */
bool member_is_address(const char *text);

/* Formats an entry. Returns the length. group, key, path and member are the entry's; larger weights are
 * clamped to the maximum. */
size_t member_format(const struct registry_entry *entry, char text[MEMBER_TEXT]);
/* Returns true if the text begins like one that a node wrote, of this version or another. */
bool member_is_ours(const char *text, size_t bytes);
/* Parses an entry. -EINVAL. The group is computed from the key. */
int member_parse(const char *text, size_t bytes, struct registry_entry *ret);
