"""The fewest bits that a prefix code under a constraint can use: independent bounds for the tests of rescued units.

Coin collector's method (package-merge) throughout. To lengthen a symbol's code from l - 1 to l bits costs its count and
saves 2^-l of Kraft's sum; the cheapest set of such steps with exactly the saving needed is an optimal code. Counts are a
list in any order. EOF needs no code here: whatever completes the last byte is never decoded as a weight.
"""
from functools import lru_cache


def _packages(counts, longest, level, saving=0.0):
    """Sorted coins and packages of `level`, after levels longest..level+1. Returns them and the cost of the odd coins.

    saving: the saving to reach; its part below 2^-level is paid here by taking the cheapest of a level.
    """
    ordered, packages, paid = sorted(counts), [], 0
    for length in range(longest, level, -1):
        coins = sorted(ordered + packages)
        if int(saving * 2 ** length) % 2:
            if not coins:
                return [], float("inf")
            paid += coins.pop(0)
        packages = [coins[i] + coins[i + 1] for i in range(0, len(coins) - 1, 2)]
    return sorted(ordered + packages), paid


def least_bits(counts, shortest=0, longest=32):
    """Total bits of the best code whose lengths are all in shortest..longest (one symbol alone: at least 1 bit)."""
    shortest = max(shortest, 1)
    total, needed = shortest * sum(counts), len(counts) - 2 ** shortest
    if needed <= 0:
        return total
    return total + sum(_packages(counts, longest, shortest + 1)[0][:2 * needed])


def least_bits_in_tables(counts, shortest=1, tables=17):
    """(lower bound, reachable bits) of the best code that needs at most `tables` lookup tables.

    The m most frequent symbols have at most 8 bits; the others share `heads` prefixes of 8 bits, each with a table of its
    own. The reachable code gives them at most 8 bits more; the lower bound allows 24 more and counts no further tables.
    """
    counts = sorted(counts, reverse=True)
    lower = reachable = float("inf")
    for short in range(len(counts) + 1):
        top, rest = counts[:short], counts[short:]
        below = {longest: _below_heads(tuple(rest), longest) for longest in (8, 24)}
        for heads in range(0 if not rest else 1, tables if rest else 1):
            above = _with_heads(tuple(top), heads, shortest)
            if above == float("inf"):
                continue
            lower = min(lower, above + below[24](heads))
            reachable = min(reachable, above + below[8](heads))
    return lower, reachable


@lru_cache(maxsize=None)
def _with_heads(top, heads, shortest):
    """Bits of the symbols `top` in shortest..8 bits beside `heads` unused codes of 8 bits."""
    total = shortest * sum(top)
    saving = len(top) / 2 ** shortest - 1 + heads / 256
    if saving <= 0:
        return total
    if shortest == 8:
        return float("inf")
    coins, paid = _packages(top, 8, shortest + 1, saving)
    taken = int(saving * 2 ** (shortest + 1))
    return total + paid + sum(coins[:taken]) if taken <= len(coins) else float("inf")


def _below_heads(rest, longest):
    """A function: number of heads -> bits of the symbols `rest`, 8 of the head and 1..longest below it."""
    coins = _packages(rest, longest, 2)[0]

    def bits(heads):
        needed = max(0, 2 * (len(rest) - 2 * heads))
        return 9 * sum(rest) + sum(coins[:needed]) if needed <= len(coins) else float("inf")
    return bits
