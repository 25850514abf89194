/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "ctl.h"

/* Continues as a Python program: main() of this module of the package diesel_loader, with the verb's name and
 * the arguments from argv[1] on. Takes $DIESEL_PYTHON, or the Python next to this program, or the one in
 * PATH. Returns only on failure, with CTL_FAILED. */
int ctl_python(const struct option_verb *verb, const char *module, char **argv);
