/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `diesel-analyze what-if`: predicts a recorded job's behaviour under changed conditions. */

#include "analyzer/predictions.h"
#include "lib/error.h"

#define WHAT_IF_NODES_MAX 10000

enum what_if_option {
	WHAT_IF_OPTION_CACHE,   /* 50% or 0.5 */
	WHAT_IF_OPTION_WORKERS, /* 0 to 256 */
	WHAT_IF_OPTION_CORES,   /* MODEL_CORES_MIN to MODEL_CORES_MAX */
	WHAT_IF_OPTION_STORAGE_MBPS,
	WHAT_IF_OPTION_STORAGE_SPEED,
	WHAT_IF_OPTION_DEVICE_SPEED, /* 2 or 2x */
	WHAT_IF_OPTION_SAMPLE_SIZE,  /* 0.5 or 0.5x */
	WHAT_IF_OPTION_NODES,        /* 1 to WHAT_IF_NODES_MAX */
	WHAT_IF_OPTION_DECODED,      /* 50% or 0.5; implies decoding by dieseld */
};

struct options;

/* Returns a question without any change. */
struct what_if_question what_if_question_none(void);

/* Sets the option's value in the question. Returns NULL, or static text that describes a valid value. */
const char *what_if_set(struct what_if_question *question, enum what_if_option option, const char *text);

/* Without a question (options->what_if_asked), writes the curves and the least values needed. -ENODATA: the
 * recording does not suffice. */
int what_if_run(const struct options *options, struct error *err);
