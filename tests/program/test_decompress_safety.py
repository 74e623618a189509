"""decompress under stress: killed at every change of names, units larger than a slab, every golden unit, records changed at random.

Standard library and numpy only.
"""
import json
import os
import random
import shutil
import signal
import unittest

import numpy as np

import support
from sources import CORRUPT, DONE, IMPOSSIBLE, filled, model_tensors, read_strictly, run_measured
from support import GOLDEN, bf16, read_tree, words
from test_decompress import RECORD, DecompressCase, as_saved

SHIM = os.environ.get("WEIGHTPRESS_KILL_SHIM", "")
SEED = int(os.environ.get("WEIGHTPRESS_SEED", "5"))
TENSORS = model_tensors()
MARKER = "weightpress.in-progress"


class KilledRuns(DecompressCase):
    def test_killed_at_every_change_of_names(self):
        """DIR is old or new at every moment, and the same command then finishes and leaves nothing else."""
        if not SHIM:
            self.skipTest("WEIGHTPRESS_KILL_SHIM is not set: run this through ctest")
        source = self.source_folder({"a.safetensors": as_saved(TENSORS), "b.safetensors": as_saved({"more": filled("U8", [9])})})
        output = self.compressed_output(source)
        back = self.work / "back"
        self.assert_done(self.decompress(output, back=back))
        want = read_tree(back)
        killed = 0
        for replaces in (False, True):
            for function in ("unlink", "renameat2"):
                for call in range(1, 8):
                    for side in ("before", "after"):
                        moment = f"{function}:{call}:{side}"
                        with self.subTest(moment=moment, replaces=replaces):
                            for path in (back, f"{back}.partial"):
                                shutil.rmtree(path, ignore_errors=True)
                            options = ["--force"] if replaces else []
                            if replaces:
                                back.mkdir()
                                (back / "a.safetensors").write_text("old")
                            old = read_tree(back) if replaces else None
                            environment = {**os.environ, "LD_PRELOAD": SHIM, "WP_KILL_AT": moment}
                            done = self.decompress(output, *options, back=back, env=environment)
                            self.assertIn(done.returncode, (0, -signal.SIGKILL), done.stderr)
                            killed += done.returncode != 0
                            now = read_tree(back) if back.exists() else None
                            if now is not None:
                                now.pop(MARKER, None)  # an empty file, for the moment after the rename
                            self.assertIn(now, (old, want))
                            if now == want and not replaces:
                                continue
                            self.assert_done(self.decompress(output, *options, back=back))
                            self.assertEqual(read_tree(back), want)
                            self.assertFalse(os.path.lexists(f"{back}.partial"))
        self.assertGreater(killed, 10)


class Large(DecompressCase):
    def test_units_larger_than_a_slab(self):
        """Tensors that end near the borders of slabs, and many in one; the bytes do not depend on threads."""
        ends = [1, 64, 2_999_000, 3_100_000, 3_100_000, 3_100_001, 6_500_000, 7_500_000]
        parts = np.split(words(SEED, ends[-1]), ends[:-1])
        tensors = {f"m.t{number}.weight": bf16(part) for number, part in enumerate(parts)} | {"rest": filled("U8", [5_000_001])}
        source = self.source_folder({"x.safetensors": as_saved(tensors)})
        output = self.compressed_output(source, "--fast", definition=self.define({"m": [f"t{n}" for n in range(len(parts))]}))
        for threads in (1, 2, 5):
            with self.subTest(threads=threads):
                self.restored(output, "--threads", threads)
                self.assertEqual((self.back / "x.safetensors").read_bytes(), (source / "x.safetensors").read_bytes())

    def test_memory_does_not_grow_with_the_model(self):
        tensors = {f"layers.0.{name}.weight": bf16(words(1, 12_000_000)) for name in "ab"} | {
            "embed.weight": bf16(words(2, 64)), "kept": filled("U8", [60_000_000])}
        output = self.compressed_output(self.source_folder({"x.safetensors": as_saved(tensors)}), "--fast")
        done, peak_mb = run_measured("decompress", output, "-o", self.work / "back", "-q", "--threads", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(0 < peak_mb < 60, peak_mb)


class OfficialUnits(DecompressCase):
    def test_every_golden_unit(self):
        """Buffers of the official compressor without any record; short output_positions among them."""
        cases = sorted(path.parent for path in GOLDEN.glob("*/weights.bf16"))
        self.assertGreater(len(cases), 15)
        for case in cases:
            with self.subTest(case=case.name):
                # The official compressor cannot write the tables of some.
                luts = next(path for path in (case / "luts.u8", case / "luts_safe.u8") if path.exists()).read_bytes()
                stored = {"u.luts": ("U8", [len(luts) // 256, 256], luts)}
                for path in case.glob("*.u*"):
                    if not path.stem.startswith("luts"):
                        stored[f"u.{path.stem}"] = ("U8", [path.stat().st_size], path.read_bytes())
                splits = (case / "split_positions.i64").read_bytes()
                stored["u.split_positions"] = ("I64", [len(splits) // 8], splits)
                self.restored(self.source_file(stored))
                got, metadata = read_strictly(self.back / "model.safetensors")
                self.assertEqual(metadata, {"format": "pt"})
                parts = np.split(np.fromfile(case / "weights.bf16", "<u2"), np.frombuffer(splits, "<i8"))
                names = ["u.weight"] if len(parts) == 1 else [f"u.{number}.weight" for number in range(len(parts))]
                self.assert_tensors(got, dict(zip(names, map(bf16, parts))))


class Records(DecompressCase):
    def setUp(self):
        super().setUp()
        self.source = self.source_folder({"x.safetensors": as_saved(TENSORS, {"format": "pt"})})
        self.output = self.compressed_output(self.source)

    def test_what_comes_back_gives_the_same_output_again(self):
        self.restored(self.output)
        self.assertEqual(read_tree(self.compressed_output(self.back)), read_tree(self.output))

    def test_any_bytes(self):
        """Changed and cut at random: decompressed or refused, never a crash and never half a result."""
        generator = random.Random(SEED)
        sound = (self.output / RECORD).read_bytes()
        for number in range(60):
            with self.subTest(seed=SEED, number=number):
                changed = bytearray(sound)
                for _ in range(generator.randint(1, 3)):
                    changed[generator.randrange(len(changed))] = generator.choice(b'{}[]",:0x\\\x00\xff')
                if generator.random() < 0.2:
                    del changed[generator.randrange(len(changed)):]
                (self.output / RECORD).write_bytes(changed)
                back = self.work / f"any_{number}"
                done = self.decompress(self.output, back=back)
                self.assertIn(done.returncode, (DONE, CORRUPT, IMPOSSIBLE), done.stderr)
                self.assertEqual(back.exists(), done.returncode == DONE)
                self.assertFalse(os.path.lexists(f"{back}.partial"))

    def test_what_to_do_is_said(self):
        """Of a record that is broken, of one that does not fit, and of one file of a folder."""
        record = json.loads((self.output / RECORD).read_text())
        record["source_files"][0]["tensors"].append({"name": "new", "dtype": "U8", "shape": [1]})
        for content, code in (("{", CORRUPT), (json.dumps(record), IMPOSSIBLE)):
            (self.output / RECORD).write_text(content)
            self.not_restored(self.output, code, r"weightpress\.json", "move it away")
        self.not_restored(self.output / "layers_0.safetensors", IMPOSSIBLE, r"weightpress\.json", "give the folder")
        (self.output / RECORD).unlink()
        self.restored(self.output / "layers_0.safetensors")


if __name__ == "__main__":
    unittest.main()
