/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps "nan" and "inf" out of texts that people read. */
#include "round.h"

#include <ctype.h>
#include <string.h>

static bool begins_unknown(const char *text, const char *at)
{
	return (strncmp(at, "nan", 3) == 0 || strncmp(at, "inf", 3) == 0) && !isalnum((unsigned char)at[3]) &&
	       (at == text || !isalnum((unsigned char)at[-1]));
}

void words_mend(char *text)
{
	char *to = text;

	for (const char *at = text; *at;) {
		if (!begins_unknown(text, at)) {
			*to++ = *at++;
			continue;
		}
		if (to > text && to[-1] == '-')
			to--;
		*to++ = '?';
		at += 3;
	}
	*to = '\0';
}
