/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as a node's entry in Redis. An accepted entry is written again with the same
 * meaning. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/nodes/member.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct registry_entry entry, again;
	char text[MEMBER_TEXT];

	if (member_parse((const char *)data, size, &entry) < 0)
		return 0;
	if (!member_is_name(entry.member.node, strlen(entry.member.node)) ||
	    member_parse(text, member_format(&entry, text), &again) < 0 ||
	    memcmp(&entry, &again, sizeof(entry)) != 0)
		abort();
	return 0;
}
