/* SPDX-License-Identifier: Apache-2.0 */
#include "manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HEX_BYTES (2 * DIGEST_BYTES + 1)

static void digest_format(const struct digest *d, char text[HEX_BYTES])
{
	for (int i = 0; i < DIGEST_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", d->bytes[i]);
}

static bool digest_parse(const char *text, struct digest *ret)
{
	for (int i = 0; i < DIGEST_BYTES; i++) {
		unsigned value;

		if (sscanf(text + 2 * i, "%2x", &value) != 1)
			return false;
		ret->bytes[i] = (uint8_t)value;
	}
	return true;
}

const char *manifest_key(uint64_t version, char key[MANIFEST_KEY])
{
	snprintf(key, MANIFEST_KEY, "versions/%016" PRIx64, ~version);
	return key;
}

size_t manifest_format(const struct manifest *m, char text[MANIFEST_MAX])
{
	char id[CHUNK_ID_TEXT], snapshot[HEX_BYTES], metadata[HEX_BYTES];

	if (m->version == 0)
		return (size_t)snprintf(text, MANIFEST_MAX, "DIESEL version 1\n0\n");
	if (m->is_removed)
		return (size_t)snprintf(text, MANIFEST_MAX, "DIESEL version 1\n%" PRIu64 "\nremoved\n",
					m->version);
	digest_format(&m->snapshot.sha256, snapshot);
	digest_format(&m->metadata.sha256, metadata);
	return (size_t)snprintf(text, MANIFEST_MAX,
				"DIESEL version 1\n%" PRIu64 "\n%s\nsnapshot %" PRIu64
				" %s\nmetadata %" PRIu64 " %s\n",
				m->version, chunk_id_format(&m->id, id), m->snapshot.bytes, snapshot,
				m->metadata.bytes, metadata);
}

int manifest_parse(const char *text, size_t bytes, struct manifest *ret)
{
	char copy[MANIFEST_MAX], again[MANIFEST_MAX], id[CHUNK_ID_TEXT] = "", snapshot[HEX_BYTES],
						      metadata[HEX_BYTES];
	struct manifest m = {0};
	unsigned format;

	if (bytes >= sizeof(copy))
		return -EBADMSG;
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	if (sscanf(copy, "DIESEL version %u\n", &format) != 1)
		return -EBADMSG;
	if (format != 1)
		return -EPROTONOSUPPORT;
	int n = sscanf(copy,
		       "DIESEL version 1\n%" SCNu64 "\n%32[0-9a-f]\nsnapshot %" SCNu64
		       " %64[0-9a-f]\nmetadata %" SCNu64 " %64[0-9a-f]\n",
		       &m.version, id, &m.snapshot.bytes, snapshot, &m.metadata.bytes, metadata);

	if (n == 6 && (chunk_id_parse(id, &m.id) < 0 || !digest_parse(snapshot, &m.snapshot.sha256) ||
		       !digest_parse(metadata, &m.metadata.sha256)))
		return -EBADMSG;
	if (n != 6 && n != 1)
		return -EBADMSG;
	m.is_removed = n == 1 && m.version != 0;
	/* Accepts only the canonical spelling of a manifest. */
	if (manifest_format(&m, again) != bytes || memcmp(again, text, bytes) != 0)
		return -EBADMSG;
	*ret = m;
	return 0;
}
