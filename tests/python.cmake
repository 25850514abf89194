# SPDX-License-Identifier: Apache-2.0
if(TARGET dieseld)
  diesel_script_test(integration torch_loader /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/test_torch_loader.py)
  diesel_script_test(integration torch_workers /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/test_torch_workers.py)
endif()
