# SPDX-License-Identifier: Apache-2.0
"""MLPerf Storage's RetinaNet: what jobs/storage.py and who starts it must agree on."""
BATCH, STEP_S = 24, 0.04755
BYTES = 322960  # of a file; MLPerf has 322,957, which is no multiple of 8
SUM = 0x5ca1ab1e0ddba11  # of a file's 64-bit words
SIDE = 800
