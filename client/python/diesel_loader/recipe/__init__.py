# SPDX-License-Identifier: Apache-2.0
"""Transforms that dieseld runs: from the user's own transform to what the daemon is told, and what stays in Python."""
