# SPDX-License-Identifier: Apache-2.0
diesel_unit_test(reports/report USES diesel_reports PkgConfig::jansson)
target_include_directories(test_reports_report PRIVATE ${CMAKE_SOURCE_DIR}/reports)
