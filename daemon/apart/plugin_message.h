/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the daemon asks a process that loads a plug-in, with the file's descriptor, and what that answers:
 * fixed structs between copies of one program. The answer is not to be trusted. */

#include <stdbool.h>
#include <stdint.h>

#include "image/recipe.h"
#include "lib/error.h"

#define PLUGIN_OPEN_CPU_S 5  /* of CPU time, for open() */
#define PLUGIN_PATIENCE_S 30 /* then the process is ended, whatever it does */

struct plugin_order {
	bool opens; /* what comes out with the codec's options; else its name alone */
	struct recipe_codec codec;
};

struct plugin_reply {
	int32_t status; /* 0 or a negative errno, of error */
	uint32_t type;
	struct recipe_codec codec;
	struct error error;
};
