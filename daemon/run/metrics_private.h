/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files that write metrics share. */

#include <stdint.h>
#include <stdio.h>

#include "metrics.h"
