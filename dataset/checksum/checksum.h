/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Forwards to the public header, under the name that modules of dataset/ include. */

#include "dataset/checksum.h"
