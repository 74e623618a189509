#!/usr/bin/env python3
"""Random tensors with random settings for Tile-ANS: all 16 dtypes, tiles of every kind, precisions, thresholds, contents.

    random_tensors.py -o FOLDER [--seed N] [--count N]

writes each tensor's storage bytes as FOLDER/<name>.bin and FOLDER/encode.jsonl, the requests for `reference.py batch` (run
there, it leaves the container of each in <name>/). The same seed gives the same tensors.
"""
import argparse
import json
import math
import os
import pathlib
import typing

import numpy as np

SEED = int(os.environ.get("WEIGHTPRESS_SEED", "20261130"))
COUNT = 500
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1,
              "float8_e5m2fnuz": 1, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2,
              "uint8": 1, "bool": 1}
# Only as a raw container's data, so only of an empty tensor: safetensors has no names for these.
NOT_STORABLE = ("float8_e4m3fnuz", "float8_e5m2fnuz")
MOST_BYTES = 200_000
MOST_STREAMS = 4000  # with 128 bytes of states each
AUTOMATIC_BORDER_BYTES = 32 << 20
LARGEST_TILE = 2**31 - 1


class Case(typing.NamedTuple):
    name: str
    dtype: str
    shape: list
    settings: dict
    data: bytes


def pick(random, options):
    return options[int(random.integers(len(options)))]


# Contents of one byte lane, uint8[count].


def lane_constant(random, count):
    return np.full(count, random.integers(256), np.uint8)


def lane_flat(random, count):
    return random.integers(0, 256, count).astype(np.uint8)


def lane_few(random, count):
    symbols = random.choice(256, int(random.integers(2, 12)), replace=False)
    chance = random.random(len(symbols)) ** 3 + 1e-3
    return random.choice(symbols, count, p=chance / chance.sum()).astype(np.uint8)


def lane_skewed(random, count):
    return (random.geometric(random.uniform(0.02, 0.9), count) + random.integers(256)).astype(np.uint8)


def lane_equal_counts(random, count):
    return random.permutation(np.arange(count) % int(random.integers(2, 257))).astype(np.uint8)


def lane_dominant(random, count):
    """Every symbol once, and one of them for all the rest: with few bits its frequency pays for the others."""
    symbols = np.concatenate([np.arange(256), np.full(max(0, count - 256), random.integers(256))])
    return random.permutation(symbols[:count]).astype(np.uint8)


def lane_fibonacci(random, count):
    counts = [1, 1]
    while sum(counts) < count:
        counts.append(counts[-1] + counts[-2])
    return random.permutation(np.repeat(np.arange(len(counts)), counts)[:count]).astype(np.uint8)


def lane_sparse(random, count):
    chosen = random.random(count) < random.choice([0.001, 0.02, 0.2])
    return np.where(chosen, random.integers(0, 256, count), 0).astype(np.uint8)


def lane_runs(random, count):
    """Tiles that differ much from the lane as a whole."""
    return np.sort(lane_skewed(random, count))


def lane_tail(random, count):
    """A few common symbols and many rare ones: what a finer table pays for."""
    rare = int(random.integers(20, 250))
    symbols = np.where(random.random(count) < 10.0 ** random.uniform(-2.5, -0.5), random.integers(0, rare, count),
                       255 - random.geometric(0.6, count) % 6)
    return symbols.astype(np.uint8)


LANES = (lane_constant, lane_flat, lane_few, lane_skewed, lane_equal_counts, lane_dominant, lane_fibonacci, lane_sparse,
         lane_runs, lane_tail)


def values(random, dtype, count):
    """Storage bytes of numbers such as models hold."""
    normal = random.standard_normal(count) * 10.0 ** random.uniform(-2, 2)
    if dtype == "float32":
        return normal.astype("<f4").tobytes()
    if dtype == "bfloat16":
        return (normal.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    if dtype == "float16":
        return normal.astype("<f2").tobytes()
    if dtype.startswith("float8_e5m2"):
        return (normal.astype("<f2").view("<u2") >> 8).astype("u1").tobytes()
    if dtype.startswith("float8_e4m3"):  # FP16 has one exponent bit more, its bias being 8 larger
        words = normal.astype("<f2").view("<u2")
        magnitude = np.clip((words & 0x7FFF).astype(int) >> 7, 64, 64 + 126) - 64
        return (magnitude | (words >> 8 & 0x80)).astype("u1").tobytes()
    if dtype == "bool":
        return (normal > 1).astype("u1").tobytes()
    integers = np.rint(normal * 10.0 ** random.uniform(0, 2)).astype(np.int64)
    if dtype.startswith("uint"):
        integers = np.abs(integers)
    return integers.astype(np.dtype(dtype)).tobytes()


def contents(random, dtype, count):
    if random.random() < 0.35:
        return values(random, dtype, count)
    lanes = np.stack([pick(random, LANES)(random, count) for _ in range(ITEM_BYTES[dtype])], axis=1)
    return (lanes & 1 if dtype == "bool" else lanes).tobytes()


def random_tile(random, count):
    kind = random.random()
    if kind < 0.25:
        return 0
    if kind < 0.31:
        return 1
    if kind < 0.50:
        return pick(random, (3, 5, 7, 31, 33, 127, 129, 333, 1001, 1025, 2047, 4097))
    if kind < 0.65:
        return 2 ** int(random.integers(1, 15))
    if kind < 0.80:
        return max(1, pick(random, (count - 1, count, count + 1, count // 2, (count + 1) // 2, count // 2 + 1)))
    if kind < 0.92:
        return pick(random, (count + 1 + int(random.integers(5000)), 2 * count, 100_000, LARGEST_TILE))
    return int(random.integers(1, 2 * count + 1))


def random_threshold(random):
    kind = random.random()
    if kind < 0.45:
        return 7.9
    if kind < 0.65:
        return pick(random, (0, 0.0, 5, 7, 7.0, 7.75, 8, 8.0))  # whole numbers as integers, too
    return float(random.uniform(0 if kind < 0.85 else 6, 8))


def random_shape(random, count):
    if count == 1 and random.random() < 0.7:
        return []
    shape, rest = [], count
    for _ in range(int(random.integers(0, 4))):
        divisors = [size for size in range(1, min(rest, 200) + 1) if rest % size == 0]
        shape.append(pick(random, divisors))
        rest //= shape[-1]
    if rest > 1 or not shape:
        shape.append(rest)
    return [shape[index] for index in random.permutation(len(shape))]


def random_case(random, name, dtype):
    item = ITEM_BYTES[dtype]
    if random.random() < 0.2:
        count = pick(random, (1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 65))
    else:
        count = max(1, int(math.exp(random.uniform(math.log(item), math.log(MOST_BYTES)))) // item)
    tile = random_tile(random, count)
    if tile:
        count = min(count, tile * (MOST_STREAMS // item))
    settings = {"tile_elements": tile, "probability_bits": pick(random, (0, 0, 0, 0, 9, 10, 11, 12)),
                "raw_lane_threshold": random_threshold(random)}
    return Case(name, dtype, random_shape(random, count), settings, contents(random, dtype, count))


def precision_case(random, name, dtype):
    """For the automatic choice of a precision: large enough for more than 9 bits to pay, or a lane that is raw with fewer."""
    count = int(random.integers(25_000, 80_000)) // max(1, ITEM_BYTES[dtype] // 2)
    lanes = [pick(random, (lane_dominant, lane_dominant, lane_tail))(random, count)]
    lanes += [lane_constant(random, count) for _ in range(ITEM_BYTES[dtype] - 1)]
    data = np.stack([lanes[index] for index in random.permutation(len(lanes))], axis=1).tobytes()
    threshold = random_threshold(random) if random.random() < 0.4 else math.exp(random.uniform(math.log(0.12), math.log(0.9)))
    settings = {"tile_elements": pick(random, (0, 8192, 16384, 20_001)), "probability_bits": 0, "raw_lane_threshold": threshold}
    return Case(name, dtype, random_shape(random, count), settings, data)


def empty_case(random, name, dtype):
    return Case(name, dtype, pick(random, ([0], [0, 4], [3, 0, 2])), {}, b"")


def border_case(random, name, dtype, more):
    """At the border of the automatic tile: 4,096 elements up to 32 MiB, 8,192 with `more`. Of all-raw lanes: that is fast."""
    count = AUTOMATIC_BORDER_BYTES // ITEM_BYTES[dtype] + more
    return Case(name, dtype, [count], {}, random.bytes(count * ITEM_BYTES[dtype]))


def make_cases(seed=SEED, count=COUNT):
    """Yields the cases: the dtypes in turn; of 100, one is empty; the last two of all are of 32 MiB and one element more."""
    random = np.random.Generator(np.random.PCG64(seed))
    dtypes = list(ITEM_BYTES)
    for index in range(count):
        dtype = dtypes[index % len(dtypes)]
        name = f"{index:03}_{dtype}"
        if index >= count - 2:
            yield border_case(random, name, dtype, more=index - (count - 2))
        elif index % 100 == 50 and dtype not in NOT_STORABLE:
            yield empty_case(random, name, dtype)
        elif index % 5 == 3 and dtype != "bool":
            yield precision_case(random, name, dtype)
        else:
            yield random_case(random, name, dtype)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("-o", dest="output", required=True, type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    with open(arguments.output / "encode.jsonl", "w", encoding="utf-8") as requests:
        for case in make_cases(arguments.seed, arguments.count):
            (arguments.output / f"{case.name}.bin").write_bytes(case.data)
            request = {"op": "encode", "input": f"{case.name}.bin", "dtype": case.dtype, "shape": case.shape,
                       **case.settings, "output": case.name}
            requests.write(json.dumps(request) + "\n")


if __name__ == "__main__":
    main()
