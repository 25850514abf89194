/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Declarations that the files that write metrics share. */

#include <stdint.h>
#include <stdio.h>

#include "metrics.h"
