#include "model/foreign_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include <weightpress/error.h>

#include "model/text.h"

namespace weightpress::model {
namespace {

struct Signature {
  std::string_view start;
  const char* what;
};

using namespace std::string_view_literals;

constexpr const char* kLfsPointer = "is a Git LFS pointer, not the file itself: fetch it with 'git lfs pull'";
constexpr const char* kWebPage =
    "is a web page (HTML or XML), not the file itself: the download failed (a login or error page?); fetch "
    "it "
    "again";
constexpr const char* kZip =
    "is a zip archive (a PyTorch checkpoint?), not a safetensors file: convert it first";
constexpr const char* kPickle =
    "is a pickle (an old PyTorch checkpoint?), not a safetensors file: convert it first";

constexpr std::array kSignatures = {
    Signature{"version https://git-lfs"sv, kLfsPointer},
    Signature{"version https://hawser"sv, kLfsPointer},
    Signature{"# xet version"sv,
              "is a xet pointer (text), not the file itself: download it with a client that knows xet"},
    Signature{"PK\x03\x04"sv, kZip},
    Signature{"\x80\x02"sv, kPickle},
    Signature{"\x80\x03"sv, kPickle},
    Signature{"\x80\x04"sv, kPickle},
    Signature{"\x80\x05"sv, kPickle},
    Signature{"GGUF"sv, "is a GGUF file, not a safetensors file: use the original checkpoint"},
    Signature{"\x93NUMPY"sv, "is a NumPy array, not a safetensors file: convert it first"},
    Signature{"\x89HDF\r\n"sv, "is an HDF5 file (Keras?), not a safetensors file: convert it first"},
    Signature{"\x1F\x8B"sv, "is compressed with gzip: unpack it first"},
    Signature{"\x28\xB5\x2F\xFD"sv, "is compressed with zstd: unpack it first"},
    Signature{"\xFD\x37zXZ\x00"sv, "is compressed with xz: unpack it first"},
    Signature{"BZh"sv, "is compressed with bzip2: unpack it first"},
    Signature{"\x37\x7A\xBC\xAF\x27\x1C"sv, "is a 7z archive: unpack it first"},
    Signature{
        "\x00\x05\x16\x07"sv,
        "is an AppleDouble file, which macOS puts beside a file for its attributes, not the file itself"}};

// A tar archive says so after the first member's name and numbers.
constexpr std::size_t kTarMagicOffset = 257;

std::string_view without_leading_space(std::string_view head) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  return head;
}

bool is_markup(std::string_view head) {
  std::string start(without_leading_space(head).substr(0, 9));
  std::ranges::transform(start, start.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return start == "<!doctype" || start.starts_with("<html") || start.starts_with("<head") ||
         start.starts_with("<?xml") || start.starts_with("<!--");
}

// UTF-8 without control characters. The last bytes may be half of a character. Fewer than four bytes may be
// the beginning of anything.
bool is_text(std::string_view head) {
  if (head.size() < 4) return false;
  const std::string_view whole = head.size() < kForeignHeadBytes ? head : head.substr(0, head.size() - 3);
  return replaced_non_utf8(whole) == whole && std::ranges::all_of(head, [](unsigned char c) {
           return c >= 0x20 ? c != 0x7F : c == '\t' || c == '\r' || c == '\n';
         });
}

Unexpected foreign(const std::string& file_name, const std::string& what) {
  return Unexpected(ErrorCode::kNotFound, printable(file_name) + ": " + what);
}

}  // namespace

std::optional<Unexpected> recognise_foreign_file(std::string_view head, const std::string& file_name) {
  for (const Signature& signature : kSignatures)
    if (head.starts_with(signature.start)) return foreign(file_name, signature.what);
  if (is_markup(head)) return foreign(file_name, kWebPage);
  if (head.size() > kTarMagicOffset && head.substr(kTarMagicOffset).starts_with("ustar"))
    return foreign(file_name, "is a tar archive: unpack it first");
  if (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF")) {
    return Unexpected(
        ErrorCode::kCorruptFile,
        printable(file_name) + ": is UTF-16 text, which no loader takes: save it as plain UTF-8");
  }
  return std::nullopt;
}

std::optional<Unexpected> recognise_foreign_tensor_file(std::string_view head, const std::string& file_name) {
  // A length of less than 2^32 and a brace: some lengths look like the beginning of another format.
  constexpr std::size_t kLengthBytes = 8;
  if (head.size() > kLengthBytes && head[kLengthBytes] == '{' && head.substr(4, 4) == "\0\0\0\0"sv)
    return std::nullopt;
  if (auto other = recognise_foreign_file(head, file_name)) return other;
  // A safetensors file that lost its beginning is damaged, not foreign.
  if (!is_text(head) || head.find("\"data_offsets\"") != head.npos) return std::nullopt;
  const std::string kind = without_leading_space(head).starts_with('{') ? "JSON text" : "text";
  return foreign(
      file_name,
      "is a " + kind + ", not a safetensors file: the download failed (an error message?); fetch it again");
}

}  // namespace weightpress::model
