# Whether there are CUDA kernels: WP_CUDA_FOUND, with WP_NVCC, WP_PTXAS and WP_CUDA_INCLUDE, or WP_CUDA_REASON,
# "left out of this build: ...". The target weightpress_cuda_headers lets host code include cuda.h; nothing of CUDA is
# linked. Its definition WP_HAVE_CUDA is 1 or 0.
include("${CMAKE_CURRENT_LIST_DIR}/FindNvcc.cmake")

set(WP_CUDA_FOUND OFF)
string(TOLOWER "$ENV{WEIGHTPRESS_CUDA}" wp_cuda_wish)
if(WP_CUDA STREQUAL "OFF")
  set(WP_CUDA_REASON "left out of this build: WP_CUDA=OFF")
elseif(WP_CUDA STREQUAL "AUTO" AND wp_cuda_wish STREQUAL "off")
  set(WP_CUDA_REASON "left out of this build: WEIGHTPRESS_CUDA=off")
else()
  wp_find_nvcc("${PROJECT_SOURCE_DIR}")
  if(WP_NVCC)
    set(WP_CUDA_FOUND ON)
  elseif(WP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "WP_CUDA=ON, but ${WP_CUDA_REASON}: run scripts/setup-cuda, install CUDA 12.8 or later, or set CUDA_HOME")
  else()
    set(WP_CUDA_REASON "left out of this build: ${WP_CUDA_REASON}")
  endif()
endif()

add_library(weightpress_cuda_headers INTERFACE)
if(WP_CUDA_FOUND)
  message(STATUS "CUDA kernels: compiled with ${WP_NVCC}")
  target_include_directories(weightpress_cuda_headers SYSTEM INTERFACE "${WP_CUDA_INCLUDE}")
  target_compile_definitions(weightpress_cuda_headers INTERFACE WP_HAVE_CUDA=1)
else()
  message(STATUS "CUDA kernels: ${WP_CUDA_REASON}")
  target_compile_definitions(weightpress_cuda_headers INTERFACE WP_HAVE_CUDA=0)
  set(WP_NVCC "")  # whoever asks sees the same, whatever an earlier configuration left in the cache
endif()
