#include "model/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include <nlohmann/json.hpp>

#include "model/text.h"

namespace weightpress::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
// Values of unknown keys are skipped; nothing legal nests deeper.
constexpr unsigned kMaxSkipDepth = 64;
// Far above what any framework makes (torch 64, numpy 64); keeps a hostile list of ones from filling the
// memory.
constexpr std::size_t kMaxDimensions = 1024;

Unexpected corrupt(const std::string& file_name, const std::string& what) {
  return Unexpected(ErrorCode::kCorruptFile, printable(file_name) + ": " + what);
}

Unexpected corrupt_tensor(const std::string& file_name, const std::string& tensor, const std::string& what) {
  Unexpected failure = corrupt(file_name, "tensor " + in_quotes(tensor) + ": " + what);
  failure.error().tensor = tensor;
  return failure;
}

// One pass over the header's events. Knows the shape of a header, not yet whether its numbers are true.
class HeaderEvents final : public json::json_sax_t {
 public:
  explicit HeaderEvents(const std::string& file_name) : file_name_(file_name) {}

  SafetensorsHeader header;
  std::optional<Unexpected> failure;

  bool null() override {
    // The package reads a null as no metadata.
    if (inside_ == Inside::kTop && at_metadata_) return header.has_metadata = false, true;
    return unexpected_value();
  }
  bool boolean(bool) override { return unexpected_value(); }
  bool number_integer(json::number_integer_t) override { return unexpected_value(); }
  bool number_float(json::number_float_t, const std::string&) override { return unexpected_value(); }
  bool binary(json::binary_t&) override { return unexpected_value(); }

  bool number_unsigned(json::number_unsigned_t value) override {
    if (skip_depth_ > 0) return true;
    if (inside_ == Inside::kShape) {
      if (tensor().shape.size() == kMaxDimensions) return fail("has too many dimensions");
      tensor().shape.push_back(value);
    } else if (inside_ == Inside::kOffsets) {
      if (num_offsets_ == 2) return fail("data_offsets must be two numbers, the first and the last byte");
      (num_offsets_++ == 0 ? tensor().begin_bytes : tensor().end_bytes) = value;
    } else {
      return unexpected_value();
    }
    return true;
  }

  bool string(std::string& value) override {
    if (skip_depth_ > 0) return true;
    if (inside_ == Inside::kMetadata) {
      header.metadata.back().second = std::move(value);
    } else if (inside_ == Inside::kTensor && field_ == kDtype) {
      const std::optional<Dtype> dtype = parse_dtype(value);
      if (!dtype) return fail("has the unknown dtype " + in_quotes(value));
      tensor().dtype = *dtype;
    } else {
      return unexpected_value();
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (skips_container()) return descend();
    if (inside_ == Inside::kNothing) {
      inside_ = Inside::kTop;
    } else if (inside_ == Inside::kTop && at_metadata_) {
      inside_ = Inside::kMetadata;
    } else if (inside_ == Inside::kTop) {
      inside_ = Inside::kTensor;
      fields_seen_ = 0;
      num_offsets_ = 0;
    } else {
      return unexpected_value();
    }
    return true;
  }

  bool end_object() override {
    if (skip_depth_ > 0) return --skip_depth_, true;
    if (inside_ == Inside::kTensor) {
      for (const Field field : {kDtype, kShape, kOffsets})
        if ((fields_seen_ & field) == 0) return fail("has no " + std::string(field_name(field)));
    }
    inside_ = inside_ == Inside::kTop ? Inside::kNothing : Inside::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (skips_container()) return descend();
    if (inside_ != Inside::kTensor || field_ == kDtype) return unexpected_value();
    inside_ = field_ == kShape ? Inside::kShape : Inside::kOffsets;
    return true;
  }

  bool end_array() override {
    if (skip_depth_ > 0) return --skip_depth_, true;
    if (inside_ == Inside::kOffsets && num_offsets_ != 2)
      return fail("data_offsets must be two numbers, the first and the last byte");
    inside_ = Inside::kTensor;
    return true;
  }

  bool key(std::string& name) override {
    if (skip_depth_ > 0) return true;
    if (inside_ == Inside::kMetadata) {
      header.metadata.emplace_back(std::move(name), std::string());
    } else if (inside_ == Inside::kTensor) {
      field_ = name == "dtype"          ? kDtype
               : name == "shape"        ? kShape
               : name == "data_offsets" ? kOffsets
                                        : kUnknown;
      if ((fields_seen_ & field_) != 0) return fail("duplicate key " + in_quotes(name) + " in its entry");
      fields_seen_ |= field_;
    } else if (name == kMetadataKey) {
      if (header.has_metadata) return fail_file("duplicate __metadata__ in the header");
      header.has_metadata = at_metadata_ = true;
    } else {
      at_metadata_ = false;
      if (name.size() > kMaxNameBytes)
        return fail_file("a tensor's name has " + std::to_string(name.size()) + " bytes; more than " +
                         std::to_string(kMaxNameBytes) + " are not a name of a model: " + in_quotes(name));
      header.tensors.emplace_back().name = std::move(name);
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    return fail_file("the header is not valid JSON in UTF-8 (at its byte " + std::to_string(position) +
                     "); the file is damaged or not a safetensors file");
  }

 private:
  enum class Inside : std::uint8_t { kNothing, kTop, kMetadata, kTensor, kShape, kOffsets };
  enum Field : unsigned { kUnknown = 0, kDtype = 1, kShape = 2, kOffsets = 4 };

  static std::string_view field_name(Field field) {
    return field == kDtype ? "dtype" : field == kShape ? "shape" : "data_offsets";
  }

  TensorEntry& tensor() { return header.tensors.back(); }

  bool fail_file(const std::string& what) {
    failure = corrupt(file_name_, what);
    return false;
  }
  bool fail(const std::string& what) {
    failure = corrupt_tensor(file_name_, tensor().name, what);
    return false;
  }

  // The format lets a reader meet keys it does not know in a tensor's entry.
  bool skips_container() const {
    return skip_depth_ > 0 || (inside_ == Inside::kTensor && field_ == kUnknown);
  }
  bool descend() {
    if (++skip_depth_ > kMaxSkipDepth) return fail("its entry is nested too deeply");
    return true;
  }

  bool unexpected_value() {
    if (skips_container()) return true;
    switch (inside_) {
      case Inside::kNothing:
        return fail_file("the header is not a JSON object");
      case Inside::kTop:
        return at_metadata_ ? fail_file("__metadata__ must be an object of strings")
                            : fail("must be an object");
      case Inside::kMetadata:
        return fail_file("__metadata__: the value of " + in_quotes(header.metadata.back().first) +
                         " must be a string");
      default:
        break;
    }
    if (field_ == kDtype) return fail("dtype must be a string");
    return fail(std::string(field_name(field_)) + " must be a list of non-negative integers");
  }

  const std::string& file_name_;
  Inside inside_ = Inside::kNothing;
  Field field_ = kUnknown;    // the key whose value comes next, in kTensor
  unsigned fields_seen_ = 0;  // of the current entry
  unsigned num_offsets_ = 0;  // of the current entry
  unsigned skip_depth_ = 0;   // containers open inside the value of an unknown key
  bool at_metadata_ = false;  // the key whose value comes next is __metadata__, in kTop
};

template <class Items, class Name>
const std::string* find_duplicate(const Items& items, Name name) {
  std::vector<const std::string*> names;
  names.reserve(items.size());
  for (const auto& item : items) names.push_back(&name(item));
  std::sort(names.begin(), names.end(), [](auto* a, auto* b) { return *a < *b; });
  const auto twin = std::adjacent_find(names.begin(), names.end(), [](auto* a, auto* b) { return *a == *b; });
  return twin == names.end() ? nullptr : *twin;
}

std::string range_of(const TensorEntry& tensor) {
  return std::string("[") + std::to_string(tensor.begin_bytes) + ", " + std::to_string(tensor.end_bytes) +
         ")";
}

// Nothing, or why the entry's numbers cannot be true.
std::optional<std::string> find_wrong_size(const TensorEntry& tensor, std::uint64_t data_bytes) {
  if (tensor.begin_bytes > tensor.end_bytes)
    return "data_offsets " + range_of(tensor) + " end before they begin";
  if (tensor.end_bytes > data_bytes) {
    return "data_offsets " + range_of(tensor) + " are out of range: the file has only " +
           std::to_string(data_bytes) + " bytes of data; it was cut short (download it again) or is damaged";
  }
  const auto num_elements = checked_num_elements(tensor.shape);
  if (!num_elements || *num_elements > std::numeric_limits<std::uint64_t>::max() / 64)
    return "the number of elements of its shape overflows 64 bits";
  const auto size_bytes = checked_size_bytes(tensor.dtype, tensor.shape);
  const std::string elements =
      std::to_string(*num_elements) + " elements of " + std::string(dtype_name(tensor.dtype));
  if (!size_bytes) return elements + " are not a whole number of bytes";
  if (*size_bytes != tensor.size_bytes()) {
    return "data_offsets span " + std::to_string(tensor.size_bytes()) + " bytes, but " + elements + " take " +
           std::to_string(*size_bytes);
  }
  return std::nullopt;
}

void sort_by_place(std::vector<TensorEntry>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(
      order, {}, [&](std::size_t i) { return std::tuple(tensors[i].begin_bytes, tensors[i].end_bytes, i); });
  std::vector<TensorEntry> sorted;
  sorted.reserve(tensors.size());
  for (const std::size_t i : order) sorted.push_back(std::move(tensors[i]));
  tensors = std::move(sorted);
}

Result<void> check_tiling(const std::vector<TensorEntry>& tensors, std::uint64_t data_bytes,
                          const std::string& file_name) {
  std::uint64_t end = 0;
  const TensorEntry* last = nullptr;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin_bytes < end) {
      return corrupt_tensor(
          file_name, tensor.name,
          "data_offsets " + range_of(tensor) + " overlap those of tensor " + in_quotes(last->name));
    }
    if (tensor.begin_bytes > end) {
      return corrupt_tensor(
          file_name, tensor.name,
          "a hole of " + std::to_string(tensor.begin_bytes - end) + " bytes lies before its data");
    }
    end = tensor.end_bytes;
    last = &tensor;
  }
  if (end != data_bytes) {
    return corrupt(file_name,
                   std::to_string(data_bytes - end) +
                       " trailing bytes follow the last tensor; the file is damaged or was appended to");
  }
  return {};
}

// What people have under the name of a safetensors file when it is none.
std::optional<std::string> recognise_other_file(std::string_view head) {
  if (head.starts_with("version https://git-lfs"))
    return "is a Git LFS pointer, not the file itself: fetch it with 'git lfs pull'";
  if (head.starts_with("PK\x03\x04"))
    return "is a zip archive (a PyTorch checkpoint?), not a safetensors file: convert it first";
  if (head.starts_with("GGUF")) return "is a GGUF file, not a safetensors file: use the original checkpoint";
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  std::string start(head.substr(0, 9));
  for (char& c : start) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  if (start == "<!doctype" || start.starts_with("<html") || start.starts_with("<?xml"))
    return "is a web page (HTML), not a safetensors file: the download failed (a login page?); fetch it "
           "again";
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> checked_num_elements(const std::vector<std::uint64_t>& shape) {
  std::uint64_t product = 1;
  for (const std::uint64_t dimension : shape)
    if (__builtin_mul_overflow(product, dimension, &product)) return std::nullopt;
  return product;
}

std::optional<std::uint64_t> checked_size_bytes(Dtype dtype, const std::vector<std::uint64_t>& shape) {
  const auto num_elements = checked_num_elements(shape);
  std::uint64_t bits = 0;
  if (!num_elements || __builtin_mul_overflow(*num_elements, std::uint64_t{dtype_bits(dtype)}, &bits) ||
      bits % 8 != 0)
    return std::nullopt;
  return bits / 8;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                                   const std::string& file_name) {
  // The parser would take a byte order mark as nothing and a NUL as the end of the text.
  if (text.starts_with("\xEF\xBB\xBF")) return corrupt(file_name, "the header begins with a byte order mark");
  if (const std::size_t nul = text.find('\0'); nul != text.npos)
    return corrupt(file_name, "the header holds a NUL byte (at its byte " + std::to_string(nul + 1) + ")");

  HeaderEvents events(file_name);
  if (!json::sax_parse(text.begin(), text.end(), &events)) return std::move(*events.failure);
  SafetensorsHeader& header = events.header;
  header.data_offset = kLengthBytes + text.size();

  if (const auto* name = find_duplicate(header.tensors, [](auto& t) -> auto& { return t.name; }))
    return corrupt_tensor(file_name, *name, "duplicate entry: the name stands in the header more than once");
  if (const auto* name = find_duplicate(header.metadata, [](auto& pair) -> auto& { return pair.first; }))
    return corrupt(file_name, "duplicate key " + in_quotes(*name) + " in __metadata__");
  for (const TensorEntry& tensor : header.tensors)
    if (const auto wrong = find_wrong_size(tensor, data_bytes))
      return corrupt_tensor(file_name, tensor.name, *wrong);

  sort_by_place(header.tensors);
  if (auto tiling = check_tiling(header.tensors, data_bytes, file_name); !tiling)
    return Unexpected(std::move(tiling.error()));
  return std::move(header);
}

Result<SafetensorsHeader> try_read_safetensors_header(const File& file) {
  const std::string file_name = file.path().string();
  const std::uint64_t file_bytes = file.size_bytes();
  std::string head(std::min<std::uint64_t>(file_bytes, 512), '\0');
  file.read_at(head.data(), head.size(), 0);
  if (const auto other = recognise_other_file(head)) return corrupt(file_name, *other);
  if (file_bytes < kLengthBytes) {
    return corrupt(file_name, "is only " + std::to_string(file_bytes) +
                                  " bytes long, too short for a safetensors file; download it again");
  }

  std::uint64_t header_bytes = 0;
  for (unsigned i = 0; i < kLengthBytes; ++i)
    header_bytes |= std::uint64_t{static_cast<std::uint8_t>(head[i])} << (8 * i);
  const std::string claim = "says that its header has " + std::to_string(header_bytes) + " bytes, ";
  if (header_bytes > kMaxHeaderBytes) {
    return corrupt(file_name, claim + "more than the " + std::to_string(kMaxHeaderBytes) +
                                  " that are allowed: it is damaged or not a safetensors file");
  }
  if (header_bytes > file_bytes - kLengthBytes) {
    return corrupt(file_name, claim + "but ends after " + std::to_string(file_bytes - kLengthBytes) +
                                  ": it was cut short (download it again) or is not a safetensors file");
  }
  std::string text(header_bytes, '\0');
  file.read_at(text.data(), header_bytes, kLengthBytes);
  return parse_safetensors_header(text, file_bytes - kLengthBytes - header_bytes, file_name);
}

SafetensorsHeader read_safetensors_header(const File& file) {
  auto header = try_read_safetensors_header(file);
  return std::move(header.value());
}

}  // namespace weightpress::model
