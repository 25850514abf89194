/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Datasets of other formats. Python reads and writes them (diesel_loader.importing), because their own
 * packages are in Python.
 */

#include <stdbool.h>

#include "ctl/ctl.h"

/* Returns true if an argument is FORMAT:PATH with the name of another format. */
bool ctl_is_foreign(int argc, char **argv);
