# SPDX-License-Identifier: Apache-2.0
diesel_unit_test(bpf/symbol USES diesel_bpf diesel_base)
target_include_directories(test_bpf_symbol PRIVATE ${CMAKE_SOURCE_DIR}/bpf)
