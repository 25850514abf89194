/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A plug-in in the process that it works in. Never in the daemon's own. */

#include <stdint.h>

#include "diesel/diesel_codec.h"
#include "image/recipe.h"
#include "lib/error.h"

/* Loads it from the descriptor, which is closed: its constructors run, without capabilities. To be called
 * outside of the sandbox. -ELIBBAD: it cannot be loaded, is none, or of another version. */
int plugin_load(int fd, const struct diesel_codec **ret, struct error *err);

struct plugin_codec {
	const struct diesel_codec *codec;
	void *state;
	/* Its output: pages, between two that nobody can touch. */
	uint8_t *pages;
	uint64_t pages_bytes;
	uint8_t *out;
	uint64_t out_bytes;
};

/* Makes space for what comes out. -ENOMEM. */
int plugin_space(struct plugin_codec *p, uint64_t out_bytes);

/* Opens it, in the sandbox. Fills in type and dimensions of what comes out. A negative errno: its own, or
 * -ELIBBAD for what it must not do. */
int plugin_open(struct plugin_codec *p, const char *options, uint32_t *ret_type, struct recipe_codec *codec,
		struct error *err);

/* Decodes one sample to out[out_bytes] of the space. As plugin_open(). */
int plugin_decode(struct plugin_codec *p, const uint8_t *data, uint64_t bytes, uint64_t seed,
		  struct error *err);
