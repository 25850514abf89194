# SPDX-License-Identifier: Apache-2.0
# Which integration and fault tests ./dev test runs with AddressSanitizer and UBSan: they get the label "asan" in builds
# that have those. Of the ones with the label "clock", it is these: a sanitizer slows one side of what the others compare, or
# adds processes to what they count.
set(clock_with_asan
  integration.what_if) # records, reports and predicts, and is short
# Of the others, it is all but these:
set(not_with_asan
  integration.gpu_day               # what is carried is a wheel's
  integration.house                 # reads sources and symbols, and runs nothing
  integration.cluster_walk          # Python, PyTorch and torchrun; to C it is integration.cluster_jobs
  integration.cluster_slurm         # Slurm and Python; the same
  integration.codecs                # the daemon ends while a codec hangs, with its memory; to C it is unit.daemon.plugin
  integration.package               # the release is packed
  integration.package_clean         # the same
  integration.wheel                 # the same
  integration.c_client              # its programs are built without a sanitizer, as a user builds them
  integration.mixture               # Python
  integration.musl                  # builds libdiesel anew, with another C library
  integration.wheel_frameworks      # the same
  integration.wheel_tools           # what is run is the wheel's
  integration.operator_files        # man pages, completions, units: texts
  integration.reports_page          # what runs is a browser; integration.reports writes the page
  integration.endurance             # it weighs memory, of which a sanitizer keeps what was freed
  fault.killed                      # long; what begins again is in integration.dieseld_lifecycle and dieseld_carried
  integration.assist_changes        # long; to C it is unit.daemon.data_sets, batch_log and integration.assist
  integration.assist_hostile        # long; to C it is fuzz.indices, unit.daemon.batch_log and integration.assist
  integration.dataset.put_bucket integration.dataset.put_redis # to C it is integration.dataset.put_folder
  integration.dataset.compressed_bucket integration.dataset.kept_bucket integration.dataset.pinned_bucket integration.dataset.purge_bucket integration.dataset.versions_bucket integration.dataset.writers_bucket # long; each has a folder, too
  integration.s3.juicefs integration.s3.jobs_juicefs # long; those with rclone are the same with another server
  integration.s3.writers            # long; to C it is integration.dataset.writers_folder and integration.s3.hostile
  integration.s3.jobs_compressed    # long; to C it is integration.dieseld_compressed and integration.s3.jobs_rclone
  integration.redis.cluster integration.redis.redis integration.redis.registry_cluster # minutes; to C it is unit.dataset.redis and integration.dataset.purge_redis
  integration.dieseld_knobs         # long; unit.daemon.serving_knobs turns all knobs at random
  integration.dieseld_shares        # fifty clients; to C it is unit.daemon.read_turns and read_holds
  integration.batch_log             # Python
  integration.jax                   # Python
  integration.on_demand             # Python; to C it is integration.dieseld_idle
  integration.torch_drop_in         # long, in Python; to C it is unit.daemon.random_access
  integration.torch_frameworks      # Python
  integration.torch_iterators       # Python
  integration.torch_membership      # long, in Python and Gloo; to C it is integration.torch_loader
  integration.torch_misuse          # Python
  integration.torch_workers_number  # long, in Python; to C it is integration.torch_workers_faults
  integration.torch_workers_order   # the same
  integration.transforms)           # Python; to C it is integration.native
# Their Python loads libdiesel.so; see sitecustomize.py.
set(python_with_libdiesel
  fault.opening
  integration.arrays integration.first.fixes integration.first.steps
  integration.bucketing integration.cluster_faults integration.cluster_fleet integration.cluster_jobs integration.cluster_lanes integration.cluster_rights integration.cluster_stage integration.cluster_whole integration.device integration.dieseld_carried integration.dieseld_forms integration.dieseld_large integration.dieseld_lifecycle integration.dieseld_shared
  integration.dataset.compressed_folder integration.dataset.pinned_folder integration.dataset.put_folder
  integration.native integration.numpy
  integration.dieseld_compressed integration.own_daemon integration.processes integration.paths
  integration.s3.jobs_faults integration.s3.jobs_kept integration.s3.jobs_neighbours integration.s3.jobs_purged integration.s3.jobs_rclone
  integration.torch_loader integration.torch_membership
  integration.torch_workers_end integration.torch_workers_faults integration.torch_workers_number
  integration.torch_workers_order integration.torch_workers_results integration.torch_workers_talk
  integration.upgrade integration.warm)

if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  set(names libasan.so)
else()
  set(names libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so libclang_rt.asan.so)
endif()
set(asan_runtime "")
foreach(name ${names})
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=${name} OUTPUT_VARIABLE path
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(IS_ABSOLUTE "${path}" AND NOT asan_runtime)
    set(asan_runtime ${path})
  endif()
endforeach()
if(NOT asan_runtime)
  message(WARNING "no shared runtime of AddressSanitizer: tests whose Python loads libdiesel.so do not run with it")
  list(APPEND not_with_asan ${python_with_libdiesel})
endif()

get_property(tests DIRECTORY PROPERTY TESTS)
foreach(test ${clock_with_asan} ${not_with_asan} ${python_with_libdiesel})
  if(NOT test IN_LIST tests)
    message(FATAL_ERROR "tests/asan/tests.cmake: there is no test ${test}")
  endif()
endforeach()
foreach(test ${tests})
  get_property(labels TEST ${test} PROPERTY LABELS)
  if(test IN_LIST clock_with_asan OR (labels MATCHES "^(integration|fault)$" AND NOT test IN_LIST not_with_asan))
    set_property(TEST ${test} APPEND PROPERTY LABELS asan)
  endif()
  if(test IN_LIST python_with_libdiesel)
    get_property(environment TEST ${test} PROPERTY ENVIRONMENT)
    list(TRANSFORM environment REPLACE "^PYTHONPATH=" "PYTHONPATH=${CMAKE_CURRENT_SOURCE_DIR}/asan:")
    set_property(TEST ${test} PROPERTY ENVIRONMENT "${environment};DIESEL_ASAN_PRELOAD=${asan_runtime}")
  endif()
endforeach()
