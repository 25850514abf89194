/* SPDX-License-Identifier: Apache-2.0 */
#include "client/knob.h"

#include <errno.h>
#include <string.h>

const struct tuner_knob_info tuner_knob_table[TUNER_N_KNOBS] = {
    [TUNER_CACHE_BYTES] = {.name = "cache-bytes",
			   .setting = "cache",
			   .saved = "cache",
			   .bytes = true,
			   .free = TUNER_FREE_BYTES,
			   .key = WIRE_SET_CACHE,
			   .limit = WIRE_SET_CACHE_MAX},
    [TUNER_PREFETCH_CHUNKS] = {.name = "prefetch-chunks",
			       .setting = "prefetch",
			       .saved = "prefetch",
			       .free = TUNER_FREE_NUMBER,
			       .key = WIRE_SET_PREFETCH,
			       .limit = WIRE_SET_PREFETCH_MAX},
    [TUNER_DAEMON_WORKERS] = {.name = "daemon-workers",
			      .setting = "workers",
			      .saved = "workers",
			      .free = TUNER_FREE_NUMBER,
			      .key = WIRE_SET_WORKERS,
			      .limit = WIRE_SET_WORKERS_MAX},
    [TUNER_CLIENT_WORKERS] = {.name = "client-workers",
			      .setting = "client-workers",
			      .saved = "client_workers",
			      .free = TUNER_FREE_NUMBER,
			      .key = WIRE_SET_CLIENT_WORKERS,
			      .limit = WIRE_SET_CLIENT_WORKERS_MAX},
    [TUNER_DECODED_BYTES] = {.name = "decoded-bytes",
			     .setting = "decoded-cache",
			     .saved = "decoded-cache",
			     .bytes = true,
			     .free = TUNER_FREE_BYTES,
			     .key = WIRE_SET_DECODED_CACHE,
			     .limit = WIRE_SET_DECODED_CACHE_MAX},
};

const char *tuner_knob_name(enum tuner_knob knob)
{
	return (unsigned int)knob < TUNER_N_KNOBS ? tuner_knob_table[knob].name : "?";
}

int tuner_knob_parse(const char *name, enum tuner_knob *ret)
{
	for (int i = 0; i < TUNER_N_KNOBS; i++) {
		if (strcmp(name, tuner_knob_table[i].name) == 0) {
			*ret = (enum tuner_knob)i;
			return 0;
		}
	}
	return -EINVAL;
}

int tuner_knob_of_key(enum wire_setting_key key, enum tuner_knob *ret)
{
	for (int i = 0; i < TUNER_N_KNOBS; i++) {
		if (tuner_knob_table[i].key == key) {
			*ret = (enum tuner_knob)i;
			return 0;
		}
	}
	return -EINVAL;
}
