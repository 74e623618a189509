# wp_use_ptxvm_kernels(target): lets a target find kernels/*.cu as PTX, in the folder WP_PTXVM_PTX_FOLDER. They are
# compiled in the build with the nvcc that kernels/ in the project's root found. Without one nothing is defined,
# and the tests that need the files are skipped.
if(WP_CUDA STREQUAL "OFF" OR NOT WP_NVCC)
  function(wp_use_ptxvm_kernels target)
  endfunction()
  return()
endif()
set(WP_PTXVM_PTX_FILES "")
set(WP_PTXVM_PTX_FOLDER "${CMAKE_CURRENT_BINARY_DIR}/kernels")
file(MAKE_DIRECTORY "${WP_PTXVM_PTX_FOLDER}")

function(wp_ptxvm_kernels name arch)
  set(ptx "${WP_PTXVM_PTX_FOLDER}/${name}.compute_${arch}.ptx")
  add_custom_command(
    OUTPUT "${ptx}"
    COMMAND "${WP_NVCC}" -std=c++20 -ptx -arch=compute_${arch} -MD -MF "${ptx}.d" -o "${ptx}"
            "${CMAKE_CURRENT_SOURCE_DIR}/kernels/${name}.cu"
    DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/kernels/${name}.cu"
    DEPFILE "${ptx}.d"
    COMMENT "nvcc ${name}.cu to PTX for compute_${arch}")
  list(APPEND WP_PTXVM_PTX_FILES "${ptx}")
  set(WP_PTXVM_PTX_FILES "${WP_PTXVM_PTX_FILES}" PARENT_SCOPE)
endfunction()

wp_ptxvm_kernels(arithmetic_kernels 75)
wp_ptxvm_kernels(atomic_kernels 75)
wp_ptxvm_kernels(block_kernels 75)
wp_ptxvm_kernels(control_kernels 75)
wp_ptxvm_kernels(planted_bugs 75)
wp_ptxvm_kernels(warp_kernels 75)
# Here the reductions of warps are instructions.
wp_ptxvm_kernels(warp_kernels 90)

add_custom_target(weightpress_ptxvm_kernels DEPENDS ${WP_PTXVM_PTX_FILES})
function(wp_use_ptxvm_kernels target)
  add_dependencies(${target} weightpress_ptxvm_kernels)
  target_compile_definitions(${target} PRIVATE WP_PTXVM_PTX_FOLDER="${WP_PTXVM_PTX_FOLDER}")
endfunction()
