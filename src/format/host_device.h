// WP_HOST_DEVICE marks the small functions of src/format that kernels use as well.
#pragma once

#if defined(__CUDACC__)
#define WP_HOST_DEVICE __host__ __device__
#else
#define WP_HOST_DEVICE
#endif
