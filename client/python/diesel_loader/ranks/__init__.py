# SPDX-License-Identifier: Apache-2.0
"""Determines the rank of this process, and checks that all ranks read in the same order."""
