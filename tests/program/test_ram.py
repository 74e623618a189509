"""--ram SIZE: the whole process stays below it, whatever the model, and no byte of the result depends on it.

The peak is that which the system tells of the process (ru_maxrss, which is VmHWM), started by a small launcher, since a process
begins with the peak of the one it was forked from. WEIGHTPRESS_RAM_LONG=1: with a unit of 600 M weights. Needs numpy.
"""
import hashlib
import json
import os
import pathlib
import re
import struct
import unittest

import numpy as np

import support
from broken_runs import IS_SANITIZED, SEED, remove, scratch_folder
from sources import run_measured
from support import words, words_of_exponents
from test_compress_command import CompressCase

LONG = os.environ.get("WEIGHTPRESS_RAM_LONG", "") not in ("", "0")
# Who takes 128M for a million times 128 is not deceived either.
SIZES = {"128M": 128_000_000, "256M": 256_000_000, "1G": 1_000_000_000}
SMALLEST = re.compile(r"smallest value that works is --ram (\d+(?:\.\d+)?)([KMGT]?)")
POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
STAGES = ["read", "histogram", "encode", "verify", "write", "copy", "sync"]
TIMEOUT = 600 if LONG or IS_SANITIZED else 120


def write_large(path, tensors):
    """tensors: {name: (dtype, number of elements, pieces: an iterable of arrays)}; a piece is held at a time."""
    width = {"BF16": 2, "F32": 4}
    header, end = {}, 0
    for name, (dtype, count, _) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [count], "data_offsets": [end, end + count * width[dtype]]}
        end += count * width[dtype]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (dtype, count, pieces) in tensors.items():
            written = sum(file.write(np.ascontiguousarray(piece)) for piece in pieces)
            assert written == count * width[dtype], name


def repeated(pool, count):
    """Pieces of so many elements in all, each the pool from another place on."""
    pieces, left, shift = [], count, 0
    while left:
        size = min(left, len(pool))
        pieces.append(np.roll(pool, shift)[:size])
        left, shift = left - size, shift + 7919
    return pieces


def bytes_of(size, suffix):
    return float(size) * 1024 ** POWERS[suffix]


def digest(out):
    """{file: SHA-256} of an output and of what lies beside a file."""
    out = pathlib.Path(out)
    return {path.name: sha256_of(path) for path in sorted(out.rglob("*") if out.is_dir() else out.parent.iterdir()) if path.is_file()}


def sha256_of(path):
    state = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            state.update(piece)
    return state.hexdigest()


class RamCase(CompressCase):
    def setUp(self):
        if IS_SANITIZED:
            self.skipTest("a sanitizer's own memory counts too")
        super().setUp()
        folder = scratch_folder()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        self.definition = self.work / "arch.json"
        self.random = np.random.Generator(np.random.PCG64(SEED))
        self.runs = []

    def model_of(self, tensors, name="model", **rules):
        folder = self.work / name
        remove(folder)
        folder.mkdir()
        write_large(folder / "model.safetensors", tensors)
        patterns = {"embed": [], r"layers\.\d+": ["a", "b"]}  # each must fit
        support.write_definition(self.definition, {pattern: parts for pattern, parts in patterns.items()
                                                   if any(re.match(pattern, name) for name in tensors)}, **rules)
        (folder / "config.json").write_bytes(support.CONFIG)
        return folder

    def measure(self, source, layout, *options, ram=None):
        """(the finished process, its peak in bytes, the report, digests of what it wrote), and removes the output."""
        folder = self.work / "result"
        remove(folder)
        folder.mkdir()
        out = folder / ("out.safetensors" if layout in ("comfyui", "diffusers-single") else "out")
        report = self.work / "report.json"
        remove(report)
        done, peak = run_measured("compress", source, "-o", out, "--arch", self.definition, "--layout", layout, "--report", report,
                                  *options, *(["--ram", ram] if ram else []), timeout=TIMEOUT)
        result = digest(out) if done.returncode == 0 else None
        self.assertFalse(done.returncode == 0 and os.path.lexists(f"{out}.partial"))
        remove(folder)
        return done, peak * 1024 * 1024, json.loads(report.read_text()) if report.exists() else None, result

    def assert_below(self, source, layout, *options, ram, limit=None, want=None):
        """Done with a peak below the limit, which the report tells too. Returns the digests and the report."""
        done, peak, report, result = self.measure(source, layout, *options, ram=ram)
        self.assertEqual(done.returncode, 0, done.stderr)
        limit = SIZES[ram] if limit is None else limit
        self.runs.append((layout, options, ram, round(peak / 1e6, 1), round(report["seconds"], 2)))
        self.assertLessEqual(peak, limit, f"{peak / 1e6:.1f} MB with --ram {ram}, {report['memory']}")
        # The report is written a little before the end.
        self.assertLessEqual(report["peak_memory_bytes"], peak + 1e6)
        self.assertGreater(report["peak_memory_bytes"], 0.8 * peak - 4e6)
        if want is not None:
            self.assertEqual(result, want, "the bytes depend on --ram or --threads")
        return result, report


class LargeUnits(RamCase):
    """A unit of 100 M weights, and one of a few."""
    NUM_LARGE = 600_000_000 if LONG else 100_000_000
    NUM_SMALL = 3_000_000

    def tearDown(self):
        for run in self.runs:
            print(*run)
        super().tearDown()

    def test_the_promise(self):
        pool = words(SEED, 8_000_000)
        source = self.model_of({"embed.weight": ("BF16", self.NUM_LARGE, repeated(pool, self.NUM_LARGE)),
                                "layers.0.a.weight": ("BF16", self.NUM_SMALL, repeated(pool, self.NUM_SMALL)),
                                "layers.0.b.weight": ("BF16", self.NUM_SMALL // 2, repeated(pool, self.NUM_SMALL // 2)),
                                "layers.0.norm.weight": ("BF16", 1000, [pool[:1000]]),
                                "other": ("F32", 2_000_000, [np.zeros(2_000_000, "<f4")])})
        source_bytes = (source / "model.safetensors").stat().st_size
        for layout in ("transformers", "comfyui"):
            for mode in ("--safe", "--fast"):
                want = None
                for ram in SIZES:
                    with self.subTest(layout=layout, mode=mode, ram=ram):
                        result, report = self.assert_below(source, layout, mode, ram=ram, want=want)
                        want = want or result
                        self.check_report(report, ram, mode, source_bytes)

    def check_report(self, report, ram, mode, source_bytes):
        memory, stages = report["memory"], report["stages"]
        self.assertEqual(memory["ram_bytes"], int(bytes_of(*re.fullmatch(r"(\d+)([MG])", ram).groups())))
        self.assertIs(memory["ram_given"], True)
        self.assertLessEqual(memory["needed_bytes"], memory["ram_bytes"])
        self.assertLessEqual(memory["hold_bytes"], memory["ram_bytes"])
        self.assertGreater(memory["slab_weights"], 0)
        self.assertEqual(memory["units_held"] + memory["units_streamed"], report["units"])
        if ram == "128M":
            self.assertGreaterEqual(memory["units_streamed"], 1)
        self.assertEqual(sorted(stages), sorted(STAGES))
        for name, stage in stages.items():
            self.assertGreaterEqual(stage["seconds"], 0, name)
            self.assertGreaterEqual(stage["bytes"], 0, name)
            if stage["seconds"] > 1e-3 and stage["bytes"]:
                rate = stage["bytes"] / stage["seconds"]
                self.assertTrue(0.9 * rate < stage["bytes_per_second"] < 1.1 * rate, (name, stage))
        self.assertLessEqual(sum(stage["seconds"] for stage in stages.values()), 1.02 * report["seconds"] + 0.05)
        # The header is no part of what is read of the tensors.
        self.assertGreaterEqual(stages["read"]["bytes"] + stages["copy"]["bytes"], source_bytes - 4096)
        self.assertGreaterEqual(stages["write"]["bytes"], 0.5 * report["output_bytes"])
        self.assertGreater(stages["histogram"]["bytes"] * stages["encode"]["bytes"], 0)
        self.assertEqual(stages["verify"]["bytes"] > 0, mode == "--safe")
        units = {unit["unit"]: unit for unit in report["unit_list"]}
        self.assertEqual({name: unit["weights"] for name, unit in units.items()},
                         {"embed": self.NUM_LARGE, "layers.0": self.NUM_SMALL + self.NUM_SMALL // 2})
        self.assertEqual(sum(unit["source_bytes"] for unit in units.values()), report["unit_source_bytes"])
        self.assertEqual(sum(unit["output_bytes"] for unit in units.values()), report["unit_output_bytes"])
        for unit in units.values():
            self.assertEqual(unit["source_bytes"], 2 * unit["weights"])
            self.assertAlmostEqual(unit["bits_per_weight"], 8 * unit["output_bytes"] / unit["weights"], places=2)
            share = unit["output_bytes"] / unit["source_bytes"]
            self.assertTrue(abs(unit["ratio"] - share) < 0.01 or abs(unit["ratio"] - 1 / share) < 0.01, unit)
        self.assertEqual(report["resumed_units"], 0)
        self.assertTrue(report["simd"])
        self.assertTrue(report["machine"]["cpu"])
        self.assertGreaterEqual(report["machine"]["logical_cores"], 1)
        self.assertGreater(report["machine"]["memory_bytes"], 1e8)
        self.assertIn(os.uname().release, report["machine"]["kernel"])
        energy = report["energy"]
        self.assertTrue(energy.get("absent") if "joules" not in energy else energy["joules"] > 0, energy)


class OddContents(RamCase):
    """Where the sizes are not those of ordinary weights: in 128 MB all the same, and the same bytes as with more."""
    NUM = 20_000_000

    def both(self, source, *options, rams=("128M",), layouts=("transformers", "comfyui"), threads=()):
        for layout in layouts:
            with self.subTest(layout=layout, options=options):
                want, _ = self.assert_below(source, layout, *options, ram="1G")
            for ram in rams:
                for more in [(), *(("--threads", number) for number in threads)]:
                    with self.subTest(layout=layout, ram=ram, options=(*options, *more)):
                        self.assert_below(source, layout, *options, *more, ram=ram, want=want)

    def unit(self, pieces, dtype="BF16"):
        return self.model_of({"embed.weight": (dtype, sum(map(len, pieces)), pieces)})

    def test_eight_bits_a_weight(self):
        self.both(self.unit([words_of_exponents(self.random.integers(0, 240, self.NUM), self.random)]))

    def test_one_bit_a_weight(self):
        self.both(self.unit([words_of_exponents(np.full(self.NUM, 120), self.random)]))

    def test_dense_here_and_thin_there(self):
        """A slab of the one part has eight times the bits of a slab of the other."""
        half = self.NUM // 2
        constant = words_of_exponents(np.full(half, 120), self.random)
        uniform = words_of_exponents(self.random.integers(0, 240, half), self.random)
        self.both(self.unit([constant, uniform]))
        self.both(self.unit([uniform, constant]), layouts=("comfyui",))

    def test_casts(self):
        values = words(SEED, self.NUM // 2).astype("<u4") << 16
        self.both(self.unit([(values | 0x1234).view("<f4")], dtype="F32"), "--cast-to-bf16")

    def test_many_threads(self):
        pool = words(SEED, 4_000_000)
        self.both(self.unit(repeated(pool, self.NUM)), threads=(1, 2, 7, 64))
        source = self.unit(repeated(pool, self.NUM))
        with self.subTest("hashes"):
            self.both(source, "--hashes", threads=(64,))

    def test_many_small_units(self):
        pool = words(SEED, 200_000)
        tensors = {}
        for layer in range(2500):
            for part in ("a", "b"):
                begin = int(self.random.integers(0, len(pool) - 300))
                tensors[f"layers.{layer}.{part}.weight"] = ("BF16", 100 + layer % 200, [pool[begin:begin + 100 + layer % 200]])
        self.both(self.model_of(tensors), "--fast")

    def test_units_of_middling_size(self):
        """Several are held at once, as many as there is room for."""
        pool = words(SEED, 4_000_000)
        self.both(self.model_of({f"layers.{layer}.{part}.weight": ("BF16", 600_000 + 1000 * layer,
                                                                   repeated(pool, 600_000 + 1000 * layer))
                                 for layer in range(16) for part in ("a", "b")}), threads=(64,))


class Lists(RamCase):
    """What grows with the number of tensors and the length of their names is a part of the promise."""

    def check(self, tensors, *options, **rules):
        pool = words(SEED, 100_000)
        source = self.model_of({"embed.weight": ("BF16", 100_000, [pool])} | tensors, **rules)
        for layout in ("transformers", "comfyui"):
            with self.subTest(layout=layout):
                refused, _, _, _ = self.measure(source, layout, *options, ram="1M")
                found = SMALLEST.search(refused.stderr)
                self.assertIsNotNone(found, refused.stderr)
                self.assert_below(source, layout, *options, ram="".join(found.groups()), limit=bytes_of(*found.groups()))

    def test_names_that_need_escapes(self):
        tensors = {f"k{i}" + "\x01" * 600: ("F32", 1, [np.zeros(1, "<f4")]) for i in range(2000)}
        self.check(tensors)
        self.check(tensors, "--hashes")

    def test_many_tensors_with_hashes(self):
        self.check({f"model.layers.{i}.something.of.usual.length.weight": ("F32", 1, [np.zeros(1, "<f4")]) for i in range(20_000)},
                   "--hashes")

    def test_dropped_tensors(self):
        self.check({f"teacher.{i}": ("F32", 1, [np.zeros(1, "<f4")]) for i in range(20_000)},
                   drop=["^teacher\\." + "(this_is_a_long_pattern)?" * 10])


class Sizes(RamCase):
    def setUp(self):
        super().setUp()
        pool = words(SEED, 4_000_000)
        self.source = self.model_of({"embed.weight": ("BF16", 6_000_000, repeated(pool, 6_000_000)),
                                     "layers.0.a.weight": ("BF16", 50_000, [pool[:50_000]]),
                                     "layers.0.b.weight": ("BF16", 50_000, [pool[50_000:100_000]])})

    def test_too_small(self):
        """The message has the smallest value that works, and it does."""
        for layout in ("transformers", "comfyui"):
            for options in ((), ("--fast",), ("--threads", 16)):
                with self.subTest(layout=layout, options=options):
                    want = self.measure(self.source, layout, *options)[3]
                    for ram in ("1M", "20M", "1K", "1"):
                        done, peak, _, _ = self.measure(self.source, layout, *options, ram=ram)
                        if ram == "20M" and done.returncode == 0:
                            self.assertLessEqual(peak, 20 << 20)
                            continue
                        self.assert_fails(done, 2, "--ram")
                        found = SMALLEST.search(done.stderr)
                        self.assertIsNotNone(found, done.stderr)
                    smallest = bytes_of(*found.groups())
                    self.assertLess(smallest, 128_000_000)
                    self.assert_below(self.source, layout, *options, ram="".join(found.groups()), limit=smallest, want=want)
                    less = f"{float(found[1]) - 3:g}{found[2]}"
                    done, _, _, _ = self.measure(self.source, layout, *options, ram=less)
                    self.assert_fails(done, 2, "--ram")
                    again = SMALLEST.search(done.stderr)  # runs differ a little, and the value has a margin of 1M for it
                    self.assertLessEqual(abs(bytes_of(*again.groups()) - smallest), 1 << 20, done.stderr)

    def test_nothing_is_left_of_a_refusal(self):
        out = self.work / "out"
        done = support.compress(self.source, out, self.definition, "--ram", "1M")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertFalse(out.exists() or pathlib.Path(f"{out}.partial").exists())

    def test_spellings(self):
        want = self.measure(self.source, "transformers")[3]
        for text, size in {"300M": 300 << 20, "300m": 300 << 20, "300MB": 300 << 20, "300MiB": 300 << 20, "300mib": 300 << 20,
                           "0.5G": 1 << 29, "1.5g": 3 << 29, "314572800": 314572800, "400000K": 400000 << 10, "1T": 1 << 40,
                           "2GB": 2 << 30, ".5G": 1 << 29, "0.001T": (1 << 40) // 1000}.items():
            with self.subTest(ram=text):
                done, _, report, result = self.measure(self.source, "transformers", ram=text)
                if text == ".5G" and done.returncode == 2:
                    continue  # may be refused
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertLessEqual(abs(report["memory"]["ram_bytes"] - size), 1)
                self.assertEqual(result, want)

    def test_what_is_no_size(self):
        for text in ("", "0", "0M", "-1G", "M", "lots", "1X", "1 000M", "1e9x", "nan", "inf", "1,5G", "1GG", "99999999999999T",
                     "0x10M", "1.5.5G", "--fast"):
            with self.subTest(ram=text):
                out = self.work / "out"
                done = support.compress(self.source, out, self.definition, f"--ram={text}")
                self.assert_fails(done, 2, "--ram|size")
                self.assertFalse(out.exists())

    def test_without_the_option(self):
        """A share of what is free."""
        done, _, report, _ = self.measure(self.source, "transformers")
        self.assert_done(done)
        memory = report["memory"]
        self.assertIs(memory["ram_given"], False)
        available = int(re.search(r"MemAvailable:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024
        self.assertLess(memory["ram_bytes"], 0.75 * available)

    def test_verbose_tells_the_plan(self):
        for layout in ("transformers", "comfyui"):
            for option in ("-v", "--verbose"):
                with self.subTest(layout=layout, option=option):
                    done = support.compress(self.source, self.work / "out", self.definition, "--layout", layout, option, "--ram", "256M",
                                            "--force")
                    self.assert_done(done)
                    self.assertRegex(done.stderr, r"(?i)memory|ram")
                    self.assertRegex(done.stderr, r"(?i)units?")
        quiet = support.compress(self.source, self.work / "out", self.definition, "--force", "--progress", "none")
        self.assertNotRegex(quiet.stderr, r"(?i)memory")


if __name__ == "__main__":
    unittest.main()
