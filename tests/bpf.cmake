# SPDX-License-Identifier: Apache-2.0
diesel_unit_test(bpf/symbol USES diesel_bpf_symbols)
add_dependencies(test_bpf_symbol diesel_shared)
set_property(TEST unit.bpf.symbol PROPERTY ENVIRONMENT "DIESEL_LIBRARY=$<TARGET_FILE:diesel_shared>")
diesel_unit_test(bpf/mapped_file USES diesel_bpf_symbols)
diesel_unit_test(bpf/python_stack USES diesel_bpf_symbols)
diesel_unit_test(bpf/refusal USES diesel_bpf_collect PkgConfig::bpf)
