# SPDX-License-Identifier: Apache-2.0
diesel_script_test(integration c_client /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/test_c_client.py)
diesel_script_test(integration package /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/test_package.py)
diesel_script_test(integration docs /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/test_docs.py)
# The first run makes a Debian with debootstrap.
diesel_script_test(integration package_clean /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/test_package_clean.py)
# test_musl.py builds it again, with musl.
add_executable(library_reader ${CMAKE_SOURCE_DIR}/tests/integration/dieseld/library_reader.c)
target_compile_options(library_reader PRIVATE ${DIESEL_WARNINGS})
target_link_libraries(library_reader PRIVATE diesel_client Threads::Threads)
diesel_script_test(integration musl /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/test_musl.py)
diesel_script_test(integration metrics_jobs /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dieseld/test_metrics_jobs.py)
diesel_script_test(integration operator_files /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/test_operator_files.py)
