// Errors as a caller sees them: one exception type, one enumeration of codes.
//
// Inside the library the same codes travel in a Result (src/format/result.h); an Error is thrown only at the
// API's edge and for trouble of the machine (files, memory).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace weightpress {

/// What went wrong. The names are stable; they are printed in reports.
enum class ErrorCode : std::uint8_t {
  kUsage,               ///< an option or argument does not make sense
  kIo,                  ///< the operating system refused: open, read, write, rename
  kOutOfMemory,         ///< not enough memory
  kNoSpace,             ///< no room on the target file system
  kOutputExists,        ///< the output is there already, or another run is writing it
  kCorruptFile,         ///< a file is not what its format says
  kNotFound,            ///< a file or tensor that must be there is missing
  kBadDefinition,       ///< a model definition is not valid or does not fit the model
  kNameConflict,        ///< two things would get one name, or a name would leave the output folder
  kUnsupportedDtype,    ///< a unit holds a tensor that is not BF16
  kExponentTooLarge,    ///< an exponent of 240 or more (Inf, NaN, 2^113 and above): DF11 cannot store it
  kUnitTooLarge,        ///< more weights in a unit than the official kernel can index
  kStreamTooLong,       ///< more bytes of bitstream than the official kernel can index
  kEmptyUnit,           ///< a unit without weights
  kAmbiguousLimiter,    ///< --strict-identity: the official code lengths depend on numpy's version
  kTooManyTables,       ///< --strict-identity: more than 17 lookup tables
  kChunkTooDense,       ///< --strict-identity: a chunk of more than 23,550 weights
  kPaddingNeverEnds,    ///< --strict-identity: the official kernel would not end on the padding
  kSourceChanged,       ///< the source is not what it was when the plan was made
  kVerificationFailed,  ///< what was written does not decode to the source
  kDeviceFailed         ///< a GPU or its driver failed, or is not there
};

/// The code's name as reports print it, e.g. "exponent-too-large".
std::string_view error_code_name(ErrorCode code);

/// What an Error says besides its message. Fields that do not apply are empty (offset: kNoOffset).
struct ErrorDetails {
  static constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};

  ErrorCode code = ErrorCode::kIo;
  std::string message;  ///< one sentence: the file, the unit or tensor, what is wrong, what to do
  std::string unit = {};
  std::string tensor = {};
  std::uint64_t offset = kNoOffset;  ///< index of a weight, or byte of a file, as the message says
};

/// The one exception type of the API.
class Error : public std::runtime_error {
 public:
  explicit Error(ErrorDetails details) : std::runtime_error(details.message), details_(std::move(details)) {}
  Error(ErrorCode code, std::string message) : Error(ErrorDetails{code, std::move(message)}) {}

  ErrorCode code() const noexcept { return details_.code; }
  const std::string& unit() const noexcept { return details_.unit; }
  const std::string& tensor() const noexcept { return details_.tensor; }
  std::uint64_t offset() const noexcept { return details_.offset; }
  const ErrorDetails& details() const noexcept { return details_; }

 private:
  ErrorDetails details_;
};

}  // namespace weightpress
