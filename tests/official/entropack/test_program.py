"""`weightpress` and the official Tile-ANS code, both directions, on random tensors of all dtypes and settings.

What compress writes is to the byte the file of the official containers, and the official code reads it; what the official code
writes, `decompress` brings back. WEIGHTPRESS_SEED, WEIGHTPRESS_CASES (500). Needs numpy, safetensors, entropack 0.1.0.
"""
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "program"))

import official_entropack  # noqa: E402  (before the stand-in is on the path)
import random_tensors  # noqa: E402
import support  # noqa: E402
import tile_ans_files as files  # noqa: E402

NUM_CASES = int(os.environ.get("WEIGHTPRESS_CASES", "500"))
MOST_BYTES = 4 << 20  # the two of 32 MiB are tested elsewhere


def stored_of(name, container):
    """{name: (dtype, shape, bytes)} of a container of the package."""
    stored = {}
    for key, tensor in container.state_dict(name + files.PREFIX).items():
        dtype = files.DTYPES[str(tensor.dtype).removeprefix("torch.")]
        stored[key] = dtype, list(tensor.shape), official_entropack.bytes_of(tensor)
    return stored


class BothDirections(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work = pathlib.Path(folder.name)
        cls.cases = []
        for case in random_tensors.make_cases(count=NUM_CASES):
            if len(case.data) <= MOST_BYTES:
                container = official_entropack.encode(case.data, case.dtype, case.shape, **case.settings)
                cls.cases.append((case, stored_of(case.name, container)))

    def test_compress_writes_the_official_files(self):
        source, out = self.work / "source.safetensors", self.work / "out.safetensors"
        num_compressed, dtypes = 0, set()
        for case, container in self.cases:
            with self.subTest(case=case.name, settings=case.settings, shape=case.shape):
                tensor = (files.DTYPES[case.dtype], case.shape, case.data)
                source.write_bytes(files.safetensors_bytes({case.name: tensor}))
                done = support.run("compress", source, "-o", out, "--format", "tile-ans", "--force", *files.options_of(case.settings))
                self.assertEqual(done.returncode, 0, done.stderr)
                shrinks = case.shape != [] and case.data and files.stored_bytes(container) < len(case.data)
                want = files.safetensors_bytes(container if shrinks else {case.name: tensor})
                self.assertTrue(out.read_bytes() == want, "other bytes")
                if shrinks:
                    num_compressed += 1
                    dtypes.add(case.dtype)
                    containers, _ = official_entropack.read_safetensors(out)
                    self.assertEqual(official_entropack.decode(containers[case.name]), case.data)
        print(f"{num_compressed} of {len(self.cases)} tensors were smaller compressed, of {len(dtypes)} dtypes")
        if NUM_CASES >= 500:
            self.assertEqual(len(dtypes), 16)

    def test_decompress_reads_official_containers(self):
        """All of them in one file, larger than the tensor or not."""
        stored, back = self.work / "stored.safetensors", self.work / "back.safetensors"
        together = {}
        for case, container in self.cases:
            if case.data:  # empty tensors of two dtypes have no name in files of the package
                together |= container
        stored.write_bytes(files.safetensors_bytes(together, {"made": "by entropack"}))
        done = support.run("decompress", stored, "-o", back)
        self.assertEqual(done.returncode, 0, done.stderr)
        want = {case.name: (files.DTYPES[case.dtype], case.shape, case.data) for case, _ in self.cases if case.data}
        self.assertTrue(back.read_bytes() == files.safetensors_bytes(want, {"made": "by entropack"}))
        self.assertEqual(support.run("verify", stored, "--source", back).returncode, 0)


if __name__ == "__main__":
    unittest.main()
