# SPDX-License-Identifier: Apache-2.0
"""Readers of other formats: each module has open_source()."""
