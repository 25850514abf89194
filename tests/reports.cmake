# SPDX-License-Identifier: Apache-2.0
diesel_unit_test(reports/report USES diesel_reports PkgConfig::jansson)
target_include_directories(test_reports_report PRIVATE ${CMAKE_SOURCE_DIR}/reports)
diesel_unit_test(reports/writers USES diesel_reports)
target_include_directories(test_reports_writers PRIVATE ${CMAKE_SOURCE_DIR}/reports)
add_executable(report_sample ${CMAKE_CURRENT_SOURCE_DIR}/integration/report_sample.c)
target_link_libraries(report_sample PRIVATE diesel_reports diesel_analyzer m)
diesel_script_test(integration reports /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/test_reports.py)
diesel_script_test(integration reports_page /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/test_reports_page.py)
