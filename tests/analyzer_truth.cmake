# SPDX-License-Identifier: Apache-2.0
diesel_unit_test(analyzer/truth USES diesel_analyzer_truth)
add_dependencies(test_analyzer_truth truth_shim)
diesel_script_test(integration truth /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_truth.py)
