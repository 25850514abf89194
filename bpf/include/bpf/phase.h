/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Named ranges that a program marks itself, from two sources:
 *
 *   NVTX   nvtxRangePush and Pop, also in domains, where the program calls a library that exports them
 *          (libnvToolsExt.so.1; ranges that header-only NVTX 3 hands to an injected tool are not seen)
 *   USDT   pairs of probes NAME_begin and NAME_end of the provider `diesel` in any library or program:
 *          DTRACE_PROBE(diesel, forward_begin). In libdiesel itself diesel_mark is probed instead, which has
 *          the same markers, is in every version, and takes one probe instead of two.
 *
 * A name is a metadata entry of the kind PHASE_METADATA, with phase.value of the EVENT_PHASE as its key.
 */

#define PHASE_METADATA "phase" /* the name, without a terminating NUL */
#define PHASE_NAME_MAX 64      /* maximum bytes of a stored name, with its NUL */
