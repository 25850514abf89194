/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of messages from clients. The first byte is the number of descriptors that come with the
 * message. */
#include <stdlib.h>
#include <string.h>

#include "client/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	union wire_message *m;
	size_t n;

	if (size < 1)
		return 0;
	n = size - 1 < sizeof(*m) ? size - 1 : sizeof(*m);
	/* A heap buffer of exactly the largest message lets sanitizers notice accesses past the end. */
	m = calloc(1, sizeof(*m));
	if (!m)
		return 0;
	memcpy(m, data + 1, n);
	if (protocol_check(m, n, data[0]) == 0) {
		union wire_message fresh;

		/* Properties on which all callers rely after the parser. */
		if (m->header.type >= WIRE_N_TYPES || data[0] > WIRE_MAX_FDS)
			abort();
		protocol_init(&fresh, (enum wire_type)m->header.type);
		if (fresh.header.bytes != n)
			abort();
		if (m->header.type == WIRE_ERROR && strlen(m->error.text) >= sizeof(m->error.text))
			abort();
		if (m->header.type == WIRE_OPEN_SESSION &&
		    (m->open_session.rank >= m->open_session.world || m->open_session.batch == 0 ||
		     m->open_session.offset >= m->open_session.stride))
			abort();
		if (m->header.type == WIRE_SET &&
		    (m->set.n_settings < 1 || m->set.n_settings > WIRE_SETTINGS_MAX))
			abort();
	}
	free(m);
	return 0;
}
