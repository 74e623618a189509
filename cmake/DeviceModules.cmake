# wp_device_module(name): compiles kernels/<name>.cu into a cubin an architecture, with ptxas's report on each, and into
# PTX text for GPUs newer than all of them. wp_embed_device_modules(target) puts those of all modules into an object
# library, and their table into its include folder; where there are any, the caller enables the language ASM.
#
# A module is one .cu file: the job loads those that it needs, and a change compiles one anew. Kernels that are used
# together share a file, as nearly all the time (3 s an nvcc run) goes into reading CUB. So the cubins of several
# architectures are made from one PTX as well; only ptxas (0.1 s) knows the real one. What compute_86, 89, 100 and 120
# have beyond compute_80 and 90 is for matrices and clusters.
set(WP_KERNEL_FLAGS -std=c++20 -I "${PROJECT_SOURCE_DIR}/src" -I "${PROJECT_SOURCE_DIR}")
if(WP_WARNINGS_AS_ERRORS)
  list(APPEND WP_KERNEL_FLAGS --Werror all-warnings)
endif()
set(WP_KERNEL_PTX_ARCHS 75 80 90)
set(WP_DEVICE_IMAGES "")  # arch:module:file, PTX as arch 0

function(wp_device_module name)
  set(source "${CMAKE_CURRENT_SOURCE_DIR}/${name}.cu")
  set(base "${CMAKE_CURRENT_BINARY_DIR}/${name}")
  foreach(arch IN LISTS WP_KERNEL_PTX_ARCHS)
    set(ptx "${base}.compute_${arch}.ptx")
    add_custom_command(
      OUTPUT "${ptx}"
      COMMAND "${WP_NVCC}" ${WP_KERNEL_FLAGS} -ptx -arch=compute_${arch} -MD -MF "${ptx}.d" -o "${ptx}" "${source}"
      DEPENDS "${source}" "${WP_NVCC}"
      DEPFILE "${ptx}.d"
      COMMENT "nvcc ${name}.cu to PTX for compute_${arch}"
      VERBATIM)
  endforeach()

  set(from "")
  foreach(arch IN LISTS WP_CUBIN_ARCHS)
    if(arch IN_LIST WP_KERNEL_PTX_ARCHS)
      set(from "${base}.compute_${arch}.ptx")
    endif()
    set(cubin "${base}.sm_${arch}.cubin")
    add_custom_command(
      OUTPUT "${cubin}" "${cubin}.ptxas.txt"
      COMMAND "${CMAKE_COMMAND}" -D "PTXAS=${WP_PTXAS}" -D ARCH=${arch} -D "PTX=${from}" -D "CUBIN=${cubin}"
              -D "REPORT=${cubin}.ptxas.txt" -P "${PROJECT_SOURCE_DIR}/cmake/AssemblePtx.cmake"
      DEPENDS "${from}" "${PROJECT_SOURCE_DIR}/cmake/AssemblePtx.cmake"
      COMMENT "ptxas ${name} for sm_${arch}"
      VERBATIM)
    list(APPEND WP_DEVICE_IMAGES "${arch}:${name}:${cubin}")
  endforeach()

  list(JOIN WP_CUBIN_ARCHS "," archs)
  add_custom_command(
    OUTPUT "${base}.ptx"
    COMMAND "${CMAKE_COMMAND}" -D "PTXAS=${WP_PTXAS}" -D ARCHS=${archs} -D "PTX=${base}.compute_75.ptx"
            -D "OUT=${base}.ptx" -P "${PROJECT_SOURCE_DIR}/cmake/LowerPtxVersion.cmake"
    DEPENDS "${base}.compute_75.ptx" "${PROJECT_SOURCE_DIR}/cmake/LowerPtxVersion.cmake"
    COMMENT "The oldest .version for ${name}.ptx"
    VERBATIM)
  list(APPEND WP_DEVICE_IMAGES "0:${name}:${base}.ptx")
  set(WP_DEVICE_IMAGES "${WP_DEVICE_IMAGES}" PARENT_SCOPE)
endfunction()

# The images are taken in by the assembler, in no time; their sizes are its differences of labels. A 0 byte behind each
# ends PTX text for drivers, which want it so.
function(wp_embed_device_modules target)
  set(assembly "${CMAKE_CURRENT_BINARY_DIR}/device_images.S")
  set(header "${CMAKE_CURRENT_BINARY_DIR}/embedded/device/device_image_table.h")
  set(code "/* Made by cmake/DeviceModules.cmake. */\n        .section .note.GNU-stack,\"\",%progbits\n        .section .rodata\n")
  set(declarations "")
  set(rows "")
  set(files "")
  foreach(image IN LISTS WP_DEVICE_IMAGES)
    string(REGEX MATCH "^([0-9]+):([^:]+):(.+)$" whole "${image}")
    set(arch "${CMAKE_MATCH_1}")
    set(module "${CMAKE_MATCH_2}")
    set(file "${CMAKE_MATCH_3}")
    set(symbol "wp_image_${module}_${arch}")
    list(APPEND files "${file}")
    string(APPEND code "        .balign 64\n        .globl ${symbol}\n        .hidden ${symbol}\n${symbol}:\n        .incbin \"${file}\"\n1:      .byte 0\n")
    string(APPEND code "        .balign 8\n        .globl ${symbol}_bytes\n        .hidden ${symbol}_bytes\n${symbol}_bytes:\n        .quad 1b - ${symbol}\n")
    string(APPEND declarations "WP_HIDDEN extern const std::uint8_t ${symbol}[];\nWP_HIDDEN extern const std::uint64_t ${symbol}_bytes;\n")
    string(APPEND rows "      {${arch}, \"${module}\", {${symbol}, ${symbol}_bytes}},\n")
  endforeach()
  file(CONFIGURE OUTPUT "${assembly}" CONTENT "${code}" @ONLY)
  file(CONFIGURE OUTPUT "${header}" CONTENT "// Made by cmake/DeviceModules.cmake.
#pragma once

#include <cstdint>
#include <vector>

#include \"device/embedded_kernels.h\"

#define WP_HIDDEN __attribute__((visibility(\"hidden\")))
extern \"C\" {
${declarations}}
#undef WP_HIDDEN

namespace weightpress::device {

inline std::vector<EmbeddedImage> device_image_table() {
  return {
${rows}  };
}

inline constexpr std::string_view kWhyNoKernels = R\"reason(${WP_CUDA_REASON})reason\";

}  // namespace weightpress::device
" @ONLY)
  if(WP_DEVICE_IMAGES)
    set_source_files_properties("${assembly}" PROPERTIES OBJECT_DEPENDS "${files}")
    add_library(${target} OBJECT "${assembly}")
    target_include_directories(${target} PUBLIC "${CMAKE_CURRENT_BINARY_DIR}/embedded")
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE "${CMAKE_CURRENT_BINARY_DIR}/embedded")
  endif()
endfunction()
