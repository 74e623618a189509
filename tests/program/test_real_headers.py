"""Models with the names of real checkpoints, every dimension at most 48: all units and kept tensors equal the slow model's."""
import contextlib
import io
import json
import pathlib
import re
import tempfile
import unittest

import support
from support import ROOT, compress, mentions, reference

HEADERS = ROOT / "tests" / "real_headers"
ARCHITECTURES = ROOT / "architectures"
MAX_DIMENSION = 48
NUM_UNITS = {"bagel-7b-mot": 31, "llama-3.3-70b": 42, "phi-4": 42, "qwen3-4b": 36, "qwen3-8b": 38}


class RealHeaders(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def make(self, name):
        model = self.work / name
        model.mkdir()
        tensors = json.loads((HEADERS / f"{name}.json").read_text())["tensors"]
        spec = {key: [dtype, [min(size, MAX_DIMENSION) for size in shape]] for key, (dtype, shape) in tensors.items()}
        reference.make(str(model / "model.safetensors"), 1, spec, 0.02)
        (model / "config.json").write_bytes(support.CONFIG)
        return model, spec

    def test_bf16_models(self):
        for name, num_units in NUM_UNITS.items():
            with self.subTest(model=name):
                model, spec = self.make(name)
                out = self.work / f"{name}-df11"
                done = compress(model, out, ARCHITECTURES / f"{name}.json")
                self.assertEqual(done.returncode, 0, done.stderr)
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    self.assertEqual(reference.check(str(model), str(out)), 0, printed.getvalue())
                self.assertIn(f"units {num_units},", printed.getvalue())
                self.assertEqual(len(list(out.glob("*.safetensors"))), num_units + 1)
                patterns = json.loads((ARCHITECTURES / f"{name}.json").read_text())["pattern_dict"]
                written = json.loads((out / "config.json").read_text())["dfloat11_config"]["pattern_dict"]
                self.assertEqual(list(written.items()), list(patterns.items()))

    def test_f32_model_is_refused(self):
        model, _ = self.make("omnigen2-mllm")
        done = compress(model, self.work / "out", ARCHITECTURES / "omnigen2-mllm.json")
        self.assertEqual(done.returncode, 2)
        self.assertTrue(mentions(done.stderr, "F32"), done.stderr)
        self.assertFalse((self.work / "out").exists())

    def test_every_definition_is_valid(self):
        """A definition that does not fit is refused for what the model lacks, not for the file."""
        model, _ = self.make("phi-4")
        for definition in sorted(ARCHITECTURES.glob("*.json")):
            if definition.stem == "phi-4":
                continue
            with self.subTest(definition=definition.name):
                done = compress(model, self.work / "out", definition)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertTrue(re.search("pattern|lacks|no module", done.stderr), done.stderr)
                self.assertFalse((self.work / "out").exists())


if __name__ == "__main__":
    unittest.main()
