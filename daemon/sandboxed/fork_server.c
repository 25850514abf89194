/* SPDX-License-Identifier: Apache-2.0 */
#include "fork_server.h"

#include "closer.h"
#include "codec.h"
#include "daemon/sandboxed/work/unpack.h"
#include "opener.h"
#include "plugin.h"
#include "reader.h"
#include "stager.h"

static helper_run *const runs[HELPER_N_KINDS] = {
    [HELPER_READER] = reader_run, [HELPER_UNPACKER] = unpack_serve, [HELPER_OPENER] = opener_run,
    [HELPER_CLOSER] = closer_run, [HELPER_CODEC] = codec_run,       [HELPER_PLUGIN] = plugin_run,
    [HELPER_STAGER] = stager_run,
};

int fork_server_fork(struct fork_server *ret, struct error *err)
{
	static const struct fork_server_program program = {.kind = HELPER_FORK_SERVER, .runs = runs};

	return fork_server_spawn(&program, ret, err);
}
