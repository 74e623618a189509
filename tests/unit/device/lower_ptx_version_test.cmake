# cmake -D PTXAS= -D SCRIPT= -D FOLDER= -P this: cmake/LowerPtxVersion.cmake on texts whose oldest .version is known, on one
# that no version makes right, and on one that only some architectures take.
file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")

# lower(name target archs instruction): sets `status` of the script, `output`, and `version` of what it wrote, "" if nothing.
function(lower name target archs instruction)
  file(WRITE "${FOLDER}/${name}.ptx" "//\n// a comment; with [signs]\n\n.version 9.0\n.target sm_${target}\n.address_size 64\n\n.visible .entry k(.param .u64 p)\n{\n\t.reg .b64 %rd<3>;\n\t.reg .b32 %r<3>;\n\tld.param.u64 %rd1, [p];\n\t${instruction}\n\tst.global.u32 [%rd1], %r1;\n\tret;\n}\n")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -D "PTXAS=${PTXAS}" -D "ARCHS=${archs}" -D "PTX=${FOLDER}/${name}.ptx"
            -D "OUT=${FOLDER}/${name}.out" -P "${SCRIPT}"
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
  set(version "")
  if(EXISTS "${FOLDER}/${name}.out")
    file(READ "${FOLDER}/${name}.ptx" before)
    file(READ "${FOLDER}/${name}.out" after)
    string(REGEX MATCH "\n\\.version ([0-9.]+)\n" line "${after}")
    set(version "${CMAKE_MATCH_1}")
    string(REPLACE ".version 9.0\n" ".version ${version}\n" before "${before}")
    if(NOT before STREQUAL after)
      message(SEND_ERROR "${name}: more than the version has changed:\n${after}")
    endif()
  endif()
  set(status "${status}" PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
  set(version "${version}" PARENT_SCOPE)
endfunction()

function(expect_version name target archs instruction expected)
  lower(${name} ${target} "${archs}" "${instruction}")
  if(NOT status EQUAL 0 OR NOT version STREQUAL expected)
    message(SEND_ERROR "${name}: version \"${version}\" instead of ${expected}\n${output}")
  endif()
endfunction()

function(expect_failure name target archs instruction text)
  lower(${name} ${target} "${archs}" "${instruction}")
  if(status EQUAL 0 OR NOT version STREQUAL "" OR NOT output MATCHES "${text}")
    message(SEND_ERROR "${name}: status ${status}, version \"${version}\"\n${output}")
  endif()
endfunction()

# PTX ISA, "Release history": sm_75 came with 6.3, hints of cache levels with 7.4, shared::cta with 7.8.
expect_version(plain 75 75,90,120 "mov.u32 %r1, 5;" 6.3)
expect_version(hint 75 75,90,120 "ld.global.L1::no_allocate.u32 %r1, [%rd1];" 7.4)
expect_version(cta 75 75,90,120 "ld.shared::cta.u32 %r1, [%rd1];" 7.8)
expect_version(cluster 90 90,120 "mov.u32 %r1, %cluster_ctarank;" 7.8)
expect_failure(nonsense 75 75 "mov.u32 %r1, %nothing;" "for sm_75, whatever")
expect_failure(some_archs 90 90,75,120 "mov.u32 %r1, 5;" "for sm_75, whatever")

file(GLOB leftovers "${FOLDER}/*.try*")
if(leftovers)
  message(SEND_ERROR "left over: ${leftovers}")
endif()
