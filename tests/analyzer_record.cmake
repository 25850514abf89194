# SPDX-License-Identifier: Apache-2.0
add_executable(recorded_job ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/recorded_job.c)
target_link_libraries(recorded_job PRIVATE Threads::Threads)
diesel_script_test(integration record /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_record.py clocks)
diesel_script_test(integration record_ends /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_record.py others)
diesel_script_test(integration exact /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_exact.py)
diesel_script_test(integration refused /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_refused.py)
diesel_script_test(integration first.verdict /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/first/test_verdict.py)
diesel_script_test(integration unprivileged /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_unprivileged.py clocks)
diesel_script_test(integration unprivileged_messages
  /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_unprivileged.py others)
diesel_clock_tests(integration.record integration.unprivileged)
