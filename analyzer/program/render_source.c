/* SPDX-License-Identifier: Apache-2.0 */
#include "render_source.h"

#include <inttypes.h>
#include <stdlib.h>

#include "analyzer/session.h"

static char *text(struct session *session, const char *key)
{
	char *value;

	return session_get_text(session, key, &value) == 0 ? value : NULL;
}

void render_source_load(struct session *session, const char *path, struct render_source *ret_source)
{
	char *clocks = text(session, SESSION_START_CLOCKS);
	struct render_source source = {
	    .host = text(session, SESSION_HOST),
	    .kernel = text(session, SESSION_KERNEL),
	    .machine = text(session, SESSION_MACHINE),
	    .version = text(session, SESSION_DIESEL_VERSION),
	};
	struct clock_snapshot *snapshot = &source.report.clocks;

	if (clocks && sscanf(clocks, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &snapshot->monotonic_ns,
			     &snapshot->boottime_ns, &snapshot->realtime_ns, &snapshot->uncertainty_ns) != 4)
		*snapshot = (struct clock_snapshot){0};
	free(clocks);
	source.report.session = path;
	source.report.host = source.host;
	source.report.kernel = source.kernel;
	source.report.machine = source.machine;
	source.report.version = source.version;
	source.report.cut_off = !session_complete(session);
	*ret_source = source;
}

void render_source_free(struct render_source *source)
{
	free(source->host);
	free(source->kernel);
	free(source->machine);
	free(source->version);
	*source = (struct render_source){0};
}
