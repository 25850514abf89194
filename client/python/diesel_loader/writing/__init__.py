# SPDX-License-Identifier: Apache-2.0
"""Writing datasets; in a folder of its own, as few programs use it."""
