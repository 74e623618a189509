// Preloaded into the program: ends it with SIGKILL right before or after the Nth call of a function that
// changes names. WP_KILL_AT=FUNCTION:N:before|after, FUNCTION one of renameat2, unlink (of files and folders,
// however they are removed).
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

namespace {

/// Kills if this is the call, and before (after) it is what was asked for.
void maybe_kill(const char* function, bool before, int& calls) {
  const char* at = std::getenv("WP_KILL_AT");
  if (at == nullptr) return;
  if (before) ++calls;
  const std::string wanted =
      std::string(function) + ":" + std::to_string(calls) + (before ? ":before" : ":after");
  if (wanted == at) ::kill(::getpid(), SIGKILL);
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

int renames = 0, unlinks = 0;

}  // namespace

extern "C" {

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  maybe_kill("renameat2", true, renames);
  const int result = next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2")(
      from_folder, from, to_folder, to, flags);
  maybe_kill("renameat2", false, renames);
  return result;
}

int remove(const char* path) {
  maybe_kill("unlink", true, unlinks);
  const int result = next<int (*)(const char*)>("remove")(path);
  maybe_kill("unlink", false, unlinks);
  return result;
}

int unlinkat(int folder, const char* path, int flags) {
  maybe_kill("unlink", true, unlinks);
  const int result = next<int (*)(int, const char*, int)>("unlinkat")(folder, path, flags);
  maybe_kill("unlink", false, unlinks);
  return result;
}

}  // extern "C"
