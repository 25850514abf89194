/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Appends a command in the wire format. -ENOMEM */

#include <stdio.h>
#include <string.h>

#include "dataset/chunk/buffer.h"

static inline int redis_command_append(struct buffer *b, size_t n, const char *const *args,
				       const size_t *sizes)
{
	char head[32];
	int r = buffer_append(b, head, (size_t)snprintf(head, sizeof(head), "*%zu\r\n", n));

	for (size_t i = 0; i < n && r == 0; i++) {
		size_t bytes = sizes ? sizes[i] : strlen(args[i]);

		r = buffer_append(b, head, (size_t)snprintf(head, sizeof(head), "$%zu\r\n", bytes));
		if (r == 0)
			r = buffer_append(b, args[i], bytes);
		if (r == 0)
			r = buffer_append(b, "\r\n", 2);
	}
	return r;
}

static inline int redis_command_text(struct buffer *b, size_t n, const char *const *args)
{
	return redis_command_append(b, n, args, NULL);
}
