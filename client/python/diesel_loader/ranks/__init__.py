# SPDX-License-Identifier: Apache-2.0
"""Which rank this process is, and whether all ranks are about to read in one order."""
