# SPDX-License-Identifier: Apache-2.0
if(TARGET dieseld)
  foreach(subject drop_in frameworks iterators loader membership misuse workers_order workers_number workers_faults workers_end workers_results
    workers_messages)
    diesel_script_test(integration torch_${subject}
      /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/loader/test_torch_${subject}.py)
  endforeach()
  foreach(subject numpy jax batch_log bucketing device mixture native subset transforms arrays)
    diesel_script_test(integration ${subject}
      /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/loader/test_${subject}.py)
  endforeach()
  foreach(subject checkpoint checkpoint_interval checkpoint_faults checkpoint_frameworks checkpoint_numpy)
    diesel_script_test(integration ${subject} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/checkpoint/test_${subject}.py)
  endforeach()
  foreach(subject fields fields_loader fields_native)
    diesel_script_test(integration ${subject} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/fields/test_${subject}.py)
  endforeach()
  set(scripts 50)
  if(DIESEL_SANITIZE) # each takes three times as long
    set(scripts 16)
  endif()
  diesel_script_test(integration differential
    /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/differential/differential.py --scripts ${scripts})
  foreach(subject fixes steps)
    diesel_script_test(integration first.${subject} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/first/test_${subject}.py)
  endforeach()
  diesel_script_test(integration endurance /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/endurance/test_endurance.py)
  diesel_script_test(fault killed /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/fault/test_killed.py)
  diesel_script_test(fault opening /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/fault/test_opening.py)
  diesel_script_test(integration codecs /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/codec/test_codecs.py)
  diesel_script_test(integration by_number /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_by_number.py)
  diesel_script_test(integration index /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_index.py)
  diesel_script_test(integration paths /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_paths.py)
  diesel_script_test(integration dataset.pinned_folder
    /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_pinned.py folder)
  if(DIESEL_S3)
    diesel_script_test(integration dataset.pinned_bucket
      /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_pinned.py bucket)
  endif()
  diesel_script_test(integration on_demand /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/loader/test_on_demand.py)
  diesel_script_test(integration abi /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/wheel/test_abi.py)
  diesel_script_test(integration wheel /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/wheel/test_wheel.py)
  # The first run takes the packages of other formats from PyPI.
  set(importing /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/importing/test_importing.py)
  diesel_script_test(integration importing ${importing})
  diesel_script_test(integration importing_torch ${importing} torch)
  set_tests_properties(integration.importing integration.importing_torch PROPERTIES TIMEOUT 1800)
  # The first run takes PyTorch and what trains with it from PyPI.
  diesel_script_test(integration wheel_frameworks
    /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/wheel/test_wheel_frameworks.py)
  # The first run takes a compiler for older C libraries from PyPI.
  diesel_script_test(integration wheel_tools /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/wheel/test_wheel_tools.py)
  set_tests_properties(integration.wheel_frameworks integration.wheel_tools PROPERTIES TIMEOUT 1800)
  # packaging/wheel builds one at a time, so that the others would wait on their cores.
  set_tests_properties(integration.wheel integration.wheel_frameworks integration.wheel_tools PROPERTIES RESOURCE_LOCK wheel)
endif()
