/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Parses the message from a DataLoader's main process to a worker: the pickle of (number, [index, ...]). It
 * understands only the few opcodes that Python writes for this, and executes nothing: anything else is not a
 * batch. Pure.
 */

#include <stddef.h>
#include <stdint.h>

#define INDICES_MAX 16384 /* maximum of one batch */

/* Returns the number of indices, 1 or more; -EBADMSG: not a batch; -ERANGE: an index is negative or does not
 * fit, or there are more than max. *ret_number: the batch's number, which starts from 0 in each epoch. */
int indices_parse(const uint8_t *bytes, size_t n, uint32_t *ret, size_t max, uint32_t *ret_number);
