/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Converts 16-bit floating point to and from single precision. Rounds to nearest, ties to even. */

#include <stdint.h>
#include <string.h>

static inline uint32_t number_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float number_of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Shifts right and rounds, ties to even. */
static inline uint32_t number_shift(uint32_t value, uint32_t n)
{
	uint32_t half = 1u << (n - 1), rest = value & ((1u << n) - 1), shifted = value >> n;

	return shifted + (rest > half || (rest == half && (shifted & 1)));
}

/* Converts to IEEE 754's binary16. */
static inline uint16_t number_half(float value)
{
	uint32_t bits = number_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
	uint32_t exponent = magnitude >> 23;

	if (magnitude > 0x7f800000) /* NaN */
		return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
	if (exponent < 102) /* less than half of the smallest subnormal number */
		return (uint16_t)sign;
	if (exponent < 113) /* subnormal */
		return (uint16_t)(sign | number_shift((magnitude & 0x7fffff) | 0x800000, 126 - exponent));
	magnitude = number_shift(magnitude - (112u << 23), 13);
	return (uint16_t)(sign |
			  (magnitude > 0x7c00 ? 0x7c00 : magnitude)); /* too large values become infinite */
}

static inline float number_of_half(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;

	if (magnitude >= 0x7c00) /* infinite, or NaN */
		return number_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
	if (magnitude >= 0x400)
		return number_of_bits(sign | ((magnitude << 13) + (112u << 23)));
	return number_of_bits(sign | number_bits((float)magnitude * 0x1p-24f));
}

/* Converts to bfloat16: the upper half of single precision. */
static inline uint16_t number_brain(float value)
{
	uint32_t bits = number_bits(value);

	if ((bits & 0x7fffffff) > 0x7f800000) /* NaN, which rounding could turn into a number */
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)number_shift(bits, 16);
}

static inline float number_of_brain(uint16_t brain)
{
	return number_of_bits((uint32_t)brain << 16);
}
