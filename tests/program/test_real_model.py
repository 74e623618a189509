"""A trained model through the program: all-MiniLM-L6-v2, F32, with --cast-to-bf16 and no --arch, as ./quickstart does it.

The cast must be PyTorch's. Every unit must equal the slow model's, every kept tensor the cast source's, and every file, as
a whole, what the safetensors package writes from those tensors.
"""
import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import safetensors.torch
import torch

import support
from support import reference

MODEL = support.ROOT / "build" / "models" / "all-minilm-l6-v2"
DEFINITION = support.ROOT / "architectures" / "bert.json"
SKIPPED = 77


def units_of(source, pattern_dict):
    """{unit: names of its tensors} by the definition's own rules, for a model without prefixes or ties."""
    modules = {name.rsplit(".", depth)[0] for name in source for depth in range(1, name.count(".") + 1)}
    units = {}
    for module in modules:
        for pattern, attributes in pattern_dict.items():
            if re.fullmatch(pattern, module):
                units[module] = [f"{module}.{attribute}.weight" for attribute in attributes] or [f"{module}.weight"]
    return units


class RealModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.outs = {}
        for threads in (1, 2):
            cls.outs[threads] = pathlib.Path(cls.folder.name) / f"threads_{threads}"
            done = support.run("compress", MODEL, "-o", cls.outs[threads], "--cast-to-bf16", "--threads", threads)
            if done.returncode != 0:
                raise AssertionError(f"the program ended with {done.returncode}: {done.stderr}")
            cls.said = done.stderr
        cls.source = safetensors.torch.load_file(MODEL / "model.safetensors")
        cls.cast = {name: tensor.to(torch.bfloat16) if tensor.dtype == torch.float32 else tensor
                    for name, tensor in cls.source.items()}
        safetensors.torch.save_file(cls.cast, cls.folder.name + "/cast.safetensors")
        cls.pattern_dict = json.loads(DEFINITION.read_text())["pattern_dict"]

    def test_units_and_kept_tensors_equal_the_slow_model(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            differences = reference.check(self.folder.name + "/cast.safetensors", str(self.outs[1]))
        self.assertEqual(differences, 0, said.getvalue())
        self.assertIn("units 7,", said.getvalue())

    def test_whole_files_equal_the_safetensors_package(self):
        source = self.cast
        units = units_of(source, self.pattern_dict)
        self.assertEqual(len(units), 7)
        left = dict(source)
        for unit, names in units.items():
            weights = [left.pop(name).reshape(-1).view(torch.int16).numpy().view(np.uint16) for name in names]
            buffers, why_not = reference.encode_unit(np.concatenate(weights))
            self.assertIsNone(why_not)
            tensors = {f"{unit}.{buffer}": torch.from_numpy(np.ascontiguousarray(array)) for buffer, array in buffers.items()}
            tensors[f"{unit}.split_positions"] = torch.cumsum(torch.tensor([len(part) for part in weights]), 0)[:-1].clone()
            tensors.update({name: left.pop(name) for name in list(left) if name.startswith(unit + ".")})
            with self.subTest(file=support.shard_path("", unit).name):
                self.assertEqual(support.shard_path(self.outs[1], unit).read_bytes(), safetensors.torch.save(tensors))
        with self.subTest(file="model.safetensors"):
            self.assertEqual((self.outs[1] / "model.safetensors").read_bytes(),
                             safetensors.torch.save(left, metadata={"format": "pt"}))
        self.assertEqual({path.name for path in self.outs[1].glob("*.safetensors")},
                         {support.shard_path("", unit).name for unit in units} | {"model.safetensors"})

    def test_the_loss_is_stated(self):
        floats = {name: tensor for name, tensor in self.source.items() if tensor.dtype == torch.float32}
        changed = sum(int((tensor != self.cast[name].float()).sum()) for name, tensor in floats.items())
        self.assertIn(f"{len(floats)} tensors were cast to BF16, which is a loss: {changed} values changed", self.said)
        self.assertIn("the definition bert was chosen", self.said)

    def test_config_json_is_the_sources_with_one_key_more(self):
        source, out = (MODEL / "config.json").read_bytes(), (self.outs[1] / "config.json").read_bytes()
        brace = source.rindex(b"}")
        self.assertTrue(out.startswith(source[:brace].rstrip()))
        self.assertTrue(out.endswith(source[brace:]))
        parsed = json.loads(out)
        self.assertEqual(list(parsed), list(json.loads(source)) + ["dfloat11_config"])
        self.assertEqual(list(parsed["dfloat11_config"].items()),
                         [("version", "0.5.0"), ("threads_per_block", [512]), ("bytes_per_thread", 8),
                          ("pattern_dict", self.pattern_dict)])
        self.assertEqual(list(parsed["dfloat11_config"]["pattern_dict"]), list(self.pattern_dict))

    def test_it_verifies_against_the_source_and_against_its_cast(self):
        for source in (MODEL, self.folder.name + "/cast.safetensors"):
            for level in ("sample", "full"):
                done = support.run("verify", self.outs[1], "--source", source, "--level", level)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_decompressed_it_is_the_cast(self):
        for threads in (1, 2):
            back = pathlib.Path(self.folder.name) / f"back_{threads}"
            done = support.run("decompress", self.outs[1], "-o", back, "--threads", threads)
            self.assertEqual(done.returncode, 0, done.stderr)
            metadata = safetensors.safe_open(MODEL / "model.safetensors", "pt").metadata()
            self.assertEqual((back / "model.safetensors").read_bytes(), safetensors.torch.save(self.cast, metadata=metadata))
            self.assertEqual((back / "config.json").read_bytes(), (MODEL / "config.json").read_bytes())

    def test_same_bytes_for_one_and_two_threads(self):
        self.assertEqual(support.read_tree(self.outs[1]), support.read_tree(self.outs[2]))

    def test_it_became_smaller(self):
        size = sum(len(data) for data in support.read_tree(self.outs[1]).values())
        self.assertLess(size, 0.75 / 2 * (MODEL / "model.safetensors").stat().st_size)


if __name__ == "__main__":
    fetched = subprocess.run([str(support.ROOT / "scripts" / "fetch-example-model"), str(MODEL)], check=False)
    if fetched.returncode == 3:
        print("skipped: the model could not be downloaded")
        sys.exit(SKIPPED)
    fetched.check_returncode()
    unittest.main(verbosity=2)
