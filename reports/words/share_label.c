/* SPDX-License-Identifier: Apache-2.0 */
#include "share_label.h"

const struct share_label share_labels[SHARE_COUNT] = {
    {SHARE_FETCH_STALL, "fetch stall", "waits that fast storage would end", "fetch"},
    {SHARE_PREP_STALL, "prep stall", "waits for decoding and hand-off", "prep"},
    {SHARE_CHECKPOINT_STALL, "checkpoint", "saving checkpoints", "checkpoint"},
    {SHARE_COMPILING, "compiling", "torch.compile or JAX, paid once", "compiling"},
    {SHARE_CPU_STARVED, "cpu starved", "ready to run: no core or lock", "starved"},
    {SHARE_OTHER, "other", "asleep on purpose, or unexplained", "other"},
    {SHARE_DEVICE, "device", "computing: the useful time", "device"},
};
