#include "job/tile_ans_model.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "job/free_memory.h"
#include "job/record_file.h"
#include "job/size_option.h"
#include "job/tile_ans_record.h"
#include "model/df11_model.h"
#include "model/safetensors_header.h"
#include "model/text.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;
using model::in_quotes;
using model::printable;
using tile_ans::Buffer;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// As much as keeps so many threads busy.
constexpr std::uint64_t kSlabBytesPerThread = 16 * kMiB;
constexpr std::uint64_t kMinSlabBytes = 64 * kMiB, kMaxSlabBytes = 512 * kMiB;

std::string header_suffix() {
  return std::string(model::kTileAnsPrefix) + std::string(model::kTileAnsHeaderName);
}

/// The tensor's name, if this is the name of its container's header.
std::optional<std::string_view> name_of_header(std::string_view tensor) {
  const std::string suffix = header_suffix();
  if (!tensor.ends_with(suffix)) return std::nullopt;
  return tensor.substr(0, tensor.size() - suffix.size());
}

tile_ans::ContainerShapes shapes_of(const model::Checkpoint& checkpoint, const StoredTileAns& stored) {
  tile_ans::ContainerShapes shapes;
  for (std::size_t b = 0; b < tile_ans::kNumBuffers; ++b) {
    const model::SourceTensor& tensor = checkpoint.tensors()[stored.buffers[b]];
    shapes.buffers[b] = {model::tile_ans_buffer_type(tensor.dtype), tensor.shape};
  }
  shapes.tensor_shape = stored.header.shape;
  shapes.element_bytes = model::dtype_bits(stored.header.dtype) / 8;
  return shapes;
}

class Survey {
 public:
  explicit Survey(const model::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  TileAnsSurvey run() {
    is_part_.assign(checkpoint_.tensors().size(), false);
    for (std::size_t t = 0; t < is_part_.size(); ++t) {
      const auto name = name_of_header(checkpoint_.tensors()[t].name);
      if (!name) continue;
      is_part_[t] = true;
      StoredTileAns stored{.name = std::string(*name), .header_tensor = t};
      if (auto read = read_container(stored)) {
        survey_.containers.push_back(std::move(stored));
      } else {
        survey_.broken.push_back(
            container_error(checkpoint_, t, *name, read.error().code, read.error().message));
      }
    }
    for (std::size_t t = 0; t < is_part_.size(); ++t) {
      if (is_part_[t]) continue;
      if (const auto owner = owner_of_part(checkpoint_.tensors()[t].name)) {
        survey_.broken.push_back(
            container_error(checkpoint_, t, *owner, ErrorCode::kCorruptFile,
                            "there is " + in_quotes(checkpoint_.tensors()[t].name) +
                                ", which no container has: its header is missing, or does not list it"));
      } else {
        survey_.kept.push_back(t);
      }
    }
    return std::move(survey_);
  }

 private:
  static Unexpected corrupt(std::string what) { return Unexpected(ErrorCode::kCorruptFile, std::move(what)); }

  /// What is named like a buffer.
  static std::optional<std::string_view> owner_of_part(std::string_view tensor) {
    const std::string infix = std::string(model::kTileAnsPrefix) + std::string(model::kTileAnsBuffersPrefix);
    const std::size_t place = tensor.rfind(infix);
    if (place == tensor.npos) return std::nullopt;
    return tensor.substr(0, place);
  }

  Result<std::size_t> take_buffer(const StoredTileAns& stored, std::string_view name) {
    const std::string full = stored.name + std::string(model::kTileAnsPrefix) +
                             std::string(model::kTileAnsBuffersPrefix) + std::string(name);
    const model::SourceTensor* const tensor = checkpoint_.find(full);
    if (tensor == nullptr) return corrupt("its buffer " + in_quotes(name) + " is missing");
    const auto index = static_cast<std::size_t>(tensor - checkpoint_.tensors().data());
    is_part_[index] = true;
    return index;
  }

  Result<void> read_container(StoredTileAns& stored) {
    const model::SourceTensor& tensor = checkpoint_.tensors()[stored.header_tensor];
    if (tensor.dtype != model::Dtype::kU8 || tensor.shape.size() != 1)
      return corrupt("its header is not a list of U8");
    if (tensor.size_bytes > model::kMaxTileAnsHeaderBytes)
      return corrupt("its header has " + std::to_string(tensor.size_bytes) + " bytes, as no container's has");
    std::string json(tensor.size_bytes, '\0');
    checkpoint_.read(tensor, 0, json.size(), json.data());
    auto header = model::parse_tile_ans_header(json);
    if (!header) return Unexpected(header.error());
    stored.header = std::move(*header);
    const auto size = model::checked_size_bytes(stored.header.dtype, stored.header.shape);
    if (!size || *size > INT64_MAX || stored.header.shape.size() > model::kMaxDimensions)
      return corrupt("the shape in its header is that of no tensor");
    if (checkpoint_.find(stored.name) != nullptr)
      return Unexpected(ErrorCode::kNameConflict, "it is stored twice, as it is and compressed");
    stored.stored_bytes = tensor.size_bytes;
    if (stored.is_raw()) {
      auto data = take_buffer(stored, model::kRawBufferName);
      if (!data) return Unexpected(data.error());
      stored.data = *data;
      const model::SourceTensor& found = checkpoint_.tensors()[*data];
      stored.stored_bytes += found.size_bytes;
      return model::check_raw_container(stored.header, found.dtype, found.shape);
    }
    Result<void> missing;
    for (std::size_t b = 0; b < tile_ans::kNumBuffers; ++b) {
      auto buffer = take_buffer(stored, tile_ans::kBufferNames[b]);
      if (!buffer) {  // the others are taken all the same
        if (missing) missing = Unexpected(buffer.error());
        continue;
      }
      stored.buffers[b] = *buffer;
      stored.stored_bytes += checkpoint_.tensors()[*buffer].size_bytes;
    }
    if (!missing) return missing;
    return tile_ans::check_layout_buffer(shapes_of(checkpoint_, stored));
  }

  const model::Checkpoint& checkpoint_;
  std::vector<bool> is_part_;
  TileAnsSurvey survey_;
};

}  // namespace

std::uint64_t StoredTileAns::num_elements() const {
  return model::checked_num_elements(header.shape).value();
}

std::uint64_t StoredTileAns::size_bytes() const {
  return model::checked_size_bytes(header.dtype, header.shape).value();
}

TileAnsSurvey survey_tile_ans(const model::Checkpoint& checkpoint) {
  return Survey(checkpoint).run();
}

bool holds_tile_ans(const model::Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.tensors(), [](const model::SourceTensor& tensor) {
    return name_of_header(tensor.name).has_value();
  });
}

bool is_tile_ans_output(const fs::path& path) {
  try {
    const auto checkpoint = model::Checkpoint::open(path, model::Df11Policy::kAccept);
    if (holds_tile_ans(checkpoint)) return true;
    const model::Df11Survey df11 = model::survey_df11_model(checkpoint);
    if (!df11.model.units.empty() || !df11.broken.empty()) return false;  // whatever a record says
    const RecordFile record = find_record_file(checkpoint, path);
    return !record.path.empty() && record.is_of_these_files && is_tile_ans_record(record.path);
  } catch (const Error&) {
    return false;
  } catch (const fs::filesystem_error&) {
    return false;
  }
}

Result<OpenedTileAns> open_container(const model::Checkpoint& checkpoint, const StoredTileAns& stored) {
  const auto fail = [&](const ErrorDetails& error) {
    return Unexpected(
        container_error(checkpoint, stored.header_tensor, stored.name, error.code, error.message));
  };
  const tile_ans::ContainerShapes shapes = shapes_of(checkpoint, stored);
  OpenedTileAns opened;
  for (std::size_t b = 0; b < tile_ans::kNumBuffers; ++b) {
    const model::SourceTensor& tensor = checkpoint.tensors()[stored.buffers[b]];
    opened.buffers.places[b] = {&checkpoint.files()[tensor.file_index], tensor.offset_bytes};
  }
  const auto read = [&](Buffer buffer, std::uint64_t first, auto values) {
    opened.buffers.read(buffer, first, values, 1);
  };
  std::array<std::int64_t, tile_ans::kLayoutNumbers> numbers;
  read(Buffer::kLayout, 0, std::span<std::int64_t>(numbers));
  const auto layout = tile_ans::read_layout(shapes, numbers);
  if (!layout) return fail(layout.error());
  std::vector<std::uint8_t> modes(layout->num_lanes);
  std::vector<std::uint32_t> tables(std::uint64_t{layout->num_lanes} * layout->table_size());
  std::array<std::uint32_t, 2> ends;
  read(Buffer::kLaneModes, 0, std::span(modes));
  read(Buffer::kDecodeTables, 0, std::span(tables));
  read(Buffer::kOffsets, 0, std::span(ends).first(1));
  read(Buffer::kOffsets, layout->num_streams(), std::span(ends).last(1));
  auto plan = tile_ans::read_container(
      shapes, *layout,
      {.lane_modes = modes, .decode_tables = tables, .first_offset = ends[0], .last_offset = ends[1]});
  if (!plan) return fail(plan.error());
  opened.plan = *plan;
  opened.payload_words = ends[1];
  return opened;
}

ErrorDetails container_error(const model::Checkpoint& checkpoint, std::size_t header_tensor,
                             std::string_view name, ErrorCode code, const std::string& what) {
  const model::File& file = checkpoint.files()[checkpoint.tensors()[header_tensor].file_index];
  return {.code = code,
          .message = printable(file.path().native()) + ": tensor " + in_quotes(name) + ": " + what,
          .tensor = std::string(name)};
}

std::string describe_fault(const tile_ans::StageStatus& status) {
  const std::string tile = "tile " + std::to_string(status.tile) + ": ";
  if (status.code == tile_ans::StageCode::kDiffers) return tile + tile_ans::stage_code_text(status.code);
  return "lane " + std::to_string(status.lane) + ", " + tile + tile_ans::stage_code_text(status.code);
}

std::optional<std::string> find_index_name(const fs::path& path) {
  const auto is_index = [](std::string_view name) {
    return !name.starts_with('.') && name.find(".safetensors.index.") != name.npos && name.ends_with(".json");
  };
  if (!fs::is_directory(path)) {
    std::string name = path.filename().string();
    return is_index(name) ? std::optional(std::move(name)) : std::nullopt;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (std::string name = entry.path().filename().string(); is_index(name)) return name;
  return std::nullopt;
}

std::uint64_t decode_memory_bytes(const model::Checkpoint& checkpoint,
                                  const std::vector<StoredTileAns>& containers, int num_threads) {
  std::uint64_t wanted =
      std::clamp(static_cast<std::uint64_t>(num_threads) * kSlabBytesPerThread, kMinSlabBytes, kMaxSlabBytes);
  const std::uint64_t free = find_free_memory().bytes / 10 * 6;
  wanted = std::min(wanted, std::max(free, kMinSlabBytes));
  for (const StoredTileAns& stored : containers) {
    if (stored.is_raw()) continue;
    const auto opened = open_container(checkpoint, stored);
    if (!opened) continue;  // told when its turn comes
    const std::uint64_t least = decode_bytes(opened->plan.layout, 1);
    if (least > std::max(wanted, free)) {
      throw Error(container_error(
          checkpoint, stored.header_tensor, stored.name, ErrorCode::kOutOfMemory,
          "one of its tiles takes " + format_size(least) + " of memory, and so much is not free"));
    }
    wanted = std::max(wanted, least);
  }
  return wanted;
}

}  // namespace weightpress::job
