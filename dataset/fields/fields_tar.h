/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "dataset/fields.h"

/* As fields_next(), for the layout "tar". */
int fields_tar_next(struct fields_walk *w, struct field *ret);
