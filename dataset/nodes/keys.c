/* SPDX-License-Identifier: Apache-2.0 */
#include "keys.h"

#include <stdio.h>
#include <string.h>

#include "dataset/checksum/checksum.h"

void registry_group_id(const struct registry_group_key *key, struct registry_group_id *ret)
{
	uint8_t text[4 + sizeof(key->dataset) + sizeof(key->job)];
	size_t job_bytes = strnlen(key->job, sizeof(key->job) - 1);
	struct checksum_128 sum;

	for (size_t i = 0; i < 4; i++)
		text[i] = (uint8_t)(key->uid >> (8 * i));
	memcpy(text + 4, key->dataset, sizeof(key->dataset));
	memcpy(text + 4 + sizeof(key->dataset), key->job, job_bytes);
	sum = checksum_xxh3_128(text, 4 + sizeof(key->dataset) + job_bytes);
	snprintf(ret->text, sizeof(ret->text), "%016llx%016llx", (unsigned long long)sum.high,
		 (unsigned long long)sum.low);
}

struct key key_nodes(const char *prefix, const struct registry_group_id *group)
{
	struct key key;

	snprintf(key.text, sizeof(key.text), "%s:cluster:{%s}:nodes", prefix, group->text);
	return key;
}

struct key key_node(const char *prefix, const struct registry_group_id *group, const char *node)
{
	struct key key;

	snprintf(key.text, sizeof(key.text), "%s:cluster:{%s}:node:%s", prefix, group->text, node);
	return key;
}

struct key key_groups(const char *prefix)
{
	struct key key;

	snprintf(key.text, sizeof(key.text), "%s:cluster:groups", prefix);
	return key;
}

struct key key_reports(const char *prefix)
{
	struct key key;

	snprintf(key.text, sizeof(key.text), "%s:cluster:reports", prefix);
	return key;
}

struct key key_report(const char *prefix, const char *node)
{
	struct key key;

	snprintf(key.text, sizeof(key.text), "%s:cluster:report:%s", prefix, node);
	return key;
}
