# wp_python_test(NAME script.py MODULES a,b [TIMEOUT seconds]): a Python test that drives the program end to end. Without a
# Python that has the modules it is shown as skipped.
function(wp_python_test name script)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "MODULES;TIMEOUT" "")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND "${PROJECT_SOURCE_DIR}/tests/program/with-python" ${arg_MODULES}
    "${CMAKE_CURRENT_SOURCE_DIR}/${script}")
  set_tests_properties(${name} PROPERTIES
    LABELS "python;short"
    COST 10  # they take longest, so they begin first
    TIMEOUT ${arg_TIMEOUT}
    SKIP_RETURN_CODE 77
    ENVIRONMENT "WEIGHTPRESS=$<TARGET_FILE:weightpress_cli>;WEIGHTPRESS_PYTHON=${PROJECT_SOURCE_DIR}/build/python/bin/python")
endfunction()
