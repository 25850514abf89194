/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/cleanup.h"

/* Numbers are stored as text, so that any tool can read them and 64 unsigned bits fit. */

int session_set_u64(struct session *session, const char *key, uint64_t value, struct error *err)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	return session_set_text(session, key, text, err);
}

int session_get_u64(struct session *session, const char *key, uint64_t *ret_value)
{
	_cleanup_(freep) char *text = NULL;
	uint64_t value;
	char *end;
	int r = session_get_text(session, key, &text);

	if (r)
		return r;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end)
		return -EBADMSG;
	*ret_value = value;
	return 0;
}
