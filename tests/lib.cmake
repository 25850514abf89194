# SPDX-License-Identifier: Apache-2.0
foreach(module cgroup error proc psi text units)
  diesel_unit_test(lib/${module} USES diesel_base)
endforeach()
