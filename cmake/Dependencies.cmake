# All from Debian packages; README.md and scripts/install-dependencies list them.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)

find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

if(WP_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
endif()
if(WP_BUILD_BENCHMARKS)
  find_package(benchmark 1.7 REQUIRED)
endif()
