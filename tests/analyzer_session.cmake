# SPDX-License-Identifier: Apache-2.0
foreach(module
    session
    session_codec)
  diesel_unit_test(analyzer/${module} USES diesel_analyzer diesel_base)
  target_include_directories(test_analyzer_${module} PRIVATE ${CMAKE_SOURCE_DIR}/analyzer)
endforeach()
diesel_fuzz_target(analyzer/session_block USES diesel_analyzer PkgConfig::zstd)
foreach(target fuzz_corpus_session_block fuzz_session_block)
  if(TARGET ${target})
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/analyzer)
  endif()
endforeach()
