# SPDX-License-Identifier: Apache-2.0
# Ways to read data, on the real thing. Parts that are not there make their tests skip.
find_package(PkgConfig REQUIRED)
pkg_check_modules(fuse3 IMPORTED_TARGET fuse3)
pkg_check_modules(uring IMPORTED_TARGET liburing)
if(fuse3_FOUND)
  add_executable(fuse_mirror ${CMAKE_CURRENT_SOURCE_DIR}/integration/fuse_mirror.c)
  target_link_libraries(fuse_mirror PRIVATE PkgConfig::fuse3)
endif()
# Sanitizers want to be loaded first; Python loads this one.
if(uring_FOUND AND NOT DIESEL_SANITIZE)
  add_library(ring_reader MODULE ${CMAKE_CURRENT_SOURCE_DIR}/integration/ring_reader.c)
  target_link_libraries(ring_reader PRIVATE PkgConfig::uring)
  set_target_properties(ring_reader PROPERTIES PREFIX "")
endif()
diesel_script_test(integration shapes_io /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/test_shapes_io.py)
