/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The name that the spaces of dataset have for it. */

#include "dataset/checksum.h"
