# SPDX-License-Identifier: Apache-2.0
foreach(module figures share pressure target)
  diesel_unit_test(tuner/${module} USES diesel_tuner)
endforeach()
foreach(module names decide decoded hostile simulate)
  diesel_unit_test(tuner/${module} USES diesel_tuner_sim diesel_tuner)
endforeach()
