# SPDX-License-Identifier: Apache-2.0
"""Writing datasets. In its own folder, because few programs use it."""
