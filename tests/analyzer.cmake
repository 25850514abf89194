# SPDX-License-Identifier: Apache-2.0
foreach(module
    apart
    advice
    analysis
    batches
    comparison
    cxx_name
    gaps
    hostile
    inline
    lanes
    seconds
    live
    model
    predict
    resample
    sampled
    sampler
    sampler_place
    shapes
    slices
    timeline
    warmup)
  diesel_unit_test(analyzer/${module} USES diesel_analyzer_whole diesel_analyzer_collect)
endforeach()
diesel_fuzz_target(analyzer/events USES diesel_analyzer)
