/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The name by which the modules of dataset include it. */

#include "dataset/checksum.h"
