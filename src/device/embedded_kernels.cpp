#include "device/embedded_kernels.h"

#include "device/device_image_table.h"

namespace weightpress::device {

std::span<const EmbeddedImage> embedded_images() {
  static const std::vector<EmbeddedImage> images = device_image_table();
  return images;
}

std::string_view why_no_kernels() {
  return kWhyNoKernels;
}

}  // namespace weightpress::device
