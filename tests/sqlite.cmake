# SPDX-License-Identifier: Apache-2.0
diesel_unit_test(sqlite/db USES diesel_sqlite m)
