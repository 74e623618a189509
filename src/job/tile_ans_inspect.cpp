// What a Tile-ANS output holds, from headers and small buffers.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "job/tile_ans_jobs.h"
#include "job/tile_ans_model.h"
#include "model/checkpoint.h"
#include "model/natural_order.h"

namespace weightpress::job {
namespace {

InspectedTileAns describe(const model::Checkpoint& checkpoint, const StoredTileAns& stored) {
  InspectedTileAns found;
  found.name = stored.name;
  found.dtype = model::dtype_name(stored.header.dtype);
  found.shape = stored.header.shape;
  found.num_elements = stored.num_elements();
  found.source_bytes = stored.size_bytes();
  found.size_bytes = stored.stored_bytes;
  found.is_raw = stored.is_raw();
  if (found.is_raw) return found;
  const OpenedTileAns opened = open_container(checkpoint, stored).value();
  const tile_ans::Layout& layout = opened.plan.layout;
  found.tile_elements = layout.tile_elements;
  found.probability_bits = layout.probability_bits;
  found.num_lanes = layout.num_lanes;
  found.num_raw_lanes = layout.num_lanes - opened.plan.num_ans_lanes();
  return found;
}

}  // namespace

InspectReport inspect_tile_ans(const InspectOptions& options) {
  const auto checkpoint = model::Checkpoint::open(options.path, model::Df11Policy::kAccept);
  const TileAnsSurvey survey = survey_tile_ans(checkpoint);
  if (!survey.broken.empty()) throw Error(survey.broken.front());
  InspectReport report;
  for (std::size_t f = 0; f < checkpoint.files().size(); ++f) {
    const model::File& file = checkpoint.files()[f];
    report.files.push_back(
        {file.path().filename().string(), file.size_bytes(), 0, !checkpoint.metadata_json(f).empty()});
  }
  for (const model::SourceTensor& tensor : checkpoint.tensors())
    ++report.files[tensor.file_index].num_tensors;
  for (const StoredTileAns& stored : survey.containers)
    report.tile_ans.push_back(describe(checkpoint, stored));
  std::ranges::sort(report.tile_ans, model::natural_less, &InspectedTileAns::name);
  std::map<model::Dtype, DtypeTotal> totals;
  for (const std::size_t t : survey.kept) {
    const model::SourceTensor& tensor = checkpoint.tensors()[t];
    DtypeTotal& total = totals[tensor.dtype];
    total.dtype = model::dtype_name(tensor.dtype);
    ++total.num_tensors;
    total.num_elements += tensor.num_elements();
    total.size_bytes += tensor.size_bytes;
  }
  for (auto& [dtype, total] : totals) report.tensors.push_back(std::move(total));
  std::ranges::sort(report.tensors, [](const DtypeTotal& a, const DtypeTotal& b) {
    return std::tie(b.size_bytes, a.dtype) < std::tie(a.size_bytes, b.dtype);
  });
  return report;
}

}  // namespace weightpress::job
