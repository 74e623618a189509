"""The golden vectors through the program: units whose buffers the official compressor made, and the safe tables."""
import json
import pathlib
import tempfile
import unittest

import numpy as np

import support

FILES = {"encoded_exponent": "u8", "sign_mantissa": "u8", "gaps": "u8", "output_positions": "u32", "split_positions": "i64"}


class GoldenUnits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        work = pathlib.Path(cls.folder.name)
        cls.units = sorted(path.parent.name for path in support.GOLDEN.glob("*/weights.bf16"))
        tensors, patterns = {}, {}
        for name in cls.units:
            words = np.fromfile(support.GOLDEN / name / "weights.bf16", "<u2")
            sizes = json.loads((support.GOLDEN / name / "meta.json").read_text()).get("sizes", [len(words)])
            attributes = [f"part{index}" for index in range(len(sizes))] if len(sizes) > 1 else []
            patterns[rf"golden\.{name}"] = attributes
            for attribute, part in zip(attributes or [None], np.split(words, np.cumsum(sizes)[:-1])):
                tensors[f"golden.{name}.{attribute}.weight" if attribute else f"golden.{name}.weight"] = support.bf16(part)
        model = support.write_model(work / "model", tensors)
        definition = support.write_definition(work / "arch.json", patterns)
        cls.outs = {}
        for luts in ("compat", "safe"):
            cls.outs[luts] = work / luts
            done = support.compress(model, cls.outs[luts], definition, "--luts", luts)
            if done.returncode != 0:
                raise AssertionError(f"the program ended with {done.returncode}: {done.stderr}")

    def test_buffers(self):
        self.assertEqual(len(self.units), 19)
        for luts, out in self.outs.items():
            for name in self.units:
                unit = support.read_unit(out, f"golden.{name}")
                for buffer, suffix in FILES.items():
                    with self.subTest(luts=luts, unit=name, buffer=buffer):
                        self.assertEqual(unit[buffer], (support.GOLDEN / name / f"{buffer}.{suffix}").read_bytes())

    def test_lookup_tables(self):
        for name in self.units:
            folder = support.GOLDEN / name
            safe = (folder / "luts_safe.u8").read_bytes()
            hangs = not json.loads((folder / "meta.json").read_text()).get("official_kernel_terminates", True)
            # Without official tables (their builder fails) the model's; with tables that hang a GPU the safe ones.
            words = np.fromfile(folder / "weights.bf16", "<u2")
            compat = safe if hangs else support.reference.encode_unit(words)[0]["luts"].tobytes()
            if (folder / "luts.u8").exists() and not hangs:
                self.assertEqual(compat, (folder / "luts.u8").read_bytes())
            for luts, expected in (("compat", compat), ("safe", safe)):
                with self.subTest(luts=luts, unit=name):
                    self.assertEqual(support.read_unit(self.outs[luts], f"golden.{name}")["luts"], expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
