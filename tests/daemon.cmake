# SPDX-License-Identifier: Apache-2.0
if(NOT TARGET diesel_daemon)
  return()
endif()
add_executable(daemon_probe ${CMAKE_SOURCE_DIR}/tests/integration/daemon_probe.c)
target_compile_options(daemon_probe PRIVATE ${DIESEL_WARNINGS})
target_link_libraries(daemon_probe PRIVATE diesel_client diesel_dataset diesel_base)
