#include "job/device_choice.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include <weightpress/error.h>

#include "model/text.h"

namespace weightpress::job {
namespace {

constexpr std::string_view kCuda = "cuda";

/// The numbers in "cuda:N,M"; none: it is no such list.
std::vector<int> numbers_of(std::string_view device) {
  if (device == kCuda) return {0};
  if (!device.starts_with("cuda:")) return {};
  std::vector<int> numbers;
  const char* at = device.data() + 5;
  const char* const end = device.data() + device.size();
  while (true) {
    int number = 0;
    const auto [after, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0) return {};
    numbers.push_back(number);
    if (after == end) return numbers;
    if (*after != ',') return {};
    at = after + 1;
  }
}

DeviceChoice choose_cuda(std::string_view device, const std::vector<int>& numbers) {
  const std::string asked = "--device " + std::string(device) + ": ";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (std::find(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(i), numbers[i]) !=
        numbers.begin() + static_cast<std::ptrdiff_t>(i))
      throw Error(ErrorCode::kUsage, asked + "it names cuda:" + std::to_string(numbers[i]) + " twice");
  }
  std::string why_none;
  const int count = device::count_gpus(why_none);
  if (count == 0) throw Error(ErrorCode::kDeviceFailed, asked + why_none);
  if (std::ranges::any_of(numbers, [&](int number) { return number >= count; })) {
    throw Error(ErrorCode::kDeviceFailed,
                asked + "there " +
                    (count == 1 ? "is one GPU, cuda:0"
                                : "are " + std::to_string(count) +
                                      " GPUs, cuda:0 to cuda:" + std::to_string(count - 1)));
  }
  DeviceChoice choice;
  choice.name.clear();
  for (const int number : numbers) {
    try {
      choice.gpus.push_back(device::open_gpu(number));
    } catch (const Error& error) {
      const std::string which = numbers.size() > 1 ? "cuda:" + std::to_string(number) + ": " : "";
      throw Error(ErrorCode::kDeviceFailed, asked + which + error.what());
    }
    choice.name += (choice.name.empty() ? "" : ", ") + choice.gpus.back()->name();
  }
  choice.is_required = true;
  choice.why = numbers.size() == 1 ? "it was asked for" : "they were asked for";
  return choice;
}

}  // namespace

DeviceChoice choose_device(std::string_view device) {
  DeviceChoice choice;
  if (device == "cpu") {
    choice.why = "it was asked for";
    return choice;
  }
  if (const auto numbers = numbers_of(device); !numbers.empty()) return choose_cuda(device, numbers);
  if (device != "auto") {
    throw Error(ErrorCode::kUsage,
                "--device " + model::in_quotes(device) + ": it is auto, cpu, cuda, cuda:N or cuda:N,M");
  }
  const int count = device::count_gpus(choice.why);
  for (int number = 0; number < count; ++number) {
    try {
      choice.gpus.push_back(device::open_gpu(number));
      choice.name = choice.gpus.front()->name();
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

DeviceChoice choose_decode_device(VerifyEngine engine, std::string_view device) {
  const auto refuse = [&](const char* name, const char* choices) {
    throw Error(ErrorCode::kUsage, "the engine " + std::string(name) + " does not run on --device " +
                                       model::in_quotes(device) + ": choose --device " + choices);
  };
  if (engine == VerifyEngine::kCpu) {
    if (device != "auto" && device != "cpu") refuse("cpu", "auto or cpu");
    return choose_device("cpu");
  }
  if (engine != VerifyEngine::kCuda) return choose_device(device);
  if (device == "cpu") refuse("cuda", "auto, cuda or cuda:N");
  DeviceChoice choice = choose_device(device);
  if (choice.gpus.empty()) throw Error(ErrorCode::kDeviceFailed, "--engine cuda: " + choice.why);
  choice.is_required = true;
  return choice;
}

}  // namespace weightpress::job
