# SPDX-License-Identifier: Apache-2.0
# Releases to come, as far as this one can tell: its own objects, but for those that know a version. They are made again, from sources
# in which the numbers are replaced.

# diesel_replaced(FOLDER FILE NAME TEXT REPLACEMENT...): FILE of the tree with each TEXT replaced, as FOLDER/NAME.
function(diesel_replaced folder file name)
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${file})
  file(READ ${CMAKE_SOURCE_DIR}/${file} content)
  while(ARGN)
    list(POP_FRONT ARGN text replacement)
    string(FIND "${content}" "${text}" at)
    if(at LESS 0)
      message(FATAL_ERROR "${file} has no \"${text}\": tests/upgrade.cmake replaces it")
    endif()
    string(REPLACE "${text}" "${replacement}" content "${content}")
  endwhile()
  file(WRITE ${folder}/${name}.new "${content}")
  file(COPY_FILE ${folder}/${name}.new ${folder}/${name} ONLY_IF_DIFFERENT)
endfunction()

# diesel_later(NAME VERSION PROTOCOL LEAST [FORMATS]): bin/later/NAME/dieseld and bin/later/NAME/libdiesel.so. FORMATS: the history
# and the index of restored chunks have another format, too.
function(diesel_later name version protocol least)
  set(made ${CMAKE_CURRENT_BINARY_DIR}/later/${name})
  set(options -UDIESEL_VERSION "-DDIESEL_VERSION=\"${version}\"" ${DIESEL_WARNINGS})
  diesel_replaced(${made} client/include/client/protocol.h client/protocol.h
    "#define WIRE_VERSION       8u" "#define WIRE_VERSION ${protocol}u" "#define WIRE_VERSION_LEAST 7u" "#define WIRE_VERSION_LEAST ${least}u")
  set(daemon_sources ${CMAKE_SOURCE_DIR}/daemon/main.c ${CMAKE_SOURCE_DIR}/client/protocol.c
    ${CMAKE_SOURCE_DIR}/daemon/server/connection.c ${CMAKE_SOURCE_DIR}/daemon/server/status.c)
  if("${ARGN}" STREQUAL FORMATS)
    diesel_replaced(${made} daemon/cache/handover.c handover.c "#define FORMAT     1" "#define FORMAT 2")
    diesel_replaced(${made} daemon/history/history.c history.c "PRAGMA user_version = 1" "PRAGMA user_version = 2"
      "HISTORY_VERSION == 1" "HISTORY_VERSION == 2")
    diesel_replaced(${made} daemon/history/include/history/history.h history/history.h
      "#define HISTORY_VERSION 1" "#define HISTORY_VERSION 2")
    list(APPEND daemon_sources ${made}/handover.c ${made}/history.c)
  endif()
  add_executable(dieseld_${name} ${daemon_sources})
  add_library(diesel_shared_${name} SHARED ${CMAKE_SOURCE_DIR}/client/protocol.c ${CMAKE_SOURCE_DIR}/client/transport.c
    ${CMAKE_SOURCE_DIR}/client/mark.c
    "$<FILTER:$<TARGET_OBJECTS:diesel_client>,EXCLUDE,/(protocol|transport|mark)[.]c[.]>")
  set_target_properties(dieseld_${name} PROPERTIES OUTPUT_NAME dieseld RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/later/${name})
  set_target_properties(diesel_shared_${name} PROPERTIES OUTPUT_NAME diesel LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/later/${name})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/bin/later/${name})
  file(CREATE_LINK ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/_abi.py ${CMAKE_BINARY_DIR}/bin/later/${name}/_abi.py SYMBOLIC)
  foreach(target dieseld_${name} diesel_shared_${name})
    target_compile_options(${target} PRIVATE ${options})
    target_include_directories(${target} BEFORE PRIVATE ${made})
  endforeach()
  target_include_directories(dieseld_${name} PRIVATE ${CMAKE_SOURCE_DIR}/daemon/cache ${CMAKE_SOURCE_DIR}/daemon/history) # for what is replaced
  target_link_libraries(dieseld_${name} PRIVATE diesel_daemon_run diesel_sqlite)
  target_include_directories(diesel_shared_${name} PRIVATE $<TARGET_PROPERTY:diesel_client,INCLUDE_DIRECTORIES>)
  target_link_libraries(diesel_shared_${name} PRIVATE diesel_base diesel_dataset_fields diesel_dataset_lookup diesel_dataset_order diesel_dataset_sample
    diesel_dataset_store diesel_image_recipe)
endfunction()

if(TARGET dieseld)
  diesel_later(next 0.2.0 9 8)
  diesel_later(next_formats 0.2.0 9 8 FORMATS)
  diesel_later(second 0.3.0 10 9)
  diesel_script_test(integration upgrade /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/integration/upgrade/test_upgrade.py)
endif()
