// Whether a build's memory and time tell anything about the program.
#pragma once

namespace weightpress {

/// Why they do not, for GTEST_SKIP(); nullptr if memory does.
inline const char* why_memory_is_not_measured() {
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return "under a sanitizer neither memory nor time are the program's";
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "under a sanitizer neither memory nor time are the program's";
#else
  return nullptr;
#endif
}

}  // namespace weightpress
