"""Units that the official kernel cannot load as the official compressor writes them.

The program must store them all the same: decoding exactly, loadable, within 0.2 bits a weight of the best code under
the constraint (code_bounds.py finds it independently). --strict-identity must refuse each and leave nothing behind.
"""
import itertools
import pathlib
import random as plain_random
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import code_bounds  # noqa: E402
import support  # noqa: E402
from support import reference  # noqa: E402

SEED = 7
ALLOWANCE_BITS = 0.2
DENSE, TABLES, PADDING = ("a chunk of more than 23,550 weights", "more than 17 tables",
                          "the kernel would not end on the padding")
REASON_IN_MESSAGE = {DENSE: "chunk|dense", TABLES: "table", PADDING: "padding"}


def pruned(random, share, count=60_000):
    array = support.words(int(random.integers(1 << 30)), count)
    array[random.random(count) < share] = 0
    return array


def with_outliers(random, share, exponents, count=60_000):
    array = support.words(int(random.integers(1 << 30)), count)
    chosen = random.random(count) < share
    array[chosen] = support.words_of_exponents(random.integers(5, 5 + exponents, int(chosen.sum())), random)
    return array


def pareto(random, shape, count=60_000):
    return support.words_of_exponents(np.minimum(random.pareto(shape, count) * 4, 239).astype(np.int64), random)


def log_uniform(random, octaves, symbols=230):
    """Counts spread evenly over this many powers of two."""
    counts = np.exp2(random.uniform(0, octaves, symbols)).astype(int) + 1
    return support.words_of_exponents(random.permutation(np.repeat(np.arange(symbols), counts)), random)


def golden(name):
    return np.fromfile(support.GOLDEN / name / "weights.bf16", "<u2")


def make_units():
    """{unit: (words, reason for which the official bytes are useless or None)}"""
    random = np.random.Generator(np.random.PCG64(SEED))
    outlier_runs = np.full(200_000, 0x3F80, np.uint16)
    outlier_runs[:2000] = support.words_of_exponents(random.integers(0, 240, 2000), random)
    return {
        "zeros": (np.zeros(60_000, "<u2"), DENSE),
        "negative_zeros": (np.full(40_000, 0x8000, "<u2"), DENSE),
        "constant": (np.full(32_768, 0x3C4D, "<u2"), DENSE),
        "just_too_dense": (np.full(23_551, 0x3C4D, "<u2"), DENSE),
        "just_not_too_dense": (np.full(23_550, 0x3C4D, "<u2"), None),
        "two_exponents": (support.words_of_exponents((random.random(60_000) < 0.1) * 3 + 120, random), DENSE),
        "pruned_50": (pruned(random, 0.5), None),
        "pruned_70": (pruned(random, 0.7), None),
        "pruned_90": (pruned(random, 0.9), DENSE),
        "pruned_99": (pruned(random, 0.99), DENSE),
        "outliers_200": (with_outliers(random, 0.1, 200), TABLES),
        "outliers_235": (with_outliers(random, 0.05, 235), TABLES),
        "outliers_40_percent": (with_outliers(random, 0.4, 235), TABLES),
        "outliers_few": (with_outliers(random, 0.01, 235, 100_000), None),
        "pareto_light": (pareto(random, 1.0), TABLES),
        "pareto": (pareto(random, 0.6), TABLES),
        "pareto_heavy": (pareto(random, 0.4), TABLES),
        "log_uniform_3": (log_uniform(random, 3), TABLES),
        "log_uniform_9": (log_uniform(random, 9), TABLES),
        "log_uniform_14": (log_uniform(random, 14), TABLES),
        "zeros_and_outliers": (outlier_runs.astype("<u2"), TABLES),  # too dense as well
        "padding_119": (golden("official_tables_hang_kernel_119"), PADDING),
        "padding_4214": (golden("official_tables_hang_kernel_4214"), PADDING),
    }


def counts_of(array):
    counts = np.bincount((array >> 7) & 0xFF, minlength=256)
    return {int(exponent): int(count) for exponent, count in enumerate(counts) if count}


def dense_too(array):
    """Whether the official positions have too dense a chunk; the model names too many tables first."""
    positions = np.frombuffer(reference.encode_unit(array)[0]["output_positions"], "<u4").astype(np.int64)
    return bool(np.diff(positions).max() > 23_550)


def fewest_bits(array, reason):
    counts = counts_of(array)
    if reason == DENSE:
        return code_bounds.least_bits(list(counts.values()), shortest=2)
    if reason == TABLES:
        shortest = 2 if dense_too(array) else 1
        return code_bounds.least_bits_in_tables(list(counts.values()), shortest)[0]
    lengths = {exponent: bits for exponent, bits, _ in reference.limited_code_table(counts)[0]}
    return sum(count * lengths[exponent] for exponent, count in counts.items())


class RescuedUnits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.work = pathlib.Path(cls.folder.name)
        cls.units = make_units()
        cls.model = support.write_model(cls.work / "model", {
            f"units.{name}.weight": support.bf16(array) for name, (array, _) in cls.units.items()})
        cls.definition = support.write_definition(cls.work / "arch.json", {r"units\.\w+": []})
        cls.out = cls.work / "out"
        cls.done = support.compress(cls.model, cls.out, cls.definition)
        if cls.done.returncode != 0:
            raise AssertionError(f"the program ended with {cls.done.returncode}: {cls.done.stderr}")

    def test_the_official_bytes_are_as_useless_as_the_test_says(self):
        for name, (array, reason) in self.units.items():
            with self.subTest(unit=name):
                self.assertEqual(reference.encode_unit(array)[1], reason)

    def test_each_decodes_and_loads(self):
        for name, (array, reason) in self.units.items():
            with self.subTest(unit=name):
                unit = support.read_unit(self.out, f"units.{name}")
                weights, bits, why_not = support.decode(unit)
                self.assertTrue(np.array_equal(weights, array), "decodes to other weights")
                self.assertIsNone(why_not)
                best = fewest_bits(array, reason)
                over = (bits - best) / len(array)
                print(f"{name}: {bits / len(array):.3f} bits a weight, {over:+.3f} over the best ({reason})")
                self.assertLessEqual(over, ALLOWANCE_BITS)
                luts = np.frombuffer(unit["luts"], np.uint8).reshape(-1, 256)
                self.assertLessEqual(luts[-1].max(), 32)
                if reason == DENSE:
                    self.assertGreaterEqual(luts[-1][luts[-1] > 0].min(), 2)

    def test_the_others_stay_official(self):
        for name, (array, reason) in self.units.items():
            if reason is None:
                expected = reference.encode_unit(array)[0]
                unit = support.read_unit(self.out, f"units.{name}")
                for buffer in expected:
                    with self.subTest(unit=name, buffer=buffer):
                        self.assertEqual(unit[buffer], expected[buffer].tobytes())

    def test_hanging_padding_changes_the_tables_only(self):
        for name in ("119", "4214"):
            unit = support.read_unit(self.out, f"units.padding_{name}")
            folder = support.GOLDEN / f"official_tables_hang_kernel_{name}"
            for buffer, file in (("luts", "luts_safe.u8"), ("encoded_exponent", "encoded_exponent.u8"),
                                 ("gaps", "gaps.u8"), ("output_positions", "output_positions.u32")):
                with self.subTest(unit=name, buffer=buffer):
                    self.assertEqual(unit[buffer], (folder / file).read_bytes())

    def test_each_is_reported(self):
        said = self.done.stdout + self.done.stderr
        for name, (_, reason) in self.units.items():
            with self.subTest(unit=name):
                if reason:
                    self.assertTrue(support.mentions(said, rf"units\.{name}\b"), said)
                else:
                    self.assertFalse(support.mentions(said, rf"units\.{name}\b"), said)

    def test_strict_identity_refuses_each(self):
        for name, (array, reason) in self.units.items():
            with self.subTest(unit=name):
                work = self.work / f"strict_{name}"
                model = support.write_model(work / "model", {"units.fine.weight": support.bf16(support.words(1, 500)),
                                                             f"units.{name}.weight": support.bf16(array)})
                done = support.compress(model, work / "out", self.definition, "--strict-identity")
                if reason is None:
                    self.assertEqual((done.returncode, done.stderr if done.returncode else ""), (0, ""))
                    continue
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertFalse((work / "out").exists())
                reasons = REASON_IN_MESSAGE[reason]
                if dense_too(array):
                    reasons += "|" + REASON_IN_MESSAGE[DENSE]
                self.assertTrue(support.mentions(done.stderr, rf"units\.{name}\b", reasons), done.stderr)


class CodeBounds(unittest.TestCase):
    """The bounds themselves, against trying every set of code lengths."""

    def every_code(self, counts, lengths):
        ordered = sorted(counts, reverse=True)
        return [code for code in itertools.combinations_with_replacement(lengths, len(ordered))
                if sum(2.0 ** -length for length in code) <= 1], ordered

    def test_least_bits(self):
        random = plain_random.Random(SEED)
        for shortest in (1, 2, 3):
            for _ in range(40):
                counts = [random.randint(1, 2 ** random.randint(1, 9)) for _ in range(random.randint(1, 7))]
                codes, ordered = self.every_code(counts, range(shortest, 8))
                best = min(sum(c * n for c, n in zip(ordered, code)) for code in codes)
                self.assertEqual(code_bounds.least_bits(counts, shortest, 7), best, (counts, shortest))

    def test_least_bits_in_tables(self):
        # One head, few symbols: lengths 1..8 above it, 9.. below it, the head itself takes 1/256.
        random = plain_random.Random(SEED)
        for _ in range(40):
            counts = [random.randint(1, 2 ** random.randint(1, 12)) for _ in range(random.randint(2, 6))]
            lower, reachable = code_bounds.least_bits_in_tables(counts)
            self.assertLessEqual(lower, reachable)
            self.assertEqual(lower, code_bounds.least_bits(counts))  # few symbols need no table at all

    def test_tables_bound_is_narrow_and_above_huffman(self):
        for name, (array, reason) in make_units().items():
            if reason == TABLES:
                with self.subTest(unit=name):
                    counts = counts_of(array)
                    shortest = 2 if dense_too(array) else 1
                    lower, reachable = code_bounds.least_bits_in_tables(list(counts.values()), shortest)
                    self.assertLessEqual(code_bounds.least_bits(list(counts.values()), shortest), lower)
                    self.assertLess((reachable - lower) / len(array), 0.001)

    def test_tables_against_every_split(self):
        """One head: every set of lengths above it, with the best code below it."""
        counts = sorted((2 ** (20 - index) + 1 for index in range(20)), reverse=True)
        lower, reachable = code_bounds.least_bits_in_tables(counts, 1, 2)
        best = float("inf")
        for short in range(4, 9):
            rest = counts[short:]
            below = code_bounds.least_bits(rest, 1, 24) + 8 * sum(rest)
            for above in itertools.combinations_with_replacement(range(1, 9), short):
                if sum(2.0 ** -length for length in above) + 1 / 256 <= 1:
                    best = min(best, sum(count * length for count, length in zip(counts, above)) + below)
        self.assertEqual(lower, best)
        self.assertLessEqual(lower, reachable)


if __name__ == "__main__":
    unittest.main(verbosity=2)
