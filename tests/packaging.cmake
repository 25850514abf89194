# SPDX-License-Identifier: Apache-2.0
diesel_script_test(integration package /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/test_package.py)
