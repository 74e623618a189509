"""The program against the official compressor: 500 random units and one for each stream length from 1 to 2,500 bits.

All are tensors of one checkpoint, compressed by one run. Every buffer must equal what dfloat11 0.5.0 makes, and every
shard what the safetensors package writes from the official buffers. Units that the official kernel could not decode must
decode exactly instead, with tables and positions it can use.
"""
import collections
import os
import pathlib
import sys
import tempfile
import unittest

import numpy as np
import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import official_df11  # noqa: E402
import support  # noqa: E402
from support import reference  # noqa: E402

SEED = int(os.environ.get("WEIGHTPRESS_SEED", "20240611"))
NUM_RANDOM, LONGEST_STREAM = 500, 2500
WINDOW_BITS, CHUNK_BITS = 64, 32768
ATTRIBUTES = ["a", "b", "c"]


def code_lengths(counts):
    return {exponent: bits for exponent, bits, _ in reference.limited_code_table(counts)[0]}


def aim(counts, target_bits, random, tries=300):
    """Adds and takes away weights until all codes together have target_bits bits. Returns the counts, or None."""
    counts = dict(counts)
    for _ in range(tries):
        lengths = code_lengths(counts)
        off = target_bits - sum(count * lengths[exponent] for exponent, count in counts.items())
        if off == 0:
            return counts
        fitting = [exponent for exponent in counts if lengths[exponent] <= abs(off)] or list(counts)
        exponent = fitting[random.integers(len(fitting))]
        steps = max(1, abs(off) // lengths[exponent])
        steps = 1 + int(random.integers(steps)) if random.random() < 0.3 else steps
        counts[exponent] = max(0, counts[exponent] + (steps if off > 0 else -steps))
        counts = {key: count for key, count in counts.items() if count} or {exponent: 1}
    return None


def shape_skewed(random, count):
    symbols = int(random.integers(2, 30))
    return 90 + random.choice(symbols, count, p=_normalised(0.5 ** np.arange(symbols)))


def shape_flat(random, count):
    return random.integers(0, int(random.integers(2, 240)), count)


def shape_few(random, count):
    return random.choice([0, 120, 239], count, p=_normalised(random.random(3) + 0.02)) if random.random() < 0.7 \
        else np.full(count, int(random.integers(240)))


def shape_weights(random, count):
    values = random.standard_normal(count).astype(np.float32) * np.float32(10.0 ** random.uniform(-3, 1))
    return (values.view(np.uint32) >> 23 & 0xFF).astype(np.int64)


def shape_heavy(random, count):
    values = random.standard_t(random.uniform(0.7, 3), count).astype(np.float32)
    return np.minimum(values.view(np.uint32) >> 23 & 0xFF, 239).astype(np.int64)


SHAPES = (shape_skewed, shape_flat, shape_few, shape_weights, shape_heavy)


def _normalised(weights):
    return np.asarray(weights, float) / np.sum(weights)


def counts_of(exponents):
    return {int(exponent): int(count) for exponent, count in enumerate(np.bincount(exponents)) if count}


def exponents_of(counts, random):
    exponents = np.repeat(np.array(list(counts), np.int64), list(counts.values()))
    random.shuffle(exponents)
    return exponents


def random_exponents(index, random):
    """Two of five units end within two bits of a border of a window, one within two bits of a border of a chunk."""
    shape = SHAPES[int(random.integers(len(SHAPES)))]
    kind = index % 5
    if kind >= 3:
        return shape(random, int(np.exp(random.uniform(0, np.log(60_000)))))
    turn = index // 5
    border = WINDOW_BITS * int(random.integers(1, 600)) if kind < 2 else CHUNK_BITS * (1 + turn // 5 % 8)
    target = border + turn % 5 - 2
    sample = shape(random, 4000)
    lengths = code_lengths(counts_of(sample))
    mean = sum(count * lengths[exponent] for exponent, count in counts_of(sample).items()) / len(sample)
    for _ in range(20):
        counts = aim(counts_of(shape(random, max(1, int(target / mean)))), target, random)
        if counts:
            return exponents_of(counts, random)
    raise AssertionError(f"no unit of {target} bits found (unit {index}, seed {SEED})")


def exponents_of_length(bits, random):
    """A unit of exactly this many bits of code; (exponents, whether it has more than one exponent)."""
    for _ in range(40):
        symbols = int(random.integers(2, 25))
        flat = random.random() < 0.3
        chance = _normalised(np.ones(symbols) if flat else 0.6 ** np.arange(symbols))
        start = random.choice(symbols, max(1, int(bits / (np.log2(symbols) if flat else 2.1))), p=chance)
        counts = aim(counts_of(100 + start), bits, random, tries=60)
        if counts:
            return exponents_of(counts, random), len(counts) > 1
    return np.full(bits, 100), False  # one exponent: one bit a weight


def make_units():
    """{unit: list of its tensors' words}, {unit: bits its codes must have}"""
    random = np.random.Generator(np.random.PCG64(SEED))
    units, bits = {}, {}
    for index in range(NUM_RANDOM):
        array = support.words_of_exponents(random_exponents(index, random), random)
        if index % 4 == 0 and len(array) >= 3:
            cuts = np.sort(random.choice(np.arange(1, len(array)), 2, replace=False))
            units[f"groups.{index}"] = np.split(array, cuts)
        else:
            units[f"units.{index}"] = [array]
    varied = 0
    for length in range(1, LONGEST_STREAM + 1):
        exponents, more_than_one = exponents_of_length(length, random)
        varied += more_than_one
        name = f"units.{NUM_RANDOM + length}"
        units[name], bits[name] = [support.words_of_exponents(exponents, random)], length
    assert varied > 0.95 * LONGEST_STREAM, f"only {varied} lengths have units of several exponents"
    return units, bits


def tensor_names(unit, arrays):
    return [f"{unit}.weight"] if len(arrays) == 1 else [f"{unit}.{attribute}.weight" for attribute in ATTRIBUTES]


class OfficialUnits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}")
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        work = pathlib.Path(cls.folder.name)
        cls.units, cls.bits = make_units()
        tensors = {name: torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
                   for unit, arrays in cls.units.items() for name, array in zip(tensor_names(unit, arrays), arrays)}
        tensors["norm.weight"] = torch.ones(8)
        (work / "model").mkdir()
        safetensors.torch.save_file(tensors, work / "model" / "model.safetensors", metadata={"format": "pt"})
        (work / "model" / "config.json").write_bytes(support.CONFIG)
        definition = support.write_definition(work / "arch.json", {r"units\.\d+": [], r"groups\.\d+": ATTRIBUTES})
        cls.out = work / "out"
        done = support.compress(work / "model", cls.out, definition)
        if done.returncode != 0:
            raise AssertionError(f"the program ended with {done.returncode}: {done.stderr}")

    def check_unit(self, unit, seen):
        arrays = self.units[unit]
        source = np.concatenate(arrays)
        official, total_bits = official_df11.encode_unit(arrays)
        if unit in self.bits:
            self.assertEqual(total_bits, self.bits[unit])
        got = support.read_unit(self.out, unit)
        expected, why_not = reference.encode_unit(source)
        if why_not:
            seen[why_not] += 1
            weights, _, still = support.decode(got)
            self.assertTrue(np.array_equal(weights, source), f"does not decode to the source ({why_not})")
            self.assertIsNone(still)
            for buffer in ("sign_mantissa", "split_positions"):
                self.assertEqual(got[buffer], official[buffer].numpy().tobytes(), buffer)
            return
        if official["luts"] is None:
            seen["official table builder fails"] += 1
            official["luts"] = torch.from_numpy(expected["luts"])
        else:
            seen["equal"] += 1
        for buffer, tensor in official.items():
            self.assertEqual(got[buffer], tensor.numpy().tobytes(), buffer)
        shard = safetensors.torch.save({f"{unit}.{buffer}": tensor for buffer, tensor in official.items()})
        self.assertEqual(support.shard_path(self.out, unit).read_bytes(), shard, "the shard's bytes")

    def test_every_buffer_equals_the_official_one(self):
        seen = collections.Counter()
        for unit in self.units:
            with self.subTest(unit=unit, weights=sum(map(len, self.units[unit]))):
                self.check_unit(unit, seen)
        print(f"{len(self.units)} units: {dict(seen)}")
        self.assertEqual(sum(seen.values()), NUM_RANDOM + LONGEST_STREAM)
        self.assertGreater(seen["equal"], 0.8 * len(self.units))

    def test_every_stream_length_is_there(self):
        self.assertEqual(sorted(self.bits.values()), list(range(1, LONGEST_STREAM + 1)))

    def test_one_shard_a_unit(self):
        shards = {path.name for path in self.out.glob("*.safetensors")}
        expected = {support.shard_path(self.out, unit).name for unit in self.units}
        self.assertEqual(shards, expected | {"model.safetensors"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
