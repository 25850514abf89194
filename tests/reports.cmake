# SPDX-License-Identifier: Apache-2.0
diesel_unit_test(reports/report USES diesel_reports_text diesel_reports_json diesel_reports_html diesel_reports_trace PkgConfig::jansson)
diesel_unit_test(reports/writers USES diesel_reports_text diesel_reports_json diesel_reports_html diesel_reports_trace)
add_executable(report_sample ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/report_sample.c)
target_link_libraries(report_sample PRIVATE diesel_reports diesel_analyzer m)
diesel_script_test(integration reports /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_reports.py)
diesel_script_test(integration reports_page /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_reports_page.py)
