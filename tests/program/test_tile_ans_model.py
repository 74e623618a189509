"""A trained model through --format tile-ans and back: all-MiniLM-L6-v2 as F32, and cast to F16, BF16, F8_E4M3 and I8 with numpy.

Needs numpy, and the model that tests/program/test_real_model.py takes.
"""
import json
import sys
import unittest

import numpy as np

import model_casts
import support
import tile_ans_files as files
from test_tile_ans import TileAnsCase

MODEL = support.ROOT / "build" / "models" / "all-minilm-l6-v2"
SKIPPED = 77


CASTS = {"F32": lambda values: values, "F16": lambda values: values.astype("<f2"), "BF16": model_casts.to_bf16,
         "F8_E4M3": lambda values: model_casts.to_f8(values, "F8_E4M3"), "I8": model_casts.to_i8}


class TrainedModel(TileAnsCase):
    def test_every_cast(self):
        tensors, metadata = files.read_file(MODEL / "model.safetensors")
        for dtype, cast in CASTS.items():
            with self.subTest(dtype=dtype):
                cast_tensors = {name: (dtype, shape, cast(np.frombuffer(content, "<f4")).tobytes()) if kind == "F32" else
                                (kind, shape, content) for name, (kind, shape, content) in tensors.items()}
                source = files.write_folder(self.work / dtype, {"model.safetensors": cast_tensors}, metadata, index=None,
                                            side_files={"config.json": (MODEL / "config.json").read_bytes()})
                out = self.work / f"{dtype}_out"
                report = self.work / f"{dtype}.json"
                self.compressed(source, out, "--report", report)
                told = json.loads(report.read_text())
                ratio = told["unit_output_bytes"] / told["unit_source_bytes"]
                print(f"{dtype}: {told['units']} tensors, {100 * ratio:.2f}% of their size")
                self.assertGreater(told["units"], 30)
                self.assertLess(ratio, 0.93)
                self.assert_done(support.run("verify", out))
                self.assert_comes_back(out, source)
                for path in (*self.work.glob("back/*"),):
                    path.unlink()
                (self.work / "back").rmdir()


if __name__ == "__main__":
    if not MODEL.is_dir():
        print("skipped: there is no model: run scripts/setup-models")
        sys.exit(SKIPPED)
    unittest.main()
