# SPDX-License-Identifier: Apache-2.0
# Which tests ./dev test runs with AddressSanitizer and UBSan: they get the label "asan". Unit and fuzz tests all do. The rule for
# integration and fault tests: a test runs if it brings our C what that can get wrong in memory, which is bytes that somebody else
# made (a file, an image, a message, a table, what a process shows of itself) or an end at any moment (a signal, a fault, a client
# that goes). It does not where
#   - its subject is no C that this build instruments: not_our_c;
#   - others that run bring the same C the same kinds of bytes and ends, in less time or with another server, engine or loader:
#     it is left to those (LEFT_TO), which have to run. Where coverage was measured, one that is left reaches at most 60 lines of
#     C that no other test with a sanitizer does.
# A test runs until it is listed. It runs once: what holds with a sanitizer and with assertions holds without them, and those left to
# others show the optimized programs the same kinds of bytes. These alone run in both builds, so that no program, and no arithmetic
# that a compiler turns into vector instructions, is tested only without optimization:
set(optimized_too integration.dieseld_service integration.differential integration.first.verdict integration.image.agreement
  integration.image.webp integration.image.whole integration.index integration.mount integration.numpy integration.upgrade
  unit.lib.sandbox) # LeakSanitizer uses ptrace, which one of its tests forbids
# None has the label "clock": a sanitizer slows one side of what those compare, or adds processes to what they count.
set(not_our_c
  integration.abi                   # Python
  integration.batch_log             # the same
  integration.bucketing             # the same
  integration.fields_loader         # the same; integration.fields brings the bytes
  integration.jax                   # the same
  integration.mixture               # the same
  integration.torch_frameworks      # the same
  integration.torch_iterators       # the same
  integration.torch_misuse          # the same
  integration.checkpoint            # Python
  integration.checkpoint_faults     # the same
  integration.checkpoint_frameworks # the same
  integration.checkpoint_interval   # the same
  integration.checkpoint_numpy      # the same
  integration.c_client              # its programs are built without a sanitizer, as a user builds them
  integration.dieseld_cores         # it leaves no core with a sanitizer: the class of integration.dieseld_limits that skips there
  integration.docs                  # texts
  integration.endurance             # it weighs memory, of which a sanitizer keeps what was freed
  integration.gpu_utilization       # its Python loads libdiesel; unit.analyzer.gpu brings the bytes
  integration.gpu_day               # what is carried is a wheel's
  integration.house                 # reads sources and symbols, and runs nothing
  integration.importing             # Python; integration.fields and dataset.put_folder bring the bytes
  integration.importing_torch       # the same
  integration.musl                  # builds libdiesel again, with another C library
  integration.operator_files        # man pages, completions, units: texts
  integration.package               # the release is packed
  integration.package_clean         # the same
  integration.reports_page          # what runs is a browser; integration.reports writes the page
  integration.top_gpus              # a sanitizer takes no other path of libraries: the class of integration.top that skips there
  integration.wheel                 # the release is packed
  integration.wheel_frameworks      # the same
  integration.wheel_tools)          # what is run is the wheel's
set(not_with_asan ${not_our_c})
if(NOT DIESEL_SANITIZE) # a library makes their programs' calls fail; with a sanitizer, its runtime would have to come first
  list(APPEND not_with_asan fault.dataset.crash fault.dataset.kth fault.repair.damage fault.repair.refuse fault.verbs.calls)
endif()
set(relied_on "")
# diesel_not_with_asan(name... LEFT_TO name...)
macro(diesel_not_with_asan)
  cmake_parse_arguments(arg "" "" "LEFT_TO" ${ARGN})
  list(APPEND not_with_asan ${arg_UNPARSED_ARGUMENTS})
  list(APPEND relied_on ${arg_LEFT_TO})
endmacro()
diesel_not_with_asan(fault.killed LEFT_TO integration.dieseld_lifecycle integration.dieseld_restored)
diesel_not_with_asan(integration.assist_changes LEFT_TO integration.assist unit.daemon.data_sets unit.daemon.batch_log)
diesel_not_with_asan(integration.assist_hostile LEFT_TO integration.assist fuzz.indices unit.daemon.batch_log)
diesel_not_with_asan(integration.cluster_fleet LEFT_TO integration.redis.top_nodes integration.redis.cluster_status)
diesel_not_with_asan(integration.cluster_jobs integration.cluster_lanes integration.cluster_slurm integration.cluster_walk
  LEFT_TO integration.cluster_faults integration.cluster_stage)
diesel_not_with_asan(integration.cluster_links integration.cluster_rights integration.cluster_messages integration.cluster_whole
  LEFT_TO integration.cluster_faults integration.cluster_hostile integration.cluster_stage unit.daemon.net_frame)
diesel_not_with_asan(integration.codecs LEFT_TO unit.daemon.plugin) # the daemon ends while a codec hangs, with its memory
diesel_not_with_asan(integration.dataset.compressed_bucket integration.dataset.compressed_redis LEFT_TO integration.dataset.compressed_folder)
diesel_not_with_asan(integration.dataset.kept_bucket integration.dataset.kept_redis LEFT_TO integration.dataset.kept_folder)
diesel_not_with_asan(integration.dataset.killed_bucket LEFT_TO integration.dataset.killed_redis fault.verbs.kills)
diesel_not_with_asan(integration.dataset.life_bucket integration.dataset.life_redis LEFT_TO integration.dataset.life_folder)
diesel_not_with_asan(integration.dataset.shared_redis LEFT_TO integration.dataset.shared_folder)
diesel_not_with_asan(integration.dataset.pinned_bucket LEFT_TO integration.dataset.kept_folder)
diesel_not_with_asan(integration.dataset.purge_bucket integration.dataset.purge_folder LEFT_TO integration.dataset.purge_redis)
diesel_not_with_asan(integration.dataset.put_bucket integration.dataset.put_redis LEFT_TO integration.dataset.put_folder)
diesel_not_with_asan(integration.dataset.versions_bucket integration.dataset.versions_redis LEFT_TO integration.dataset.versions_folder)
diesel_not_with_asan(integration.dataset.writers_bucket integration.dataset.writers_redis LEFT_TO integration.dataset.writers_folder)
diesel_not_with_asan(integration.device integration.torch_loader integration.torch_membership
  LEFT_TO integration.numpy integration.torch_workers_faults)
diesel_not_with_asan(integration.arrays LEFT_TO integration.numpy fuzz.tensor)
diesel_not_with_asan(integration.dataset.links LEFT_TO integration.dataset.source integration.paths)
diesel_not_with_asan(integration.dataset.pinned_folder LEFT_TO integration.dataset.kept_folder)
diesel_not_with_asan(integration.dieseld_decoded LEFT_TO unit.daemon.decoded integration.dieseld_service)
diesel_not_with_asan(integration.dieseld_serving LEFT_TO integration.dieseld_shared integration.dieseld_service)
diesel_not_with_asan(integration.image.jpeg integration.image.png LEFT_TO integration.image.agreement integration.image.whole fuzz.image)
diesel_not_with_asan(integration.native LEFT_TO integration.image.whole fuzz.image unit.daemon.codec)
diesel_not_with_asan(integration.s3.jobs_neighbours LEFT_TO integration.s3.jobs_rclone)
diesel_not_with_asan(integration.shapes_jobs_apart LEFT_TO unit.analyzer.excluded integration.reports)
diesel_not_with_asan(integration.torch_workers_results integration.torch_workers_messages LEFT_TO integration.torch_workers_faults)
diesel_not_with_asan(integration.dieseld_knobs LEFT_TO unit.daemon.serving_knobs) # it turns all knobs at random
diesel_not_with_asan(integration.dieseld_shares LEFT_TO unit.daemon.read_turns unit.daemon.read_holds)
diesel_not_with_asan(integration.first.fixes LEFT_TO integration.first.steps)
diesel_not_with_asan(integration.kernels LEFT_TO unit.bpf.refusal integration.refused)
diesel_not_with_asan(integration.metrics_jobs LEFT_TO integration.dieseld_service integration.control)
diesel_not_with_asan(integration.on_demand LEFT_TO integration.own_daemon)
diesel_not_with_asan(integration.processes LEFT_TO integration.assist unit.lib.sandbox)
diesel_not_with_asan(integration.profile LEFT_TO unit.bpf.python_stack unit.bpf.python fuzz.elf_symbols fuzz.maps unit.analyzer.profile)
diesel_not_with_asan(integration.record_ends integration.unprivileged_messages LEFT_TO integration.refused integration.top integration.what_if)
diesel_not_with_asan(integration.redis.cluster integration.redis.redis LEFT_TO integration.dataset.purge_redis unit.dataset.redis)
diesel_not_with_asan(integration.redis.registry_cluster LEFT_TO integration.redis.registry unit.dataset.redis)
diesel_not_with_asan(integration.sensing_processes LEFT_TO unit.daemon.sensor unit.daemon.sensor_link)
diesel_not_with_asan(integration.s3.jobs_compressed LEFT_TO integration.s3.jobs_rclone integration.dieseld_compressed)
diesel_not_with_asan(integration.s3.jobs_kept LEFT_TO integration.s3.jobs_rclone integration.dataset.kept_folder)
diesel_not_with_asan(integration.s3.checkpoint_ranks LEFT_TO integration.s3.checkpoint)
diesel_not_with_asan(integration.s3.jobs_purged LEFT_TO integration.s3.jobs_faults integration.dataset.purge_redis)
diesel_not_with_asan(integration.s3.juicefs LEFT_TO integration.s3.rclone)
diesel_not_with_asan(integration.s3.jobs_juicefs LEFT_TO integration.s3.jobs_rclone)
diesel_not_with_asan(integration.s3.tutorial LEFT_TO integration.s3.jobs_rclone)
diesel_not_with_asan(integration.s3.writers LEFT_TO integration.s3.hostile integration.dataset.writers_folder)
diesel_not_with_asan(integration.torch_drop_in LEFT_TO unit.daemon.random_access)
diesel_not_with_asan(integration.torch_workers_end integration.torch_workers_number integration.torch_workers_order
  LEFT_TO integration.torch_workers_faults)
diesel_not_with_asan(integration.transforms LEFT_TO fuzz.image integration.image.whole)
diesel_not_with_asan(integration.truth LEFT_TO unit.analyzer.truth)
# Their Python loads libdiesel.so; see sitecustomize.py.
set(python_with_libdiesel
  fault.opening
  integration.arrays integration.first.fixes integration.first.steps
  integration.bucketing integration.by_number integration.cluster_faults integration.cluster_fleet integration.cluster_jobs integration.cluster_lanes integration.cluster_rights integration.cluster_stage integration.cluster_whole integration.device integration.differential integration.dieseld_restored integration.dieseld_decoded integration.dieseld_large integration.dieseld_lifecycle integration.dieseld_shared integration.fields integration.fields_native
  integration.dataset.compressed_folder integration.dataset.life_folder integration.dataset.pinned_folder
  integration.dataset.put_folder integration.dataset.shared_folder integration.index
  integration.native integration.numpy
  integration.dieseld_compressed integration.own_daemon integration.processes integration.paths
  integration.s3.checkpoint integration.s3.formats integration.s3.jobs_faults integration.s3.jobs_kept integration.s3.jobs_neighbours integration.s3.jobs_purged integration.s3.jobs_rclone
  integration.s3.jobs_shards integration.subset
  integration.torch_loader integration.torch_membership
  integration.torch_workers_end integration.torch_workers_faults integration.torch_workers_number
  integration.torch_workers_order integration.torch_workers_results integration.torch_workers_messages
  integration.upgrade integration.warm)

set(compiler clang) # the preset's: a build without a sanitizer asks what the one with it runs
if(DIESEL_SANITIZE)
  set(compiler ${CMAKE_C_COMPILER})
endif()
set(names libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so libclang_rt.asan.so)
if(DIESEL_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL GNU)
  set(names libasan.so)
endif()
set(asan_runtime "")
foreach(name ${names})
  execute_process(COMMAND ${compiler} -print-file-name=${name} OUTPUT_VARIABLE path
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(IS_ABSOLUTE "${path}" AND NOT asan_runtime)
    set(asan_runtime ${path})
  endif()
endforeach()
if(NOT asan_runtime)
  if(DIESEL_SANITIZE)
    message(WARNING "no shared runtime of AddressSanitizer: tests whose Python loads libdiesel.so do not run with it")
  endif()
  list(APPEND not_with_asan ${python_with_libdiesel})
  set(relied_on "")
endif()

if(DIESEL_SANITIZE MATCHES fuzzer) # the fuzz tests are programs there
  list(FILTER relied_on EXCLUDE REGEX "^fuzz\\.")
endif()
get_property(tests DIRECTORY PROPERTY TESTS)
foreach(test ${not_with_asan} ${relied_on} ${python_with_libdiesel} ${optimized_too})
  if(NOT test IN_LIST tests)
    message(FATAL_ERROR "tests/asan/tests.cmake: there is no test ${test}")
  endif()
endforeach()
foreach(test ${tests})
  get_property(labels TEST ${test} PROPERTY LABELS)
  if(NOT labels MATCHES "clock" AND NOT test IN_LIST not_with_asan)
    set_property(TEST ${test} APPEND PROPERTY LABELS asan)
  endif()
  if(DIESEL_SANITIZE AND test IN_LIST python_with_libdiesel)
    get_property(environment TEST ${test} PROPERTY ENVIRONMENT)
    list(TRANSFORM environment REPLACE "^PYTHONPATH=" "PYTHONPATH=${CMAKE_CURRENT_SOURCE_DIR}/asan:")
    set_property(TEST ${test} PROPERTY ENVIRONMENT "${environment};DIESEL_ASAN_PRELOAD=${asan_runtime}")
  endif()
endforeach()
foreach(test ${relied_on})
  get_property(labels TEST ${test} PROPERTY LABELS)
  if(NOT asan IN_LIST labels)
    message(FATAL_ERROR "tests/asan/tests.cmake: others are left to ${test}, which does not run with a sanitizer")
  endif()
endforeach()
if(NOT DIESEL_SANITIZE)
  foreach(test ${optimized_too}) # ./dev test leaves out what has the label
    get_property(labels TEST ${test} PROPERTY LABELS)
    list(REMOVE_ITEM labels asan)
    set_property(TEST ${test} PROPERTY LABELS ${labels})
  endforeach()
endif()
