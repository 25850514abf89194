/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

/* A JSON string of any bytes: what jansson refuses (bytes that are no UTF-8), and control characters, are
 * written as text_line() writes them. So a name, however strange, hides nothing. NULL: no memory. */
json_t *json_text(const char *text);
