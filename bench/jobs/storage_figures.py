# SPDX-License-Identifier: Apache-2.0
"""MLPerf Storage's RetinaNet: figures that jobs/storage.py and its caller share."""
BATCH, STEP_S = 24, 0.04755
BYTES = 322960  # length of a file; MLPerf's 322,957 is not a multiple of 8
SUM = 0x5ca1ab1e0ddba11  # sum of a file's 64-bit words, modulo 2^64
SIDE = 800
