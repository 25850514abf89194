# SPDX-License-Identifier: Apache-2.0
foreach(module blocks chunk fairness fields meta pack shuffle snapshot snapshot_hash snapshot_update split store subset writer)
  diesel_unit_test(dataset/${module} USES diesel_dataset)
endforeach()
target_sources(test_dataset_blocks PRIVATE ${CMAKE_SOURCE_DIR}/client/elsewhere/zstd_decode.c) # libdiesel's way to libzstd
target_link_libraries(test_dataset_blocks PRIVATE ${CMAKE_DL_LIBS})

foreach(case full limit refuse)
  diesel_script_test(fault dataset.${case} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/fault/dataset_faults.py ${case})
endforeach()

diesel_torch_test(dataset.imagefolder
  ${CMAKE_SOURCE_DIR}/tests/integration/test_imagefolder.py)

foreach(case kills flips)
  diesel_script_test(fault verbs.${case} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/fault/dataset_verbs.py ${case})
endforeach()
diesel_script_test(integration dataset.source /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_source.py)
diesel_script_test(integration dataset.stat /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_stat.py)
diesel_script_test(integration dataset.looking /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_looking.py)
diesel_script_test(integration dataset.links /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_links.py)
diesel_script_test(integration dataset.shown /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_shown.py)
diesel_script_test(integration dataset.tar /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_tar.py)
diesel_script_test(integration dataset.progress /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_progress.py)
diesel_script_test(integration dataset.reader
  /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/formats/test_reader.py)
set_property(TEST fault.verbs.flips integration.dataset.imagefolder integration.dataset.reader integration.dataset.source integration.dataset.tar
  APPEND PROPERTY LABELS computes)

# Sanitizers want to be loaded first, so the failing calls are injected into plain builds only.
if(NOT DIESEL_SANITIZE)
  add_library(failk MODULE ${CMAKE_SOURCE_DIR}/tests/fault/failk.c)
  target_link_libraries(failk PRIVATE ${CMAKE_DL_LIBS})
  foreach(case kth crash)
    diesel_script_test(fault dataset.${case} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/fault/dataset_faults.py ${case})
  endforeach()
  diesel_script_test(fault verbs.calls /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/fault/dataset_verbs.py calls)
  foreach(case damage refuse)
    diesel_script_test(fault repair.${case} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/fault/dataset_repair.py ${case})
  endforeach()
endif()

diesel_script_test(integration dataset.killed_redis
  /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_killed.py redis)
foreach(engine folder redis)
  foreach(case compressed kept versions purge writers put shared life)
    diesel_script_test(integration dataset.${case}_${engine}
      /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_${case}.py ${engine})
  endforeach()
endforeach()
if(DIESEL_S3)
  foreach(case compressed kept killed versions purge writers put life)
    diesel_script_test(integration dataset.${case}_bucket
      /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_${case}.py bucket)
  endforeach()
endif()

diesel_unit_test(dataset/redis USES diesel_dataset_redis)
foreach(case redis cluster tls)
  diesel_script_test(integration redis.${case} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/redis/test_${case}.py)
endforeach()

foreach(module owner member)
  diesel_unit_test(dataset/${module} USES diesel_dataset_nodes m)
endforeach()
diesel_fuzz_target(dataset/member USES diesel_dataset_nodes)
add_executable(registry_node ${CMAKE_SOURCE_DIR}/tests/integration/redis/registry_node.c)
target_link_libraries(registry_node PRIVATE diesel_dataset_nodes)
foreach(case registry registry_cluster cluster_status top_nodes)
  diesel_script_test(integration redis.${case} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/redis/test_${case}.py)
endforeach()

diesel_fuzz_target(ctl/tar USES diesel_packing)
diesel_fuzz_target(ctl/csv USES diesel_packing)
diesel_fuzz_target(dataset/fields USES diesel_dataset_fields)
foreach(parser blocks change chunk_head redis_reply redis_url snapshot)
  diesel_fuzz_target(dataset/${parser} USES diesel_dataset_write)
endforeach()
