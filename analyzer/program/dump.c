/* SPDX-License-Identifier: Apache-2.0 */
#include "dump.h"

#include <errno.h>

#include "analyzer/recording.h"
#include "lib/error.h"
#include "lib/log.h"

int dump_recording(const char *path, FILE *stream, struct error *err)
{
	struct recording_cursor *cursor = NULL;
	struct recording *recording = NULL;
	const struct event *event;
	int r = recording_open(path, &recording, err);

	if (r < 0)
		return r;
	r = recording_cursor_open(recording, NULL, &cursor, err);
	while (r == 0 && (r = recording_cursor_next(cursor, &event)) > 0)
		r = fwrite(event, sizeof(*event), 1, stream) == 1 ? 0 : -errno;
	if (r == 0 && fflush(stream))
		r = -errno;
	if (r < 0)
		error_errno(err, r, "cannot dump %s", path);
	else if (recording_under_way(recording))
		log_warning("%s is being recorded: these are the events that are there by now", path);
	else if (!recording_complete(recording))
		log_warning("%s was cut off: these are the events that are there", path);
	recording_cursor_close(cursor);
	recording_close(recording);
	return r;
}
