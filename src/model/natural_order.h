// The order in which people count: "layers.9" before "layers.10".
#pragma once

#include <string_view>

namespace weightpress::model {

/// A total order: runs of digits compare as numbers of any length, all else by bytes.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace weightpress::model
