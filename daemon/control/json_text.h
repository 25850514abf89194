/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdint.h>

/* A JSON string of any bytes. Bytes that jansson refuses (not UTF-8) and control characters are written as
 * text_line() writes them, so that a name, however strange, hides nothing. NULL: no memory. */
json_t *json_text(const char *text);

json_t *json_u64(uint64_t value);
/* null for NAN and infinity: not known. */
json_t *json_known(double value);
