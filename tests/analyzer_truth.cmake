# SPDX-License-Identifier: Apache-2.0
foreach(module truth_files truth_result)
  diesel_unit_test(analyzer/${module} USES diesel_analyzer_truth)
endforeach()
diesel_script_test(integration truth /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_truth.py)
