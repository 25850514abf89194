/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/utf8.h"

size_t utf8_decode(const char *text, size_t left, uint32_t *ret_code)
{
	/* Smallest code that needs this number of bytes. A code written with more bytes than necessary is not
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
		if ((bytes[i] & 0xc0) != 0x80) /* also stops at a NUL */
			return 0;
		code = code << 6 | (bytes[i] & 0x3f);
	}
	if (code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	if (ret_code)
		*ret_code = code;
	return n;
}

bool utf8_is_hidden(uint32_t code)
{
	static const struct {
		uint32_t first, last;
	} hidden[] = {
	    {0, 0x1f},          {0x7f, 0x9f},       {0xad, 0xad},     {0x61c, 0x61c},   {0x115f, 0x1160},
	    {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
	    {0x3164, 0x3164},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3},
	    {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
	};

	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (code >= hidden[i].first && code <= hidden[i].last)
			return true;
	return false;
}
