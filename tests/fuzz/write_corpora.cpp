// Writes the golden units as seeds of fuzz_df11_model and of fuzz_df11_decode, in the forms that they read.
//
//   write_corpora <tests/golden> <models> <units>: files in the last two folders, and <folder>.list for each
//   as libFuzzer's -seed_inputs=@<list> takes it
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "decode_fuzz.h"
#include "model/safetensors_layout.h"

namespace {

namespace fs = std::filesystem;
using namespace weightpress;
using Bytes = std::vector<std::uint8_t>;

// Longer seeds make slow mutations.
constexpr std::size_t kMaxSeedBytes = 40'000;

Bytes read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw fs::filesystem_error("cannot read", path, {});
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class Corpus {
 public:
  explicit Corpus(fs::path folder) : folder_(std::move(folder)) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void add(const std::string& name, const Bytes& bytes) {
    if (bytes.size() > kMaxSeedBytes) return;
    std::ofstream(folder_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    list_ += (list_.empty() ? "" : ",") + (folder_ / name).string();
  }
  void write_list() const { std::ofstream(folder_.string() + ".list", std::ios::binary) << list_; }

 private:
  fs::path folder_;
  std::string list_;
};

/// The unit `u` as a file.
Bytes as_model(const Df11Unit& unit, const Bytes& split_positions) {
  const std::pair<const char*, const Bytes*> buffers[] = {
      {"split_positions", &split_positions},        {"luts", &unit.luts},
      {"encoded_exponent", &unit.encoded_exponent}, {"sign_mantissa", &unit.sign_mantissa},
      {"output_positions", &unit.output_positions}, {"gaps", &unit.gaps}};
  std::vector<model::TensorSpec> specs;
  for (const auto& [name, bytes] : buffers) {
    const bool is_splits = bytes == &split_positions, is_luts = bytes == &unit.luts;
    std::vector<std::uint64_t> shape = {is_splits ? bytes->size() / 8 : bytes->size()};
    if (is_luts) shape = {bytes->size() / 256, 256};
    specs.push_back({std::string("u.") + name, is_splits ? model::Dtype::kI64 : model::Dtype::kU8, shape});
  }
  const model::SafetensorsLayout layout = model::plan_safetensors_layout(specs, {}).value();
  Bytes file(layout.header.begin(), layout.header.end());
  for (const model::TensorPlacement& placement : layout.tensors) {
    const Bytes& bytes = *buffers[placement.spec_index].second;
    file.insert(file.end(), bytes.begin(), bytes.end());
  }
  return file;
}

void write_corpora(const fs::path& golden, const fs::path& models_folder, const fs::path& units_folder) {
  Corpus models(models_folder), corpus(units_folder);
  for (const auto& entry : fs::directory_iterator(golden / "df11")) {
    if (!entry.is_directory()) continue;
    const fs::path folder = entry.path();
    const std::string name = folder.filename().string();
    for (const std::string luts : {"luts", "luts_safe"}) {
      if (!fs::exists(folder / (luts + ".u8"))) continue;
      fuzz::DecodeSeed seed;
      seed.unit.luts = read(folder / (luts + ".u8"));
      seed.unit.encoded_exponent = read(folder / "encoded_exponent.u8");
      seed.unit.sign_mantissa = read(folder / "sign_mantissa.u8");
      seed.unit.output_positions = read(folder / "output_positions.u32");
      seed.unit.gaps = read(folder / "gaps.u8");
      models.add(name + "-" + luts, as_model(seed.unit, read(folder / "split_positions.i64")));
      const std::size_t num_chunks = seed.unit.gaps.size() / 320;
      const bool is_short = seed.unit.output_positions.size() == 4 * num_chunks;
      for (const std::uint8_t repair : {std::uint8_t{0}, std::uint8_t{fuzz::kRepairedEnds}}) {
        seed.mode = static_cast<std::uint8_t>(repair | (is_short ? fuzz::kShortPositions : 0));
        corpus.add(name + "-" + luts + (repair ? "-repaired" : ""), fuzz::write_sized_unit(seed));
      }
    }
  }
  models.write_list();
  corpus.write_list();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return 2;
  write_corpora(argv[1], argv[2], argv[3]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
