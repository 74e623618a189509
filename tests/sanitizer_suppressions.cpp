// What LeakSanitizer finds in the OpenMP runtime, which keeps memory of thread teams that were resized, is
// not ours.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libomp.so\n";
}
