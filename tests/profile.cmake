# SPDX-License-Identifier: Apache-2.0
foreach(module elf_symbols names processes python)
  diesel_unit_test(bpf/${module} USES diesel_bpf_symbols)
endforeach()
diesel_unit_test(analyzer/profile USES diesel_analyzer_pipeline diesel_analyzer_collect)
# The test looks for its own functions as the job's libraries show theirs.
set_target_properties(test_bpf_elf_symbols PROPERTIES ENABLE_EXPORTS ON)
foreach(parser elf_symbols maps)
  diesel_fuzz_target(bpf/${parser} USES diesel_bpf_symbols)
endforeach()
diesel_script_test(integration profile /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/analyze/test_profile.py)
