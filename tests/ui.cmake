# SPDX-License-Identifier: Apache-2.0
foreach(module daemon frame nodes top_recording sample screen)
  diesel_unit_test(ui/${module} USES diesel_ui_feed diesel_ui_replay diesel_ui_state diesel_ui_view diesel_base m)
endforeach()
diesel_fuzz_target(ui/top_recording USES diesel_base diesel_ui_feed diesel_ui_replay diesel_ui_view)
diesel_script_test(integration top /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/test_top.py)
diesel_script_test(integration top_gpus /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/integration/test_top.py Gpus)
set_property(TEST integration.top integration.top_gpus APPEND PROPERTY ENVIRONMENT "DIESEL_STANDIN=${CMAKE_BINARY_DIR}/standin")
