// The records of a journal: what was counted of a unit, what was written, what cannot be stored.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "job/unit_counts.h"
#include "model/bf16_cast.h"

namespace weightpress::job {

/// A unit that was read and counted.
struct PlannedRecord {
  UnitCounts counts;
  model::CastCounts cast;
  std::uint64_t source_hash = 0;  ///< of its weights as BF16
};

/// A unit whose buffers were written.
struct WrittenRecord {
  std::string file;                ///< inside the output
  std::uint64_t offset_bytes = 0;  ///< of the first of its buffers there
  std::uint64_t size_bytes = 0;    ///< of all
  std::uint64_t num_tables = 0;    ///< of its luts
  std::uint64_t output_hash = 0;   ///< of all
  bool verified = false;           ///< it was read back
};

/// A kept tensor or sibling that was copied.
struct CopiedRecord {
  std::string file;  ///< inside the output
  std::uint64_t output_hash = 0;
  model::CastCounts cast;
};

// One line each.
std::string planned_line(std::string_view unit, const PlannedRecord& record);
std::string kept_line(std::string_view unit, std::string_view reason);
std::string written_line(std::string_view unit, const WrittenRecord& record);
std::string copied_line(std::string_view tensor, const CopiedRecord& record);

/// What an earlier run of the same job has done.
class PastRun {
 public:
  /// A line of its journal. Returns false if it is none of the above.
  bool add(std::string_view json);

  // nullptr or nothing: there is no such record.
  const PlannedRecord* planned(const std::string& unit) const { return find(planned_, unit); }
  const std::string* kept(const std::string& unit) const { return find(kept_, unit); }
  const WrittenRecord* written(const std::string& unit) const { return find(written_, unit); }
  const CopiedRecord* copied(const std::string& file, const std::string& tensor) const;

 private:
  template <class Value>
  static const Value* find(const std::unordered_map<std::string, Value>& map, const std::string& key) {
    const auto found = map.find(key);
    return found == map.end() ? nullptr : &found->second;
  }

  std::unordered_map<std::string, PlannedRecord> planned_;
  std::unordered_map<std::string, std::string> kept_;
  std::unordered_map<std::string, WrittenRecord> written_;
  std::map<std::pair<std::string, std::string>, CopiedRecord> copied_;  // by file and tensor
};

}  // namespace weightpress::job
