/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "dataset/fields.h"

/* fields_begin() and fields_next() of the layouts that have columns. */
int fields_columns_begin(struct fields_walk *w);
int fields_columns_next(struct fields_walk *w, struct field *ret);
