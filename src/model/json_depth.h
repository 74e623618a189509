// How deeply a JSON text is nested, before a parser that recurses or allocates sees it.
#pragma once

#include <string_view>

namespace weightpress::model {

/// Whether brackets of a text, strings left out, are ever open more than max_depth times. The text need not
/// be valid.
bool is_nested_deeper(std::string_view json, unsigned max_depth);

}  // namespace weightpress::model
