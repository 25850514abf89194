/* SPDX-License-Identifier: Apache-2.0 */
#include "dump.h"

#include <errno.h>

#include "analyzer/session.h"
#include "lib/error.h"
#include "lib/log.h"

int dump_session(const char *path, FILE *stream, struct error *err)
{
	struct session_cursor *cursor = NULL;
	struct session *session = NULL;
	const struct event *event;
	int r = session_open(path, &session, err);

	if (r)
		return r;
	r = session_cursor_open(session, NULL, &cursor, err);
	while (!r && (r = session_cursor_next(cursor, &event)) > 0)
		r = fwrite(event, sizeof(*event), 1, stream) == 1 ? 0 : -errno;
	if (!r && fflush(stream))
		r = -errno;
	if (r)
		error_errno(err, r, "cannot dump %s", path);
	else if (!session_complete(session))
		log_warning("%s was cut off: these are the events that are there", path);
	session_cursor_close(cursor);
	session_close(session);
	return r;
}
