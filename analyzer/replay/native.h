/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Predicts the effect of dieseld on a job that decodes JPEG, PNG and WebP images in Python. Stack samples
 * show the part of preparing's computing that dieseld could do. Measurements of other jobs show the CPU time
 * that it would save there.
 */

#include "analyzer/predictions.h"
#include "analyzer/profile.h"

/*
 * CPU time of decoding and transforming in Python, over that in dieseld. The value: samples per CPU second of
 * dieseld over those of torchvision's ImageFolder under PyTorch's DataLoader in `bench decode`, with JPEG
 * images of 45 KB and Pillow 9.4; with 101 KB and Pillow 13 it was 2.9 (bench/results/decode.json). Low and
 * high: CPU clocks of dieseld's decoders compared with torchvision's in one process, with images of 44 to 274
 * KB (500 x 375 and 1440 x 1080) to 224 x 224 and 64 x 64, three rounds each
 * (docs/explanation/measuring-profile.md): from 2.5 to 4.4.
 */
#define NATIVE_SPEEDUP      3.7
#define NATIVE_SPEEDUP_LOW  2.5
#define NATIVE_SPEEDUP_HIGH 4.5

/* Fewest samples of decoding, and smallest part of all samples, from which decoding counts as seen. */
#define NATIVE_SAMPLES_MIN 20
#define NATIVE_PART_MIN    0.1

/* Returns the part of preparing's CPU time that dieseld could do. NAN: no decoding of JPEG, PNG or WebP
 * images was seen. The low end leaves out transforms if others, which dieseld does not run, may precede them.
 */
struct estimate native_part(const struct profile *profile);

/* Returns the part of preparing's CPU time that remains if dieseld does `part` of it, `speedup` times as
 * fast. */
double native_cost(double part, double speedup);
