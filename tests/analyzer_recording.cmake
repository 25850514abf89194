# SPDX-License-Identifier: Apache-2.0
foreach(module
    recording
    recording_codec)
  diesel_unit_test(analyzer/${module} USES diesel_analyzer_trace)
endforeach()
diesel_fuzz_target(analyzer/recording_block USES diesel_analyzer_trace PkgConfig::zstd)
