# SPDX-License-Identifier: Apache-2.0
diesel_unit_test(analyzer/session USES diesel_analyzer diesel_base)
