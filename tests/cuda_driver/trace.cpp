#include "trace.h"

#include <string_view>

namespace weightpress::cuda_driver {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

class Object {
 public:
  Object& add(const char* key, std::uint64_t value) { return raw(key, std::to_string(value)); }
  Object& add(const char* key, std::string_view value) { return raw(key, quoted(value)); }
  Object& add(const char* key, double value) { return raw(key, std::to_string(value)); }
  Object& raw(const char* key, const std::string& value) {
    text_ += text_.size() == 1 ? "\"" : ", \"";
    text_ += key;
    text_ += "\": " + value;
    return *this;
  }
  std::string finish() const { return text_ + "}\n"; }

 private:
  std::string text_ = "{";
};

std::string_view engine_name(Engine engine) {
  switch (engine) {
    case Engine::kNone:
      return "none";
    case Engine::kCopyIn:
      return "copy_in";
    case Engine::kCopyOut:
      return "copy_out";
    case Engine::kCompute:
      return "compute";
    case Engine::kHost:
      break;
  }
  return "host";
}

}  // namespace

void Trace::open(const Settings& settings) {
  file_.reset();
  if (settings.trace_path.empty()) return;
  file_.reset(std::fopen(settings.trace_path.c_str(), "w"));
  if (file_ == nullptr) {
    std::fprintf(stderr, "emulated CUDA driver: the trace %s cannot be written\n",
                 settings.trace_path.c_str());
    return;
  }
  line(Object()
           .add("op", std::string_view("settings"))
           .add("seed", settings.seed)
           .add("devices", std::uint64_t{settings.num_devices})
           .add("memory_bytes", settings.memory_bytes)
           .add("copy_in_gbps", settings.copy_in_gbps)
           .add("copy_out_gbps", settings.copy_out_gbps)
           .add("pageable_gbps", settings.pageable_gbps)
           .add("memory_gbps", settings.memory_gbps)
           .add("instructions_per_ns", settings.instructions_per_ns)
           .add("copy_latency_ns", settings.copy_latency_ns)
           .add("launch_latency_ns", settings.launch_latency_ns)
           .finish());
}

void Trace::write(const Operation& operation, const char* state) {
  if (!is_open()) return;
  Object object;
  object.add("op", std::string_view(operation.kind)).add("sequence", operation.sequence);
  if (!operation.name.empty()) object.add("name", std::string_view(operation.name));
  object.add("device", std::uint64_t{operation.device})
      .add("context", operation.context)
      .add("stream", operation.stream)
      .add("engine", engine_name(operation.engine))
      .add("start_ns", operation.start_ns)
      .add("end_ns", operation.end_ns)
      .add("bytes", operation.bytes)
      .raw("pinned", operation.is_pinned ? "true" : "false")
      .add("state", std::string_view(state));
  if (!operation.failure.empty()) object.add("failure", std::string_view(operation.failure));
  if (const auto& counters = operation.counters) {
    object.add("lane_instructions", counters->lane_instructions)
        .add("global_load_bytes", counters->global_load_bytes)
        .add("global_store_bytes", counters->global_store_bytes)
        .add("global_load_sectors", counters->global_load_sectors)
        .add("global_store_sectors", counters->global_store_sectors)
        .add("shared_instructions", counters->shared_instructions)
        .add("shared_bank_words", counters->shared_bank_words)
        .add("atomic_instructions", counters->atomic_instructions)
        .add("atomic_lanes", counters->atomic_lanes);
  }
  line(object.finish());
}

void Trace::note(const std::string& what, std::uint32_t device, const std::string& message) {
  if (!is_open()) return;
  line(Object()
           .add("op", std::string_view(what))
           .add("device", std::uint64_t{device})
           .add("message", std::string_view(message))
           .finish());
}

void Trace::totals(std::uint64_t calls, std::uint64_t allocations, std::uint64_t launches) {
  if (!is_open()) return;
  line(Object()
           .add("op", std::string_view("totals"))
           .add("calls", calls)
           .add("allocations", allocations)
           .add("launches", launches)
           .finish());
}

void Trace::line(const std::string& text) {
  std::fputs(text.c_str(), file_.get());
  std::fflush(file_.get());  // a process may end at any time
}

}  // namespace weightpress::cuda_driver
