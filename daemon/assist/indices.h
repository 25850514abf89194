/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a DataLoader's main process hands to a worker: the pickle of (number, [index, ...]). Only the few
 * opcodes that Python writes for this are understood, and nothing is run: all else is not a batch. Pure.
 */

#include <stddef.h>
#include <stdint.h>

#define INDICES_MAX 16384 /* of one batch */

/* Returns how many indices there are, 1 or more; -EBADMSG: it is something else; -ERANGE: an index is
 * negative or does not fit, or there are more than max. *ret_number: the batch's, which each epoch counts
 * from 0. */
int indices_parse(const uint8_t *bytes, size_t n, uint32_t *ret, size_t max, uint32_t *ret_number);
