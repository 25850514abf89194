# SPDX-License-Identifier: Apache-2.0
diesel_unit_test(bpf/symbol USES diesel_bpf_symbols)
diesel_unit_test(bpf/python_stack USES diesel_bpf_symbols)
