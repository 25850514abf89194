# SPDX-License-Identifier: Apache-2.0
diesel_script_test(integration what_if /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_what_if.py others)
diesel_script_test(integration what_if_plans /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_what_if.py clocks)
diesel_clock_tests(integration.what_if_plans ALONE)
diesel_unit_test(analyzer/plan USES diesel_plan)
