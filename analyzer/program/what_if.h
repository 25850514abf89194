/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `diesel-analyze what-if`: predicts a recorded job's behaviour under changed conditions. */

#include "analyzer/predictions.h"
#include "lib/error.h"

struct options;

/* Without a question (options->what_if_asked), writes the curves and the least values needed. -ENODATA: the
 * recording does not suffice. */
int what_if_run(const struct options *options, struct error *err);
