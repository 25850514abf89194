# SPDX-License-Identifier: Apache-2.0
foreach(module
    excluded
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
    waits_seen
    warmup)
  diesel_unit_test(analyzer/${module} USES diesel_analyzer_pipeline diesel_analyzer_collect)
endforeach()
# One module each: what is not in it, or below it, is not seen.
diesel_unit_test(analyzer/roles USES diesel_analyzer_roles)
diesel_unit_test(analyzer/roles_loaders USES diesel_analyzer_roles)
diesel_unit_test(analyzer/waits USES diesel_analyzer_waits)
diesel_unit_test(analyzer/waits_threads USES diesel_analyzer_waits)
diesel_unit_test(analyzer/waits_workers USES diesel_analyzer_waits)
diesel_unit_test(analyzer/window USES diesel_analyzer_waits)
diesel_unit_test(analyzer/walk USES diesel_analyzer_shares)
diesel_unit_test(analyzer/partition USES diesel_analyzer_shares)
diesel_unit_test(analyzer/split USES diesel_analyzer_replay)
diesel_unit_test(analyzer/forecast USES diesel_analyzer_replay)
diesel_fuzz_target(analyzer/events USES diesel_analyzer)
