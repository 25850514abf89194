/* SPDX-License-Identifier: Apache-2.0 */
#include "render_source.h"

#include <inttypes.h>
#include <stdlib.h>

#include "analyzer/recording.h"

static char *text(struct recording *recording, const char *key)
{
	char *value;

	return recording_get_text(recording, key, &value) == 0 ? value : NULL;
}

void render_source_load(struct recording *recording, const char *path, struct render_source *ret_source)
{
	char *clocks = text(recording, RECORDING_START_CLOCKS);
	struct render_source source = {
	    .host = text(recording, RECORDING_HOST),
	    .kernel = text(recording, RECORDING_KERNEL),
	    .machine = text(recording, RECORDING_MACHINE),
	    .version = text(recording, RECORDING_DIESEL_VERSION),
	};
	struct clock_snapshot *snapshot = &source.report.clocks;

	if (clocks && sscanf(clocks, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &snapshot->monotonic_ns,
			     &snapshot->boottime_ns, &snapshot->realtime_ns, &snapshot->uncertainty_ns) != 4)
		*snapshot = (struct clock_snapshot){0};
	free(clocks);
	source.report.recording = path;
	source.report.host = source.host;
	source.report.kernel = source.kernel;
	source.report.machine = source.machine;
	source.report.version = source.version;
	source.report.cut_off = !recording_complete(recording);
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
