# SPDX-License-Identifier: Apache-2.0
# onnxcConfig.cmake - models that are compiled while a project is built:
#
#     find_package(onnxc REQUIRED)                  # cmake -Donnxc_DIR="$(onnxc --cmake-dir)"
#     onnxc_add_model(digits models/digits.onnx DIMS batch=1)
#     target_link_libraries(program PRIVATE digits) # and #include "digits.h", <onnxc.hpp>
#
# onnxc::onnxc has the headers alone.
cmake_policy(PUSH)
cmake_policy(VERSION 3.20...3.31)

get_filename_component(_onnxc_package "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
# The command of the environment in which this file is (lib/pythonX.Y/site-packages/onnxc/runtime_c), else any.
find_program(ONNXC_EXECUTABLE onnxc HINTS "${_onnxc_package}/../../../../../bin")
set(ONNXC_INCLUDE_DIR "${_onnxc_package}/include")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(onnxc REQUIRED_VARS ONNXC_EXECUTABLE ONNXC_INCLUDE_DIR)

if(NOT TARGET onnxc::onnxc)
  add_library(onnxc::onnxc INTERFACE IMPORTED)
  set_target_properties(onnxc::onnxc PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${ONNXC_INCLUDE_DIR}")
endif()

# onnxc_add_model(TARGET MODEL [STATIC|SHARED] [NAME name] [DIMS dim=n ...] [SHAPES input=n,n ...]
#                 [TARGETS processor ...] [OPTIONS option ...])
#
# A library target of the model, compiled anew when a file changes that it was made of. STATIC libraries share one
# runtime in a program (the default unless BUILD_SHARED_LIBS). NAME: what its header and functions are called
# (TARGET). OPTIONS: further ones of `onnxc compile`.
function(onnxc_add_model target model)
  cmake_parse_arguments(PARSE_ARGV 2 arg "STATIC;SHARED" "NAME" "DIMS;SHAPES;TARGETS;OPTIONS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "onnxc_add_model(${target}): what is '${arg_UNPARSED_ARGUMENTS}'?")
  endif()
  if(arg_STATIC AND arg_SHARED)
    message(FATAL_ERROR "onnxc_add_model(${target}): either STATIC or SHARED")
  endif()
  set(kind STATIC)
  if(arg_SHARED OR (BUILD_SHARED_LIBS AND NOT arg_STATIC))
    set(kind SHARED)
  endif()
  set(name "${target}")
  if(arg_NAME)
    set(name "${arg_NAME}")
  endif()
  get_filename_component(model "${model}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")

  set(folder "${CMAKE_CURRENT_BINARY_DIR}/onnxc/${target}")
  set(library "${folder}/lib${name}.a")
  if(kind STREQUAL "SHARED")
    set(library "${folder}/lib${name}.so")
  endif()
  set(header "${folder}/${name}.h")
  file(MAKE_DIRECTORY "${folder}")

  set(options --name "${name}" --header "${header}" --depfile "${folder}/${name}.d")
  foreach(dim IN LISTS arg_DIMS)
    list(APPEND options --dim "${dim}")
  endforeach()
  foreach(shape IN LISTS arg_SHAPES)
    list(APPEND options --shape "${shape}")
  endforeach()
  if(arg_TARGETS)
    list(JOIN arg_TARGETS "," targets)
    list(APPEND options --target "${targets}")
  endif()

  set(compiler "")
  if(CMAKE_C_COMPILER) # the project's, with what it needs to be one ("zig cc", a cross clang)
    string(REPLACE " " "\\ " compiler "${CMAKE_C_COMPILER}")
    string(APPEND compiler "${CMAKE_C_COMPILER_ARG1}")
    if(CMAKE_C_COMPILER_TARGET)
      string(APPEND compiler " --target=${CMAKE_C_COMPILER_TARGET}")
    endif()
    set(compiler "${CMAKE_COMMAND}" -E env "CC=${compiler}")
  endif()

  file(RELATIVE_PATH shown "${CMAKE_SOURCE_DIR}" "${model}")
  add_custom_command(
    OUTPUT "${library}" "${header}"
    COMMAND ${compiler} "${ONNXC_EXECUTABLE}" compile "${model}" -o "${library}" ${options} ${arg_OPTIONS}
            > "${folder}/report.txt"
    DEPENDS "${model}" "${ONNXC_EXECUTABLE}"
    DEPFILE "${folder}/${name}.d"
    COMMENT "Compiling ${shown}"
    VERBATIM)
  add_custom_target(${target}_compiled DEPENDS "${library}" "${header}")

  add_library(${target} ${kind} IMPORTED GLOBAL)
  add_dependencies(${target} ${target}_compiled)
  set_target_properties(
    ${target} PROPERTIES
    IMPORTED_LOCATION "${library}"
    INTERFACE_INCLUDE_DIRECTORIES "${folder};${ONNXC_INCLUDE_DIR}")
  if(kind STREQUAL "SHARED")
    set_target_properties(${target} PROPERTIES IMPORTED_SONAME "lib${name}.so")
  else()
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "m;dl;-pthread")
  endif()
endfunction()

cmake_policy(POP)
