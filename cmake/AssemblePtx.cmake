# cmake -D PTXAS= -D ARCH=90 -D PTX= -D CUBIN= -D REPORT= -P AssemblePtx.cmake: one cubin, and what ptxas -v says of its
# kernels, which a test reads.
execute_process(COMMAND "${PTXAS}" -v -arch=sm_${ARCH} -o "${CUBIN}" "${PTX}"
  OUTPUT_VARIABLE report ERROR_VARIABLE report RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message("ptxas does not take ${PTX} for sm_${ARCH}:\n${report}")
  message(FATAL_ERROR "PTX that cannot be assembled")
endif()
file(WRITE "${REPORT}" "${report}")
