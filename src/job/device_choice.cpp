#include "job/device_choice.h"

#include <charconv>
#include <optional>

#include <weightpress/error.h>

#include "model/text.h"

namespace weightpress::job {
namespace {

constexpr std::string_view kCuda = "cuda";

/// The number in "cuda:N"; nullopt: it is none.
std::optional<int> number_of(std::string_view device) {
  if (device == kCuda) return 0;
  if (!device.starts_with("cuda:")) return std::nullopt;
  const std::string_view digits = device.substr(5);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  return number;
}

DeviceChoice choose_cuda(std::string_view device, int number) {
  std::string why_none;
  const int count = device::count_gpus(why_none);
  const std::string asked = "--device " + std::string(device) + ": ";
  if (count == 0) throw Error(ErrorCode::kDeviceFailed, asked + why_none);
  if (number >= count) {
    throw Error(ErrorCode::kDeviceFailed,
                asked + "there " +
                    (count == 1 ? "is one GPU, cuda:0"
                                : "are " + std::to_string(count) +
                                      " GPUs, cuda:0 to cuda:" + std::to_string(count - 1)));
  }
  DeviceChoice choice;
  try {
    choice.gpu = device::open_gpu(number);
  } catch (const Error& error) {
    throw Error(ErrorCode::kDeviceFailed, asked + error.what());
  }
  choice.is_required = true;
  choice.name = choice.gpu->name();
  choice.why = "it was asked for";
  return choice;
}

}  // namespace

DeviceChoice choose_device(std::string_view device) {
  DeviceChoice choice;
  if (device == "cpu") {
    choice.why = "it was asked for";
    return choice;
  }
  if (const auto number = number_of(device)) return choose_cuda(device, *number);
  if (device != "auto") {
    throw Error(ErrorCode::kUsage,
                "--device " + model::in_quotes(device) + ": it is auto, cpu, cuda or cuda:N");
  }
  const int count = device::count_gpus(choice.why);
  for (int number = 0; number < count; ++number) {
    try {
      choice.gpu = device::open_gpu(number);
      choice.name = choice.gpu->name();
      choice.why =
          number == 0 ? "a GPU that can be used is there" : choice.why + "; the next one can be used";
      return choice;
    } catch (const Error& error) {
      if (!choice.why.empty()) choice.why += "; ";
      choice.why += "cuda:" + std::to_string(number) + ": " + error.what();
    }
  }
  return choice;
}

}  // namespace weightpress::job
