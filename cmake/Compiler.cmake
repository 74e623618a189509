# Language level, warnings and sanitizers, for every target through weightpress_options.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

add_library(weightpress_options INTERFACE)
target_compile_options(weightpress_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wno-missing-field-initializers)  # members left out of designated initialisers have defaults
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on std::string's operator+ (GCC bug 105329).
  target_compile_options(weightpress_options INTERFACE -Wno-restrict)
endif()
if(WP_WARNINGS_AS_ERRORS)
  target_compile_options(weightpress_options INTERFACE -Werror)
endif()

if(WP_SANITIZE)
  string(REPLACE "," ";" wp_sanitizers "${WP_SANITIZE}")
  if("thread" IN_LIST wp_sanitizers AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ThreadSanitizer reports false races with libgomp: use clang with libomp (preset tsan)")
  endif()
  add_compile_options(-fsanitize=${WP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${WP_SANITIZE})
endif()
if(WP_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "the fuzz targets need clang's libFuzzer (preset asan-ubsan)")
  endif()
  # Coverage in every target, the fuzzer's main function only in the fuzz targets.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
