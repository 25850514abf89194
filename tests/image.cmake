# SPDX-License-Identifier: Apache-2.0
foreach(module decoder resample)
  diesel_unit_test(image/${module} USES diesel_image_decode)
endforeach()
diesel_unit_test(image/recipe USES diesel_image_recipe)

add_executable(image_probe ${CMAKE_SOURCE_DIR}/tests/integration/image/image_probe.c)
target_compile_options(image_probe PRIVATE ${DIESEL_WARNINGS})
target_link_libraries(image_probe PRIVATE diesel_image)
add_executable(jpeg_maker ${CMAKE_SOURCE_DIR}/tests/integration/image/jpeg_maker.c)
target_compile_options(jpeg_maker PRIVATE ${DIESEL_WARNINGS})
target_link_libraries(jpeg_maker PRIVATE diesel_base PkgConfig::jpeg)
add_executable(jpeg_coefficients ${CMAKE_SOURCE_DIR}/tests/integration/image/jpeg_coefficients.c)
target_compile_options(jpeg_coefficients PRIVATE ${DIESEL_WARNINGS})
target_link_libraries(jpeg_coefficients PRIVATE diesel_base PkgConfig::jpeg)
foreach(module agreement jpeg jpeg_restarts jpeg_rows png webp whole window)
  diesel_script_test(integration image.${module} /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/image/test_${module}.py)
endforeach()

diesel_unit_test(image/tensor USES diesel_image_tensor)

diesel_fuzz_target(image/image USES diesel_image PkgConfig::zlib)
diesel_fuzz_target(image/jpeg_restarts USES diesel_image)
diesel_fuzz_target(image/tensor USES diesel_image)
