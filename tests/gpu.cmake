# SPDX-License-Identifier: Apache-2.0
# A stand-in for libcuda.so.1, one for each kind of first instruction; see its head. Only for tests.
foreach(prologue 1 2 3 4)
  add_library(standin_cuda_${prologue} SHARED ${CMAKE_CURRENT_SOURCE_DIR}/standin/libcuda.c)
  target_compile_definitions(standin_cuda_${prologue} PRIVATE PROLOGUE=${prologue} _GNU_SOURCE)
  target_compile_options(standin_cuda_${prologue} PRIVATE -fvisibility=hidden -fno-sanitize=all)
  target_link_options(standin_cuda_${prologue} PRIVATE -fno-sanitize=all -Wl,-soname,libcuda.so.1)
  target_link_libraries(standin_cuda_${prologue} PRIVATE Threads::Threads)
  set_target_properties(standin_cuda_${prologue} PROPERTIES PREFIX "" OUTPUT_NAME libcuda SUFFIX .so.1
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/standin/${prologue})
endforeach()

add_library(standin_nvml SHARED ${CMAKE_CURRENT_SOURCE_DIR}/standin/libnvidia-ml.c)
target_compile_options(standin_nvml PRIVATE -fvisibility=hidden -fno-sanitize=all)
target_link_options(standin_nvml PRIVATE -fno-sanitize=all -Wl,-soname,libnvidia-ml.so.1)
set_target_properties(standin_nvml PROPERTIES PREFIX "" OUTPUT_NAME libnvidia-ml SUFFIX .so.1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/standin/nvml)

# Libraries with named ranges.
function(diesel_ranges_library name file output)
  add_library(${name} SHARED ${CMAKE_CURRENT_SOURCE_DIR}/standin/${file})
  target_compile_options(${name} PRIVATE -fvisibility=hidden -fno-sanitize=all)
  target_compile_definitions(${name} PRIVATE ${ARGN})
  target_link_options(${name} PRIVATE -fno-sanitize=all -Wl,-soname,${output})
  set_target_properties(${name} PROPERTIES PREFIX "" OUTPUT_NAME ${output} SUFFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/standin/ranges)
endfunction()
diesel_ranges_library(standin_nvtx nvtx.c libnvToolsExt.so.1)
diesel_ranges_library(standin_usdt usdt.c libusdt.so SEMAPHORES=0)
diesel_ranges_library(standin_usdt_counted usdt.c libusdt-counted.so SEMAPHORES=1)

foreach(module checkpoints checkpoints_background gpu phases)
  diesel_unit_test(analyzer/${module} USES diesel_analyzer_pipeline diesel_analyzer_collect m)
endforeach()

diesel_unit_test(bpf/usdt USES diesel_bpf_symbols)
add_dependencies(test_bpf_usdt standin_usdt standin_usdt_counted)
set_property(TEST unit.bpf.usdt PROPERTY ENVIRONMENT
  "USDT_PLAIN=$<TARGET_FILE:standin_usdt>;USDT_COUNTED=$<TARGET_FILE:standin_usdt_counted>")

diesel_script_test(integration gpu /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_gpu.py clocks)
diesel_script_test(integration gpu_utilization /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_gpu.py others)
set_property(TEST integration.gpu integration.gpu_utilization APPEND PROPERTY ENVIRONMENT "DIESEL_STANDIN=${CMAKE_BINARY_DIR}/standin")
if(TARGET dieseld)
  diesel_script_test(integration gpu_day /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/test_gpu_day.py)
endif()
diesel_script_test(integration checkpoints /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_checkpoints.py)
diesel_script_test(integration phases /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_phases.py)
set_property(TEST integration.phases APPEND PROPERTY ENVIRONMENT "DIESEL_STANDIN=${CMAKE_BINARY_DIR}/standin")
diesel_script_test(integration hostile_job /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/probes/test_hostile_job.py)
set_property(TEST integration.hostile_job APPEND PROPERTY ENVIRONMENT "DIESEL_STANDIN=${CMAKE_BINARY_DIR}/standin")
diesel_clock_tests(integration.gpu ALONE)
diesel_clock_tests(integration.checkpoints integration.phases)
