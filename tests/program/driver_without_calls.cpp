// A libcuda.so.1 that exports none of the driver's calls.
extern "C" int weightpress_driver_without_calls() {
  return 0;
}
