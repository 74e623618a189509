#include "format/codebook.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <queue>
#include <utility>

namespace weightpress::df11 {
namespace {

struct TreeNode {
  std::uint64_t count;
  int first_symbol;  // of its leftmost leaf: breaks ties, and is unique among the nodes of a heap
  int left = -1;     // indices into the tree; -1: a leaf
  int right = -1;
};

/// The Huffman tree; the root is the last node.
std::vector<TreeNode> build_tree(const Histogram& histogram) {
  std::vector<TreeNode> tree;
  tree.reserve(2 * (kNumSymbols + 1));
  tree.push_back({1, kEofSymbol});
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
    if (histogram[symbol] != 0) tree.push_back({histogram[symbol], static_cast<int>(symbol)});
  }
  const auto later = [&tree](int a, int b) {
    return std::pair(tree[a].count, tree[a].first_symbol) > std::pair(tree[b].count, tree[b].first_symbol);
  };
  std::priority_queue<int, std::vector<int>, decltype(later)> heap(later);
  for (int leaf = 0; leaf < static_cast<int>(tree.size()); ++leaf) heap.push(leaf);
  while (heap.size() > 1) {
    const int left = heap.top();
    heap.pop();
    const int right = heap.top();
    heap.pop();
    tree.push_back({tree[left].count + tree[right].count, tree[left].first_symbol, left, right});
    heap.push(static_cast<int>(tree.size()) - 1);
  }
  return tree;
}

struct Leaf {
  int symbol;
  std::uint32_t depth;
  std::uint64_t path;  // the code, where depth <= 64
};

/// The leaves from left to right. A tree of 257 leaves is at most 256 deep, so the recursion is bounded.
void collect_leaves(const std::vector<TreeNode>& tree, int node, std::uint32_t depth, std::uint64_t path,
                    std::vector<Leaf>& leaves) {
  const TreeNode& n = tree[node];
  if (n.left < 0) {
    leaves.push_back({n.first_symbol, depth, path});
    return;
  }
  collect_leaves(tree, n.left, depth + 1, path << 1, leaves);
  collect_leaves(tree, n.right, depth + 1, path << 1 | 1, leaves);
}

std::vector<Leaf> huffman_leaves(const Histogram& histogram) {
  const std::vector<TreeNode> tree = build_tree(histogram);
  std::vector<Leaf> leaves;
  leaves.reserve(kNumSymbols + 1);
  collect_leaves(tree, static_cast<int>(tree.size()) - 1, 0, 0, leaves);
  return leaves;
}

bool within_limit(const std::vector<Leaf>& leaves) {
  return std::all_of(leaves.begin(), leaves.end(),
                     [](const Leaf& leaf) { return leaf.depth <= kMaxCodeBits; });
}

/// The least depth that any Huffman tree for these counts (and EOF) has: of equal counts the shallower node
/// is merged first. It does not depend on which exponent has which count.
std::uint32_t least_depth(const Histogram& histogram) {
  using Node = std::pair<std::uint64_t, std::uint32_t>;  // count, depth
  std::priority_queue<Node, std::vector<Node>, std::greater<>> heap;
  heap.emplace(1, 0);
  for (const std::uint64_t count : histogram) {
    if (count != 0) heap.emplace(count, 0);
  }
  while (heap.size() > 1) {
    const auto [count_a, depth_a] = heap.top();
    heap.pop();
    const auto [count_b, depth_b] = heap.top();
    heap.pop();
    heap.emplace(count_a + count_b, std::max(depth_a, depth_b) + 1);
  }
  return heap.top().second;
}

/// Exponents that occur, rarest first, equally rare ones by exponent.
std::vector<int> symbols_by_rarity(const Histogram& histogram) {
  std::vector<int> symbols;
  for (std::uint32_t symbol = 0; symbol < kNumSymbols; ++symbol) {
    if (histogram[symbol] != 0) symbols.push_back(static_cast<int>(symbol));
  }
  std::sort(symbols.begin(), symbols.end(),
            [&](int a, int b) { return std::pair(histogram[a], a) < std::pair(histogram[b], b); });
  return symbols;
}

}  // namespace

std::uint8_t Codebook::shortest_length() const {
  std::uint8_t shortest = kMaxCodeBits;
  for (const CodebookEntry& entry : entries) {
    if (entry.symbol != kEofSymbol) shortest = std::min(shortest, entry.length);
  }
  return shortest;
}

std::uint8_t Codebook::longest_length() const {
  std::uint8_t longest = 0;
  for (const CodebookEntry& entry : entries) longest = std::max(longest, entry.length);
  return longest;
}

Codebook make_codebook(std::vector<CodebookEntry> entries) {
  Codebook codebook;
  codebook.entries = std::move(entries);
  for (const CodebookEntry& entry : codebook.entries) {
    assert(entry.length >= 1 && entry.length <= kMaxCodeBits);
    if (entry.symbol == kEofSymbol) {
      codebook.eof_length = entry.length;
      codebook.eof_code = entry.code;
    } else {
      codebook.lengths[entry.symbol] = entry.length;
      codebook.codes[entry.symbol] = entry.code;
    }
  }
  return codebook;
}

Codebook build_official_codebook(const Histogram& histogram) {
  assert(total_count(histogram) > 0);
  std::vector<Leaf> leaves = huffman_leaves(histogram);
  bool ambiguous = false;
  if (!within_limit(leaves)) {
    // The limiter: counts of the k rarest exponents become 1, always starting from the true counts. With all
    // counts at 1 the tree is at most nine deep, so this ends.
    const std::vector<int> rarest = symbols_by_rarity(histogram);
    Histogram limited = histogram;
    limited[rarest[0]] = 1;
    for (std::size_t k = 2; !within_limit(leaves); ++k) {
      assert(k <= rarest.size());
      limited[rarest[k - 1]] = 1;
      leaves = huffman_leaves(limited);
      // Several sets of k exponents are the rarest: the official choice (numpy's argpartition) is not
      // defined. That matters if the loop ends here, or could have ended here with another choice. Counts of
      // 1 stay 1 whichever set is taken.
      const bool tied =
          k < rarest.size() && histogram[rarest[k - 1]] == histogram[rarest[k]] && histogram[rarest[k]] != 1;
      if (tied && (within_limit(leaves) || least_depth(limited) <= kMaxCodeBits)) ambiguous = true;
    }
  }
  std::vector<CodebookEntry> entries;
  entries.reserve(leaves.size());
  for (const Leaf& leaf : leaves) {
    entries.push_back(
        {leaf.symbol, static_cast<std::uint8_t>(leaf.depth), static_cast<std::uint32_t>(leaf.path)});
  }
  Codebook codebook = make_codebook(std::move(entries));
  codebook.ambiguous_limiter = ambiguous;
  return codebook;
}

}  // namespace weightpress::df11
