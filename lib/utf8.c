/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/utf8.h"

size_t utf8_decode(const char *text, size_t left, uint32_t *ret_code)
{
	/* The smallest code that needs so many bytes. A code written with more than it needs is not
	 * well-formed. */
	static const uint32_t smallest[UTF8_MAX + 1] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *bytes = (const unsigned char *)text;
	uint32_t code;
	size_t n;

	if (!left)
		return 0;
	n = bytes[0] < 0x80 ? 1 : bytes[0] < 0xc0 ? 0 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
	if (!n || n > left || bytes[0] >= 0xf8)
		return 0;
	code = n == 1 ? bytes[0] : bytes[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((bytes[i] & 0xc0) != 0x80) /* stops at a NUL too */
			return 0;
		code = code << 6 | (bytes[i] & 0x3f);
	}
	if (code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	if (ret_code)
		*ret_code = code;
	return n;
}
