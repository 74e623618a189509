// What decompress writes: files, their tensors, and where the bytes of each tensor come from.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <weightpress/decompress.h>

#include "model/safetensors_layout.h"

namespace weightpress::job {

struct RestoredFile {
  std::string name;           ///< a plain name
  std::string metadata_json;  ///< of __metadata__; empty: none
  std::vector<model::TensorSpec> tensors;
};

/// A tensor of RestorePlan::files.
struct TensorPlace {
  std::size_t file = 0;
  std::size_t tensor = 0;
};

/// A unit of the output. It is decoded even if its weights go nowhere.
struct RestoredUnit {
  std::size_t unit = 0;  ///< into Df11Model::units
  /// Of each of the unit's tensors, in order: BF16 tensors of as many weights, in which its weights go.
  std::vector<std::vector<TensorPlace>> places;
};

/// A tensor that is copied.
struct RestoredCopy {
  std::size_t tensor = 0;           ///< into Checkpoint::tensors()
  std::vector<TensorPlace> places;  ///< of as many bytes
};

struct RestorePlan {
  std::vector<RestoredFile> files;
  std::string index_stem = "model";  ///< `<stem>.safetensors.index.json`, if there are several files
  std::vector<RestoredUnit> units;
  std::vector<RestoredCopy> copies;
  std::vector<DecompressReport::Dropped> dropped;
  std::vector<DecompressReport::Cast> cast;
  std::vector<std::string> notes;
};

}  // namespace weightpress::job
