"""Safe mode: what was written is read back and compared, so a disk that stores a wrong bit is found before OUT appears.

The flip shim flips one bit of one write. Standard library and numpy only.
"""
import json
import os
import random
import shutil
import unittest

import support
from sources import SourceCase
from support import bf16, run, words

SHIM = os.environ.get("WEIGHTPRESS_FLIP_SHIM")
SEED = int(os.environ.get("WEIGHTPRESS_SEED", "4"))
PATTERNS = {r"layers\.\d+": ["a", "b"], r"head": []}


class SafeMode(SourceCase):
    def setUp(self):
        super().setUp()
        if not SHIM:
            self.skipTest("WEIGHTPRESS_FLIP_SHIM does not name the shim")
        self.source = support.write_model(self.work / "model", {
            "layers.0.a.weight": bf16(words(1, 30_000), [100, 300]), "layers.0.b.weight": bf16(words(2, 5000)),
            "layers.0.norm.weight": bf16(words(3, 100)), "layers.1.a.weight": bf16(words(4, 700)),
            "layers.1.b.weight": bf16(words(5, 64)),
            # Any bits of these decode to the same weights, or a quarter of them.
            "layers.2.a.weight": bf16([0] * 9000), "layers.2.b.weight": bf16([0] * 10),
            "layers.3.a.weight": bf16([0x3C00, 0x3D00, 0x3C01] * 3000), "layers.3.b.weight": bf16([0x3C02]), "head.weight": bf16(words(6, 9000), [90, 100]),
            "scale": ("F32", [], b"\0\0\x80\x3f"), "embed.weight": bf16(words(7, 4000))})
        self.definition = support.write_definition(self.work / "definition.json", PATTERNS)

    def compress_flipped(self, call, bit, *options):
        environment = {**os.environ, "WP_FLIP_AT": f"{call}:{bit}", "WP_FLIP_COUNT": str(self.work / "count"),
                       "LD_PRELOAD": SHIM}
        out = self.work / "flipped.safetensors" if "comfyui" in options else self.work / "flipped"
        return out, run("compress", self.source, "-o", out, "--arch", self.definition, "--threads", 1, *options, "-q",
                        env=environment)

    def count_writes(self, *options):
        out, done = self.compress_flipped(0, 0, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.remove(out)
        return int((self.work / "count").read_text())

    @staticmethod
    def remove(out):
        if out.is_dir():
            shutil.rmtree(out)
        else:
            out.unlink()
            out.with_suffix(".weightpress.json").unlink()

    def test_a_wrong_bit_in_any_write_is_found(self):
        generator = random.Random(SEED)
        print(f"seed {SEED}")
        for options in (("--layout", "transformers"), ("--layout", "comfyui"), ("--layout", "transformers", "--hashes")):
            out, done = self.compress_flipped(0, 0, *options)
            self.assertEqual(done.returncode, 0, done.stderr)
            sound = support.read_tree(out) if out.is_dir() else out.read_bytes()
            self.remove(out)
            writes = self.count_writes(*options)
            self.assertGreater(writes, 15)
            harmless = 0
            for call in range(1, writes + 1):
                for bit in [generator.randrange(1 << 40) for _ in range(4)]:
                    with self.subTest(options=options, call=call, bit=bit):
                        out, done = self.compress_flipped(call, bit, *options)
                        if done.returncode == 0:
                            # Written again later, as the header is once hashes are known.
                            harmless += 1
                            same = support.read_tree(out) == sound if out.is_dir() else out.read_bytes() == sound
                            self.remove(out)
                            self.assertTrue(same)
                            continue
                        self.assertEqual(done.returncode, 1, done.stderr)
                        self.assertRegex(done.stderr, "not read back as")
                        self.assertFalse(out.exists())
                        self.assertFalse((self.work / (out.name + ".partial")).exists())
            self.assertEqual(harmless, 0)

    def test_fast_does_not_look(self):
        """So the shim works, and --fast is what it says."""
        missed = 0
        for call in range(1, self.count_writes("--fast") + 1):
            out, done = self.compress_flipped(call, 77, "--fast")
            self.assertEqual(done.returncode, 0, done.stderr)
            missed += run("verify", out, "--source", self.source).returncode == 1
            self.remove(out)
        self.assertGreater(missed, 10)

    def test_fast_and_safe_give_the_same_bytes(self):
        trees = []
        for option in ("--safe", "--fast"):
            out = self.work / option.strip("-")
            done = run("compress", self.source, "-o", out, "--arch", self.definition, option)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("read back" in done.stdout, option == "--safe")
            trees.append(support.read_tree(out))
        records = [json.loads(tree.pop("weightpress.json")) for tree in trees]
        self.assertEqual(trees[0], trees[1])
        self.assertEqual([record.pop("verification") for record in records], ["decoded", "none"])
        self.assertEqual(records[0], records[1])

    def test_safe_and_fast_exclude_each_other(self):
        done = run("compress", self.source, "-o", self.work / "out", "--arch", self.definition, "--safe", "--fast")
        self.assertEqual(done.returncode, 2)
        self.assertFalse((self.work / "out").exists())


if __name__ == "__main__":
    unittest.main()
