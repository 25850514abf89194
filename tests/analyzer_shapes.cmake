# SPDX-License-Identifier: Apache-2.0
add_library(loader_pool SHARED ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/loader_pool.c)
target_compile_options(loader_pool PRIVATE ${DIESEL_WARNINGS})
target_link_libraries(loader_pool PRIVATE Threads::Threads)
diesel_script_test(integration shapes /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_shapes.py)
diesel_script_test(integration shapes_jobs /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_shapes_jobs.py clocks)
diesel_script_test(integration shapes_jobs_apart /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_shapes_jobs.py others)
# Dozens of jobs that each import PyTorch: two minutes on a free machine, more on a busy one.
set_tests_properties(integration.shapes integration.shapes_jobs PROPERTIES TIMEOUT 900)
diesel_clock_tests(integration.shapes integration.shapes_jobs)
diesel_script_test(integration inline /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_inline.py)
diesel_clock_tests(integration.inline)
diesel_script_test(integration fresh /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/first/test_fresh.py)
diesel_clock_tests(integration.fresh)
