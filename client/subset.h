/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "client/diesel.h"
#include "dataset/subset.h"

struct diesel_subset {
	struct subset *chosen;
};
