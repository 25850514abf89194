# SPDX-License-Identifier: Apache-2.0
"""Exports of datasets to other formats."""
