# SPDX-License-Identifier: Apache-2.0
"""Imports datasets of other formats, and exports to them, for `dieselctl pack FORMAT:PATH` and `dieselctl export`."""
