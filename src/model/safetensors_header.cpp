#include "model/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/foreign_file.h"
#include "model/header_text.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
// Values of unknown keys are skipped; nothing legal nests deeper.
constexpr unsigned kMaxSkipDepth = 64;
// As much of a key as messages need: in_quotes() cuts before.
constexpr std::size_t kKeptKeyBytes = 2'000;

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
  HeaderEvents(const std::string& file_name, const HeaderText& text) : file_name_(file_name), text_(text) {}

  // Where a key of the metadata stands in metadata_json, quotes included: at most as long as the header.
  struct MetadataKey {
    std::uint32_t offset_bytes;
    std::uint32_t size_bytes;
  };
  static_assert(kMaxHeaderBytes <= std::numeric_limits<std::uint32_t>::max());

  SafetensorsHeader header;
  std::vector<MetadataKey> metadata_keys;
  std::optional<Unexpected> failure;

  bool null() override {
    // The package reads a null as no metadata.
    if (inside_ == Inside::kTop && at_metadata_) return true;
    return unexpected_value();
  }
  bool boolean(bool) override { return unexpected_value(); }
  bool number_integer(json::number_integer_t) override { return unexpected_value(); }
  bool number_float(json::number_float_t, const std::string&) override { return unexpected_value(); }
  bool binary(json::binary_t&) override { return unexpected_value(); }

  bool number_unsigned(json::number_unsigned_t value) override {
    if (skip_depth_ > 0) return true;
    if (inside_ == Inside::kShape) {
      if (shape_.size() == kMaxDimensions)
        return fail("has too many dimensions (more than " + std::to_string(kMaxDimensions) + ")");
      shape_.push_back(value);
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
      append_json_utf8(header.metadata_json, value);
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
      header.metadata_json = "{";
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
    if (inside_ == Inside::kMetadata) header.metadata_json += '}';
    inside_ = inside_ == Inside::kTop ? Inside::kNothing : Inside::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (skips_container()) return descend();
    if (inside_ != Inside::kTensor || field_ == kDtype) return unexpected_value();
    inside_ = field_ == kShape ? Inside::kShape : Inside::kOffsets;
    shape_.clear();
    return true;
  }

  bool end_array() override {
    if (skip_depth_ > 0) return --skip_depth_, true;
    if (inside_ == Inside::kOffsets && num_offsets_ != 2)
      return fail("data_offsets must be two numbers, the first and the last byte");
    if (inside_ == Inside::kShape) tensor().shape = shape_;  // a copy has no room to grow
    inside_ = Inside::kTensor;
    return true;
  }

  bool key(std::string& name) override {
    if (skip_depth_ > 0) return true;
    if (inside_ == Inside::kMetadata) {
      return add_metadata_key(name);
    } else if (inside_ == Inside::kTensor) {
      field_ = name == "dtype"          ? kDtype
               : name == "shape"        ? kShape
               : name == "data_offsets" ? kOffsets
                                        : kUnknown;
      if ((fields_seen_ & field_) != 0) return fail("duplicate key " + in_quotes(name) + " in its entry");
      fields_seen_ |= field_;
    } else if (name == kMetadataKey) {
      if (metadata_seen_) return fail_file("duplicate __metadata__ in the header");
      metadata_seen_ = at_metadata_ = true;
    } else {
      at_metadata_ = false;
      if (name.size() > kMaxNameBytes)
        return fail_file("a tensor's name has " + std::to_string(name.size()) + " bytes; more than " +
                         std::to_string(kMaxNameBytes) + " are not a name of a model: " + in_quotes(name));
      if (header.tensors.size() == kMaxTensors) return fail_too_many("tensors", kMaxTensors);
      header.tensors.emplace_back().name = std::string(name);  // a copy has no room to grow
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    return fail_file("the header is not valid JSON in UTF-8 (at its byte " +
                     std::to_string(position + text_.skipped_bytes()) +
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

  bool fail_too_many(const std::string& things, std::size_t most) {
    return fail_file("its header has more than " + std::to_string(most) + " " + things +
                     ", as no model does: it is damaged or not a model");
  }

  bool add_metadata_key(const std::string& key) {
    if (metadata_keys.size() == kMaxMetadataEntries)
      return fail_too_many("entries in __metadata__", kMaxMetadataEntries);
    std::string& json_text = header.metadata_json;
    if (!metadata_keys.empty()) json_text += ',';
    const std::size_t offset_bytes = json_text.size();
    append_json_utf8(json_text, key);
    metadata_keys.push_back({static_cast<std::uint32_t>(offset_bytes),
                             static_cast<std::uint32_t>(json_text.size() - offset_bytes)});
    json_text += ':';
    metadata_key_ = key.substr(0, kKeptKeyBytes);
    return true;
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
        return fail_file("__metadata__: the value of " + in_quotes(metadata_key_) + " must be a string");
      default:
        break;
    }
    if (field_ == kDtype) return fail("dtype must be a string");
    return fail(std::string(field_name(field_)) + " must be a list of non-negative integers");
  }

  const std::string& file_name_;
  const HeaderText& text_;
  std::vector<std::uint64_t> shape_;  // of the current entry
  std::string metadata_key_;          // whose value comes next
  Inside inside_ = Inside::kNothing;
  Field field_ = kUnknown;    // the key whose value comes next, in kTensor
  unsigned fields_seen_ = 0;  // of the current entry
  unsigned num_offsets_ = 0;  // of the current entry
  unsigned skip_depth_ = 0;   // containers open inside the value of an unknown key
  bool metadata_seen_ = false;
  bool at_metadata_ = false;  // the key whose value comes next is __metadata__, in kTop
};

const std::string* find_duplicate_name(const std::vector<TensorEntry>& tensors) {
  std::vector<const std::string*> names;
  names.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors) names.push_back(&tensor.name);
  std::ranges::sort(names, {}, [](auto* name) -> auto& { return *name; });
  const auto twin = std::ranges::adjacent_find(names, {}, [](auto* name) -> auto& { return *name; });
  return twin == names.end() ? nullptr : *twin;
}

// Keys are equal if they are spelled equally, as append_json_utf8 spells a text in one way.
std::optional<std::string> find_duplicate_key(const std::string& metadata_json,
                                              std::vector<HeaderEvents::MetadataKey>& keys) {
  const auto spelling = [&](const HeaderEvents::MetadataKey& key) {
    return std::string_view(metadata_json).substr(key.offset_bytes, key.size_bytes);
  };
  std::ranges::sort(keys, {}, spelling);
  const auto twin = std::ranges::adjacent_find(keys, {}, spelling);
  if (twin == keys.end()) return std::nullopt;
  return json::parse(spelling(*twin)).get<std::string>();
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
  if (size_bytes == tensor.size_bytes()) return std::nullopt;
  const std::string elements =
      std::to_string(*num_elements) + " elements of " + std::string(dtype_name(tensor.dtype));
  if (!size_bytes) return elements + " are not a whole number of bytes";
  return "data_offsets span " + std::to_string(tensor.size_bytes()) + " bytes, but " + elements + " take " +
         std::to_string(*size_bytes);
}

// In place: there may be a million tensors.
void sort_by_place(std::vector<TensorEntry>& tensors) {
  const auto place = [](const TensorEntry& tensor) {
    return std::pair(tensor.begin_bytes, tensor.end_bytes);
  };
  if (std::ranges::is_sorted(tensors, {}, place)) return;  // as nearly all writers leave them
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(place(tensors[i]), i); });
  // Entry order[i] belongs to place i. Moves go round each cycle of places.
  for (std::size_t first = 0; first < order.size(); ++first) {
    if (order[first] == first) continue;
    TensorEntry first_entry = std::move(tensors[first]);
    std::size_t i = first;
    while (order[i] != first) {
      tensors[i] = std::move(tensors[order[i]]);
      i = std::exchange(order[i], i);
    }
    tensors[i] = std::move(first_entry);
    order[i] = i;
  }
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

Result<SafetensorsHeader> parse(HeaderText& text, std::uint64_t data_bytes, const std::string& file_name) {
  HeaderEvents events(file_name, text);
  const bool parsed = json::sax_parse(text.begin(), text.end(), &events);
  if (text.failure) return corrupt(file_name, *text.failure);
  if (!parsed) return std::move(*events.failure);
  SafetensorsHeader& header = events.header;

  if (const std::string* name = find_duplicate_name(header.tensors))
    return corrupt_tensor(file_name, *name, "duplicate entry: the name stands in the header more than once");
  if (const auto key = find_duplicate_key(header.metadata_json, events.metadata_keys))
    return corrupt(file_name, "duplicate key " + in_quotes(*key) + " in __metadata__");
  for (const TensorEntry& tensor : header.tensors)
    if (const auto wrong = find_wrong_size(tensor, data_bytes))
      return corrupt_tensor(file_name, tensor.name, *wrong);

  sort_by_place(header.tensors);
  if (auto tiling = check_tiling(header.tensors, data_bytes, file_name); !tiling)
    return Unexpected(std::move(tiling.error()));
  return std::move(header);
}

// The parser would take it as nothing.
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

Unexpected begins_with_byte_order_mark(const std::string& file_name) {
  return corrupt(file_name, "the header begins with a byte order mark");
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

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json_text, std::uint64_t data_bytes,
                                                   const std::string& file_name, std::size_t piece_bytes) {
  if (json_text.starts_with(kByteOrderMark)) return begins_with_byte_order_mark(file_name);
  std::string_view rest = json_text;
  HeaderText text([&] {
    const std::string_view piece = rest.substr(0, piece_bytes);
    rest.remove_prefix(piece.size());
    return piece;
  });
  auto header = parse(text, data_bytes, file_name);
  if (header) header->data_offset = kLengthBytes + json_text.size();
  return header;
}

Result<SafetensorsHeader> try_read_safetensors_header(const File& file) {
  const std::string file_name = file.path().string();
  const std::uint64_t file_bytes = file.size_bytes();
  std::string head(std::min<std::uint64_t>(file_bytes, 512), '\0');
  file.read_at(head.data(), head.size(), 0);
  if (auto other = recognise_foreign_tensor_file(head, file_name)) return std::move(*other);
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
  const std::uint64_t data_offset = kLengthBytes + header_bytes;
  const std::string_view header_head =
      std::string_view(head).substr(kLengthBytes, std::min<std::uint64_t>(header_bytes, head.size()));
  if (header_head.starts_with(kByteOrderMark)) return begins_with_byte_order_mark(file_name);

  std::string piece(std::min<std::uint64_t>(header_bytes, kHeaderPieceBytes), '\0');
  std::uint64_t next_offset = kLengthBytes;
  HeaderText text([&] {
    const std::uint64_t bytes = std::min<std::uint64_t>(piece.size(), data_offset - next_offset);
    file.read_at(piece.data(), bytes, next_offset);
    next_offset += bytes;
    return std::string_view(piece).substr(0, bytes);
  });
  auto header = parse(text, file_bytes - data_offset, file_name);
  if (header) header->data_offset = data_offset;
  return header;
}

SafetensorsHeader read_safetensors_header(const File& file) {
  auto header = try_read_safetensors_header(file);
  return std::move(header.value());
}

}  // namespace weightpress::model
