# SPDX-License-Identifier: Apache-2.0
# Other kernels, booted in QEMU: ./dev kernels
add_executable(kernels_guest ${CMAKE_CURRENT_SOURCE_DIR}/kernels/guest.c)
target_compile_options(kernels_guest PRIVATE ${DIESEL_WARNINGS})
target_link_libraries(kernels_guest PRIVATE diesel_shared diesel_bpf_collect PkgConfig::bpf)
target_include_directories(kernels_guest PRIVATE ${CMAKE_SOURCE_DIR}/client/include)
# Debian's kernels come from its archive in the first run.
diesel_script_test(integration kernels /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/kernels/kernels.py --short)
set_tests_properties(integration.kernels PROPERTIES TIMEOUT 1800)
diesel_script_test(unit kernel_types /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/kernels/test_types.py)
