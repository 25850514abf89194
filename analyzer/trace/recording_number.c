/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/recording.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/cleanup.h"

/* Numbers are stored as text, so that any tool can read them and 64 unsigned bits fit. */

int recording_set_u64(struct recording *recording, const char *key, uint64_t value, struct error *err)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	return recording_set_text(recording, key, text, err);
}

int recording_get_u64(struct recording *recording, const char *key, uint64_t *ret_value)
{
	_cleanup_(freep) char *text = NULL;
	uint64_t value;
	char *end;
	int r = recording_get_text(recording, key, &text);

	if (r < 0)
		return r;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end)
		return -EBADMSG;
	*ret_value = value;
	return 0;
}
