/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Loads and runs a plug-in in a helper process, never in the daemon itself. */

#include <stdint.h>

#include "diesel/diesel_codec.h"
#include "image/recipe.h"
#include "lib/error.h"

struct plugin_codec {
	const struct diesel_codec *codec;
	void *state;
	/* Memory for the codec's output, between two guard pages. */
	uint8_t *pages;
	uint64_t pages_bytes;
	uint8_t *out;
	uint64_t out_bytes;
};

/* Loads a plug-in from the descriptor, which is closed, and allocates memory for its output. out_bytes 0: the
 * codec will only be opened. Its constructors run, without capabilities. Must be called before the process
 * enters the sandbox. -ELIBBAD: the file cannot be loaded, is not a codec, or is of another version;
 * -ENOMEM. */
int plugin_load(int fd, uint64_t out_bytes, struct plugin_codec *ret, struct error *err);

/* Opens the codec, in the sandbox. Fills in type and dimensions of its output. Returns 0, the codec's own
 * negative errno, or -ELIBBAD if the codec broke a rule. */
int plugin_open(struct plugin_codec *p, const char *options, uint32_t *ret_type, struct recipe_codec *codec,
		struct error *err);

/* Decodes one sample to p->out, p->out_bytes long. Errors as plugin_open(). */
int plugin_decode(struct plugin_codec *p, const uint8_t *data, uint64_t bytes, uint64_t seed,
		  struct error *err);
