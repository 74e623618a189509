// Writes the seeds of fuzz_df11_buffers: the golden units in the form that it reads.
//
//   write_corpora <tests/golden> <folder>: files in <folder>, and <folder>.list as libFuzzer's
//   -seed_inputs=@<list> takes it
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "decode_fuzz.h"

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

void write_corpora(const fs::path& golden, const fs::path& target) {
  Corpus corpus(target);
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
      const std::size_t num_chunks = seed.unit.gaps.size() / 320;
      const bool is_short = seed.unit.output_positions.size() == 4 * num_chunks;
      for (const std::uint8_t repair : {std::uint8_t{0}, std::uint8_t{fuzz::kRepairedEnds}}) {
        seed.mode = static_cast<std::uint8_t>(repair | (is_short ? fuzz::kShortPositions : 0));
        corpus.add(name + "-" + luts + (repair ? "-repaired" : ""), fuzz::write_sized_unit(seed));
      }
    }
  }
  corpus.write_list();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  write_corpora(argv[1], argv[2]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
