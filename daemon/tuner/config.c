/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner/tuner.h"

/* Two seconds: in the first one, batches from before the change still arrive; the second one shows the
 * effect. */
#define DWELL_NS UINT64_C(2000000000)
/* A settled job has at most one change in this time. */
#define COOLDOWN_NS UINT64_C(10000000000)

struct tuner_config tuner_config_default(void)
{
	return (struct tuner_config){
	    .prefetch_chunks_max = 1024,
	    .daemon_workers_max = 64,
	    .client_workers_max = 64,
	    .decoded_bytes_max = UINT64_MAX,
	    .dwell_ns = DWELL_NS,
	    .cooldown_ns = COOLDOWN_NS,
	};
}
