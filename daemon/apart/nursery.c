/* SPDX-License-Identifier: Apache-2.0 */
#include "nursery.h"

#include "closer.h"
#include "codec.h"
#include "daemon/apart/work/unpack.h"
#include "opener.h"
#include "plugin.h"
#include "reader.h"
#include "stager.h"

static helper_run *const runs[HELPER_N_KINDS] = {
    [HELPER_READER] = reader_run, [HELPER_UNPACKER] = unpack_serve, [HELPER_OPENER] = opener_run,
    [HELPER_CLOSER] = closer_run, [HELPER_CODEC] = codec_run,       [HELPER_PLUGIN] = plugin_run,
    [HELPER_STAGER] = stager_run,
};

int nursery_fork(struct nursery *ret, struct error *err)
{
	static const struct nursery_program program = {.kind = HELPER_NURSERY, .runs = runs};

	return nursery_spawn(&program, ret, err);
}
