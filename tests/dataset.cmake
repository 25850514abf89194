# SPDX-License-Identifier: Apache-2.0
foreach(module chunk shuffle snapshot)
  diesel_unit_test(dataset/${module} USES diesel_dataset)
  target_include_directories(test_dataset_${module} PRIVATE ${CMAKE_SOURCE_DIR}/dataset) # the private headers
endforeach()
