#include <weightpress/error.h>

namespace weightpress {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kOutOfMemory:
      return "out-of-memory";
    case ErrorCode::kNoSpace:
      return "no-space";
    case ErrorCode::kOutputExists:
      return "output-exists";
    case ErrorCode::kCorruptFile:
      return "corrupt-file";
    case ErrorCode::kNotFound:
      return "not-found";
    case ErrorCode::kBadDefinition:
      return "bad-definition";
    case ErrorCode::kNameConflict:
      return "name-conflict";
    case ErrorCode::kUnsupportedDtype:
      return "unsupported-dtype";
    case ErrorCode::kExponentTooLarge:
      return "exponent-too-large";
    case ErrorCode::kUnitTooLarge:
      return "unit-too-large";
    case ErrorCode::kStreamTooLong:
      return "stream-too-long";
    case ErrorCode::kEmptyUnit:
      return "empty-unit";
    case ErrorCode::kAmbiguousLimiter:
      return "ambiguous-limiter";
    case ErrorCode::kTooManyTables:
      return "too-many-tables";
    case ErrorCode::kChunkTooDense:
      return "chunk-too-dense";
    case ErrorCode::kPaddingNeverEnds:
      return "padding-never-ends";
    case ErrorCode::kSourceChanged:
      return "source-changed";
    case ErrorCode::kDeviceFailed:
      return "device-failed";
    case ErrorCode::kVerificationFailed:
      return "verification-failed";
  }
  return "unknown";
}

}  // namespace weightpress
