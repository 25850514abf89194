# SPDX-License-Identifier: Apache-2.0
foreach(module cluster_name knob private_copies protocol ring share transport)
  diesel_unit_test(client/${module} USES diesel_client Threads::Threads)
endforeach()
target_include_directories(test_client_share PRIVATE ${CMAKE_SOURCE_DIR}/client) # it makes a session without a daemon
target_include_directories(test_client_cluster_name PRIVATE ${CMAKE_SOURCE_DIR}/client)
target_include_directories(test_client_private_copies PRIVATE ${CMAKE_SOURCE_DIR}/client)
foreach(module asked cache cache_fit cached_dataset chunk_load closer codec connection form_answer form_pace group forms frames hedge io job lend needs options metrics_totals orphans policy pool quota random_access read_holds read_latency read_turns reader replies sensor sensor_talk serving_knobs session_far batch_wait batch_write session_need session_plan settings shared_memory small_cache stage_index stage_pace unpack views whole_form work_turns)
  diesel_unit_test(daemon/${module} USES diesel_daemon_run)
endforeach()
target_include_directories(test_daemon_chunk_load PRIVATE ${CMAKE_SOURCE_DIR}/dataset/lookup) # it spoils snapshots
diesel_unit_test(daemon/chunk_peer USES diesel_daemon_cache) # it has a stand-in for the room cluster
diesel_unit_test(daemon/batch_log USES diesel_daemon_assist)
diesel_unit_test(daemon/data_sets USES diesel_daemon_assist)
diesel_unit_test(daemon/plugin USES diesel_daemon_run)
diesel_unit_test(daemon/control USES diesel_daemon_run diesel_sqlite)
diesel_unit_test(daemon/history USES diesel_history)
diesel_unit_test(daemon/recorded USES diesel_recorded)
diesel_fuzz_target(client/protocol USES diesel_client)
diesel_fuzz_target(daemon/indices USES diesel_daemon_assist)
diesel_unit_test(daemon/net_frame USES diesel_daemon_cluster)
diesel_unit_test(daemon/net_sources USES diesel_daemon_cluster)
diesel_unit_test(daemon/cluster USES diesel_daemon_cluster diesel_dataset)
diesel_fuzz_target(daemon/net_frame USES diesel_daemon_cluster)
diesel_fuzz_target(daemon/form_answer USES diesel_daemon_cache)

# A client for the scripts below; also measures (--touch).
add_executable(daemon_probe ${CMAKE_SOURCE_DIR}/tests/integration/dieseld/daemon_probe.c)
target_compile_options(daemon_probe PRIVATE ${DIESEL_WARNINGS})
target_link_libraries(daemon_probe PRIVATE diesel_client diesel_dataset diesel_base)
# Makes datasets of millions of samples, without as many files; for bench/bench_start.py, too.
add_executable(many_samples ${CMAKE_SOURCE_DIR}/tests/integration/dieseld/many_samples.c)
target_compile_options(many_samples PRIVATE ${DIESEL_WARNINGS})
target_link_libraries(many_samples PRIVATE diesel_dataset diesel_base)
diesel_unit_test(ctl/tree USES diesel_mount diesel_dataset_write PkgConfig::fuse3)
target_include_directories(test_ctl_tree PRIVATE ${CMAKE_SOURCE_DIR}/dataset/lookup) # it spoils snapshots
diesel_script_test(integration mount /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/mount/test_mount.py)
diesel_script_test(integration mount_hostile /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/mount/test_mount_hostile.py)
diesel_script_test(integration control /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dieseld/test_control.py)
foreach(subject borrowed carried serving lifecycle damage digest hangs idle large limits knobs service shared shares forms)
  diesel_script_test(integration dieseld_${subject}
    /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dieseld/test_dieseld_${subject}.py)
endforeach()
diesel_script_test(integration dieseld_compressed /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dataset/test_dieseld_compressed.py)
foreach(subject access opening)
  diesel_script_test(integration hostile_${subject}
    /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dieseld/test_hostile_${subject}.py)
endforeach()
diesel_script_test(integration own_daemon /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dieseld/test_own_daemon.py)
diesel_script_test(integration sensing /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dieseld/test_sensing.py)
diesel_script_test(integration stage /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/stage/test_stage.py)
foreach(subject faults fleet forms hedge jobs parts rights slurm stage views walk)
  diesel_script_test(integration cluster_${subject} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/cluster/test_cluster_${subject}.py)
endforeach()
diesel_script_test(integration warm /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/cluster/test_warm.py)
diesel_script_test(integration assist /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/assist/test_assist.py)
diesel_script_test(integration assist_changes /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/assist/test_assist_changes.py)
diesel_script_test(integration assist_hostile /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/assist/test_assist_hostile.py)
diesel_script_test(integration processes /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/dieseld/test_processes.py)
diesel_clock_tests(integration.sensing integration.dieseld_idle)
diesel_long_tests(integration.dieseld_carried integration.dieseld_knobs integration.dieseld_lifecycle integration.stage integration.assist_hostile)
diesel_waiting_tests(integration.dieseld_carried integration.dieseld_knobs integration.dieseld_lifecycle integration.stage
  integration.assist integration.assist_changes integration.processes integration.cluster_faults integration.cluster_fleet integration.cluster_forms integration.cluster_hedge integration.cluster_jobs integration.cluster_parts integration.cluster_rights integration.cluster_slurm integration.cluster_stage integration.cluster_views integration.cluster_walk integration.warm)
# It helps all jobs of the machine: of two at once, each would read ahead for the other's.
set_tests_properties(integration.assist integration.assist_changes integration.assist_hostile integration.processes PROPERTIES RESOURCE_LOCK assist)
# Nodes of a cluster, for the scripts below: what they know of each other is in a file.
add_executable(cluster_node ${CMAKE_SOURCE_DIR}/tests/integration/cluster/cluster_node.c support_registry.c)
target_compile_options(cluster_node PRIVATE ${DIESEL_WARNINGS})
target_link_libraries(cluster_node PRIVATE diesel_daemon_cluster diesel_dataset diesel_base Threads::Threads)
foreach(subject talk hostile links)
  diesel_script_test(integration cluster_${subject}
    /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/cluster/test_cluster_${subject}.py)
endforeach()
diesel_waiting_tests(integration.cluster_talk integration.cluster_hostile integration.cluster_links)
