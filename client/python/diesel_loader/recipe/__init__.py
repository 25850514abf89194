# SPDX-License-Identifier: Apache-2.0
"""Splits the user's transform into a recipe, which dieseld runs, and the steps that stay in Python."""
