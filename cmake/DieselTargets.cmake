# SPDX-License-Identifier: Apache-2.0
# diesel_library(NAME SOURCES... [USES libs...] [PRIVATE_USES libs...]) and diesel_program(...) define a folder's
# library or program, with the project's warnings. A header of another folder is included by its path from the root, or
# from the include directory that it is in. In each build, tests/lint/includes.py compares the includes with USES (for
# headers) and PRIVATE_USES (for sources).

option(DIESEL_SANITIZE "comma list for -fsanitize=, e.g. address,undefined" "")
set(DIESEL_WARNINGS
  -Wall -Wextra -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wmissing-declarations
  -Wshadow -Wwrite-strings -Wundef -Wformat=2 -Wno-format-nonliteral -Wvla -Wno-unused-parameter
  -Werror=implicit-function-declaration -Werror=incompatible-pointer-types -Werror=int-conversion)
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  list(APPEND DIESEL_WARNINGS -Wno-format-truncation) # texts are cut on purpose, see lib/error.h
endif()
if(DIESEL_WERROR)
  list(APPEND DIESEL_WARNINGS -Werror)
endif()

add_compile_options("SHELL:-iquote ${CMAKE_SOURCE_DIR}")
add_compile_definitions(_GNU_SOURCE DIESEL_VERSION="${PROJECT_VERSION}")
if(DIESEL_SANITIZE)
  add_compile_options(-fsanitize=${DIESEL_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(DIESEL_SANITIZE MATCHES address) # it finds these, too, and a sixth of the build's time is theirs
    add_compile_options(-fno-sanitize=null,object-size)
  endif()
  add_link_options(-fsanitize=${DIESEL_SANITIZE})
  add_compile_definitions(DIESEL_SANITIZED=1)
endif()

# Archives name the objects instead of copying them, and are indexed as they are made.
set(CMAKE_C_ARCHIVE_CREATE "<CMAKE_AR> qcsT <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_C_ARCHIVE_FINISH "")

# Hardening against exploits of memory errors, in everything that is installed: tests/integration/hardening.py checks
# it. Builds with sanitizers leave out the compile options: sanitizers find more, and replace functions that
# _FORTIFY_SOURCE would check.
include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
if(NOT DIESEL_SANITIZE)
  foreach(flag stack-protector-strong stack-clash-protection)
    check_c_compiler_flag(-f${flag} DIESEL_HAS_${flag})
    if(DIESEL_HAS_${flag})
      add_compile_options(-f${flag})
    endif()
  endforeach()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    set(branches -fcf-protection)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(branches -mbranch-protection=standard)
  endif()
  if(branches)
    check_c_compiler_flag(${branches} DIESEL_HAS_BRANCHES)
    if(DIESEL_HAS_BRANCHES)
      add_compile_options(${branches})
    endif()
  endif()
  # _FORTIFY_SOURCE without optimization only gives a warning.
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  if("${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${type}}" MATCHES "-O([1-9gs]|fast)?( |$)")
    add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
  endif()
endif()

function(diesel_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;USES;PRIVATE_USES" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_compile_options(${name} PRIVATE ${DIESEL_WARNINGS})
  if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include)
    target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include)
  endif()
  if(NOT name STREQUAL diesel_base) # all stand on lib/
    list(APPEND arg_USES diesel_base)
  endif()
  target_link_libraries(${name} PUBLIC ${arg_USES} PRIVATE ${arg_PRIVATE_USES})
endfunction()

# diesel_folder(NAME MODULES modules... [USES libs...]) defines a library that is made of modules. Other folders see
# only its include directory, which its modules see as NAME_public.
function(diesel_folder name)
  cmake_parse_arguments(arg "" "" "MODULES;USES" ${ARGN})
  add_library(${name}_public INTERFACE)
  target_include_directories(${name}_public INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/include)
  target_link_libraries(${name}_public INTERFACE ${arg_USES} diesel_base)
  add_library(${name} INTERFACE)
  target_link_libraries(${name} INTERFACE ${name}_public)
  foreach(module ${arg_MODULES})
    add_subdirectory(${module})
    target_link_libraries(${name} INTERFACE $<LINK_ONLY:${name}_${module}>)
  endforeach()
endfunction()

function(diesel_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;USES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_compile_options(${name} PRIVATE ${DIESEL_WARNINGS})
  target_link_libraries(${name} PRIVATE ${arg_USES} diesel_base)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endfunction()

# Makes imported targets of pkg-config packages: diesel_pkg(uv libuv) makes PkgConfig::uv.
function(diesel_pkg var module)
  if(NOT TARGET PkgConfig::${var})
    pkg_check_modules(${var} REQUIRED IMPORTED_TARGET GLOBAL ${module})
  endif()
endfunction()
