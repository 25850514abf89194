# SPDX-License-Identifier: Apache-2.0
foreach(module capabilities cgroup error launch limits proc proc_task psi text units)
  diesel_unit_test(lib/${module} USES diesel_base)
endforeach()
diesel_fuzz_target(lib/proc USES diesel_base)
