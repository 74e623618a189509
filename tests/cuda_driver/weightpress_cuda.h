// What this driver offers beyond CUDA's own calls, for tests that load it. C, like cuda.h.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/// Forgets everything, as if the process had just begun; cuInit reads the environment anew. The trace is made
/// complete and closed. All handles and pinned memory are gone. No other thread may be in a call.
void weightpress_cuda_reset(void);

#ifdef __cplusplus
}
#endif
