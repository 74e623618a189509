"""Models and side files made to cost time: names of many parts, very many names, records of many objects. All end soon.

Standard library and numpy only.
"""
import time
import unittest

import support
from sources import IMPOSSIBLE, SourceCase, model_tensors
from support import bf16, run, words

SOON = 15  # seconds; each took a minute or did not end, and now takes less than one or two


class ManyNames(SourceCase):
    def ends_soon(self, *arguments):
        start = time.monotonic()
        done = run(*arguments, timeout=60)
        self.assertLess(time.monotonic() - start, SOON)
        return done

    def test_a_mixture_of_experts_that_no_definition_knows(self):
        """46,080 tensors of 256 experts a layer: each definition was tried on each, with a search for a good message."""
        tensors = {f"model.layers.{layer}.mlp.experts.{expert}.{part}.weight": ("BF16", [0], b"")
                   for layer in range(60) for expert in range(256) for part in ("gate_proj", "up_proj", "down_proj")}
        source = self.source_file(tensors)
        self.assertRegex(self.ends_soon("architectures", "detect", source).stderr, "no definition of weightpress belongs")
        self.assertEqual(self.ends_soon("inspect", source).returncode, 0)

    def test_names_of_very_many_parts(self):
        """A file of 5 KB."""
        for name in ("a." * 2047 + "w", "0000000." + "a." * 1000 + "w"):
            source = self.source_file({name: bf16(words(1, 5))})
            self.assertEqual(self.ends_soon("architectures", "detect", source).returncode, IMPOSSIBLE)
            for arch in ("krea2-comfyui", self.definition):
                done = self.ends_soon("compress", source, "-o", self.out, "--arch", arch)
                self.assertEqual(done.returncode, IMPOSSIBLE, done.stderr)
            self.assertEqual(self.ends_soon("inspect", source).returncode, 0)

    def test_more_units_than_a_header_can_name(self):
        """Known from the names: said before all of them are counted."""
        stem = "x" * 100
        tensors = {f"layers.{number}{stem}.weight": ("BF16", [1], b"\0\0") for number in range(110_000)}
        definition = support.write_definition(self.work / "many.json", {r"layers\.\d+x+": []})
        source = self.source_file(tensors)
        done = self.ends_soon("compress", source, "-o", self.out, "--arch", definition, "--layout", "comfyui")
        self.assert_fails(done, IMPOSSIBLE, "110000 units", "--layout diffusers")
        self.assertEqual(sorted(self.work.glob("out*")), [])

    def test_records_of_many_objects(self):
        """A parser with a callback took quadratic time: 4 s for 360 KB."""
        self.assert_done(support.compress(self.source_folder({"model.safetensors": model_tensors()}), self.out, self.definition))
        for name in ("weightpress.json", "config.json"):
            content = (self.out / name).read_text()
            (self.out / name).write_text('{"weightpress":"1","a":[' + "{}," * 1_000_000 + "{}]}")
            self.assertEqual(self.ends_soon("inspect", self.out).returncode, 0)
            (self.out / name).write_text("[" * 100_000 + "]" * 100_000)
            self.assertEqual(self.ends_soon("inspect", self.out).returncode, 0)
            (self.out / name).write_text(content)


if __name__ == "__main__":
    unittest.main()
