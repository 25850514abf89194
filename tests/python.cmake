# SPDX-License-Identifier: Apache-2.0
if(TARGET dieseld)
  foreach(subject drop_in frameworks iterators loader membership misuse)
    diesel_torch_test(torch_${subject} ${CMAKE_SOURCE_DIR}/tests/integration/loader/test_torch_${subject}.py)
  endforeach()
  foreach(subject order number faults end results messages) # as forks, some have failed on a busy machine, and the cause is not known
    diesel_script_test(integration torch_workers_${subject} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/loader/test_torch_workers_${subject}.py)
  endforeach()
  foreach(subject device native subset)
    diesel_torch_test(${subject} ${CMAKE_SOURCE_DIR}/tests/integration/loader/test_${subject}.py)
  endforeach()
  foreach(subject numpy jax batch_log bucketing mixture transforms arrays)
    diesel_script_test(integration ${subject}
      /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/loader/test_${subject}.py)
  endforeach()
  foreach(subject checkpoint checkpoint_faults checkpoint_frameworks)
    diesel_torch_test(${subject} ${CMAKE_SOURCE_DIR}/tests/integration/checkpoint/test_${subject}.py)
  endforeach()
  foreach(subject checkpoint_interval checkpoint_numpy)
    diesel_script_test(integration ${subject} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/checkpoint/test_${subject}.py)
  endforeach()
  diesel_script_test(integration fields /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/fields/test_fields.py)
  foreach(subject fields_loader fields_native)
    diesel_torch_test(${subject} ${CMAKE_SOURCE_DIR}/tests/integration/fields/test_${subject}.py)
  endforeach()
  set(scripts 50)
  if(DIESEL_SANITIZE) # each takes three times as long
    set(scripts 16)
  endif()
  diesel_torch_test(differential
    ${CMAKE_SOURCE_DIR}/tests/integration/differential/differential.py --scripts ${scripts})
  diesel_torch_test(first.fixes ${CMAKE_SOURCE_DIR}/tests/integration/first/test_fixes.py)
  diesel_script_test(integration first.steps /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/first/test_steps.py)
  diesel_script_test(integration endurance /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/endurance/test_endurance.py)
  diesel_script_test(fault killed /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/fault/test_killed.py)
  diesel_script_test(fault opening /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/fault/test_opening.py)
  diesel_torch_test(codecs ${CMAKE_SOURCE_DIR}/tests/integration/codec/test_codecs.py)
  diesel_script_test(integration by_number /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_by_number.py)
  diesel_script_test(integration index /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_index.py)
  diesel_script_test(integration paths /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_paths.py)
  diesel_torch_test(dataset.pinned_folder
    ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_pinned.py folder)
  if(DIESEL_S3)
    diesel_torch_test(dataset.pinned_bucket
      ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_pinned.py bucket)
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
