# SPDX-License-Identifier: Apache-2.0
foreach(module array bus_error capabilities cgroup error fd_message fd_store file_open huge_pages launch limits log options proc proc_task proc_written psi sandbox sorted text units utf8 zstd_frame)
  diesel_unit_test(lib/${module} USES diesel_base)
endforeach()
diesel_unit_test(lib/fd_io USES diesel_base Threads::Threads)
diesel_fuzz_target(lib/proc USES diesel_base)
diesel_script_test(integration house /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/test_house.py)
diesel_script_test(unit lint /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/lint/test_rules.py)
