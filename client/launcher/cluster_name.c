/* SPDX-License-Identifier: Apache-2.0 */
/* The name by which the daemons of a job's nodes know that they serve one job (docs/explanation/cluster.md).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/session.h"

/* torchrun's default job ID, without --rdzv-id: shared by every such job on the machine. */
#define TORCHRUN_NONE "none"

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && value[0] ? value : NULL;
}

/* Ignores a variable that is not a valid name: launchers may use any names. */
static bool take(char *ret, const char *name)
{
	if (strlen(name) >= WIRE_CLUSTER_BYTES || !protocol_cluster_ok(name))
		return false;
	snprintf(ret, WIRE_CLUSTER_BYTES, "%s", name);
	return true;
}

static void find(char *ret)
{
	const char *run = variable("TORCHELASTIC_RUN_ID"), *job = variable("SLURM_JOB_ID"),
		   *step = variable("SLURM_STEP_ID");
	char text[2 * WIRE_CLUSTER_BYTES];

	if (run && strcmp(run, TORCHRUN_NONE) != 0 && take(ret, run))
		return;
	if (job && step && (size_t)snprintf(text, sizeof(text), "%s.%s", job, step) < sizeof(text))
		(void)take(ret, text);
}

int session_cluster_name(const struct diesel_session_options *o, char ret[WIRE_CLUSTER_BYTES],
			 struct error *err)
{
	memset(ret, 0, WIRE_CLUSTER_BYTES);
	if (o->cluster && (strlen(o->cluster) >= WIRE_CLUSTER_BYTES || !protocol_cluster_ok(o->cluster)))
		return error_set(
		    err, -EINVAL,
		    "cluster: the job's name must be valid UTF-8, without control characters, and have at "
		    "most %d bytes",
		    WIRE_CLUSTER_BYTES - 1);
	if (o->world <= 1)
		return 0;
	if (o->cluster)
		(void)take(ret, o->cluster);
	else
		find(ret);
	return 0;
}

/* Returns a number from 1 to world, or 0 if the variable has no such number. Uses only libc: a wheel has no
 * units.c. */
static uint32_t number(const char *name, uint32_t world)
{
	const char *text = variable(name);
	char *end = NULL;
	unsigned long n;

	if (!text || *text < '0' || *text > '9') /* strtoul() takes spaces and signs */
		return 0;
	n = strtoul(text, &end, 10);
	return *end == '\0' && n <= world ? (uint32_t)n : 0;
}

uint32_t session_cluster_nodes(const struct diesel_session_options *o)
{
	uint32_t local = number("LOCAL_WORLD_SIZE", o->world);

	if (o->world <= 1)
		return 0;
	if (o->nodes)
		return o->nodes < o->world ? o->nodes : o->world;
	if (o->flags & DIESEL_WARM) /* a warming process is not a rank of a node */
		return number("SLURM_STEP_NUM_NODES", o->world);
	/* torchrun starts equally many ranks on each node. */
	return local ? (o->world + local - 1) / local : number("SLURM_STEP_NUM_NODES", o->world);
}
