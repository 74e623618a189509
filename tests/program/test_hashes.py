"""compress --hashes: SHA-256 of every tensor and header in __metadata__, and nothing else that changes.

Standard library and numpy; the safetensors package, where it is installed, opens the files too.
"""
import hashlib
import json
import re
import struct
import unittest

import numpy as np

import sources
import support
from sources import IMPOSSIBLE, SourceCase, expected_output, filled, model_tensors, read_strictly, tensors_file
from support import bf16, words

try:
    import safetensors
    import safetensors.numpy
except ImportError:
    safetensors = None

ODD_NAMES = ["sha256", "sha256:x", "sha256:", ":", "", 'q"u\\o/t', "c\b\f\n\r\t\x01\x1f\x7f\x00", "\\u0041", '","sha256":"', "日本😀",
             "\u2028", "A", "é"]
LAYOUTS = ("transformers", "diffusers", "diffusers-single", "comfyui")


def header_text(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return content[8:8 + length]


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def without_hashes(path):
    """The file as it would be without its hashes."""
    tensors, metadata = read_strictly(path)
    left = {key: value for key, value in metadata.items() if not re.match("sha256(:|$)", key)}
    header, data = sources.pack(tensors)
    return sources.file_bytes({**({"__metadata__": left} if left else {}), **header}, data)


class HashCase(SourceCase):
    def setUp(self):
        super().setUp()
        self.layouts = {layout: self.define(layout=layout) for layout in LAYOUTS}

    def files(self):
        return [self.out] if self.out.is_file() else sorted(self.out.glob("*.safetensors"))

    def check_hashes(self, path):
        """From the bytes alone: every key, its place, every hash."""
        text = header_text(path)
        pairs = json.loads(text.decode(), object_pairs_hook=lambda pairs: pairs)
        self.assertEqual(pairs[0][0], "__metadata__")
        metadata = [pair for pair in pairs[0][1] if pair[0] != "format"]
        self.assertEqual(len(pairs[0][1]) - len(metadata), int(pairs[0][1][0][0] == "format"), "format is not the first")
        tensors, _ = read_strictly(path)
        self.assertEqual([key for key, _ in metadata], ["sha256:" + name for name in tensors] + ["sha256"])
        for (key, stored), (name, (_, _, content)) in zip(metadata, tensors.items()):
            self.assertEqual(stored, sha256(content), key)
        # Each value once, at its key, and nowhere else: a hash can stand in a name.
        zeroed = text
        for key, stored in metadata:
            spelled = sources.compact({key: stored}).encode()[1:-1]
            self.assertEqual(zeroed.count(spelled), 1, key)
            zeroed = zeroed.replace(spelled, spelled[:-65] + b"0" * 64 + b'"')
        self.assertEqual(metadata[-1][1], sha256(zeroed), "the header's hash")


class Hashes(HashCase):
    def test_in_every_layout(self):
        """Right hashes, and without them the same bytes as a run without --hashes."""
        tensors = {**model_tensors(), "empty": filled("F32", [0, 3]), "scalar": filled("I64", []), "bits": filled("BOOL", [7])}
        source = self.source_folder({"x.safetensors": tensors})
        for layout, definition in self.layouts.items():
            with self.subTest(layout=layout):
                self.compressed(source, expected_output(tensors), definition=definition)
                plain = support.read_tree(self.out)
                self.compressed(source, expected_output(tensors), ["--hashes"], definition=definition)
                self.assertEqual(sorted(support.read_tree(self.out)), sorted(plain))
                for path in self.files():
                    self.check_hashes(path)
                    self.assertEqual(without_hashes(path), plain[path.name])
                for name, content in plain.items():
                    if not name.endswith(".safetensors"):
                        self.assertEqual((self.out / name).read_bytes(),
                                         content.replace(b'"hashes": false', b'"hashes": true'), name)
                self.assertIs(self.record()["options"]["hashes"], True)

    def test_of_a_single_file(self):
        out = self.place() / "m.safetensors"
        self.compressed(self.source_folder({"x.safetensors": model_tensors()}), expected_output(model_tensors()), ["--hashes"],
                        definition=self.layouts["comfyui"], out=out)
        self.check_hashes(out)
        self.assertIs(json.loads((out.parent / "m.weightpress.json").read_text())["options"]["hashes"], True)

    def test_of_names_that_need_escapes(self):
        a_hash = sha256(b"")
        tensors = {**model_tensors(), **{name: bf16(words(50 + i, 3 + i)) for i, name in enumerate(ODD_NAMES)},
                   a_hash: bf16(words(80, 4)), f'sha256":"{a_hash}': filled("U8", [0])}
        source = self.source_folder({"x.safetensors": tensors})
        for layout in ("transformers", "comfyui"):
            with self.subTest(layout=layout):
                self.compressed(source, expected_output(tensors), ["--hashes"], definition=self.layouts[layout])
                for path in self.files():
                    self.check_hashes(path)

    def test_of_a_file_without_tensors(self):
        """All tensors are in units: the file of the rest holds only its header's hash."""
        tensors = {"embed.weight": bf16(words(1, 600))}
        definition = self.define({"embed": []})
        self.compressed(self.source_folder({"x.safetensors": tensors}), expected_output(tensors, {"embed": []}), ["--hashes"],
                        definition=definition)
        rest = self.out / "model.safetensors"
        self.check_hashes(rest)
        self.assertEqual(list(read_strictly(rest)[1]), ["format", "sha256"])

    def test_of_cast_kept_and_tied_tensors(self):
        """Hashes are of what is stored, not of what was read."""
        values = np.linspace(-2, 2, 300).astype(np.float32)
        tensors = {**model_tensors(), "layers.0.a.weight": sources.floats("F32", values), "f": sources.floats("F16", values[:50]),
                   "layers.1.a.weight": bf16(np.full(300, 0x7F80, np.uint16))}
        want = expected_output({**tensors, "layers.0.a.weight": bf16(sources.rounded_to_bf16(values)),
                                "f": bf16(sources.rounded_to_bf16(values[:50].astype(np.float16).astype(np.float32)))},
                               kept_units=["layers.1"])
        for definition in self.layouts.values():
            self.compressed(self.source_folder({"x.safetensors": tensors}), want, ["--hashes", "--cast-to-bf16", "--keep-unencodable"],
                            definition=definition)
            for path in self.files():
                self.check_hashes(path)

    def test_of_tensors_longer_than_a_piece(self):
        tensors = {"embed.weight": bf16(words(1, 900_000)), "big": filled("I8", [3_000_001]), "layers.0.a.weight": bf16(words(2, 270_000)),
                   "layers.0.b.weight": bf16(words(3, 1)), "layers.0.norm": filled("F32", [65_537])}
        source = self.source_folder({"x.safetensors": tensors})
        for layout, definition in self.layouts.items():
            with self.subTest(layout=layout):
                self.assert_done(self.run_on(source, "--hashes", definition=definition))
                for path in self.files():
                    self.check_hashes(path)

    def test_equal_runs_and_any_threads_give_equal_files(self):
        tensors = model_tensors(layers=70)  # more shards than are hashed at once
        source = self.source_folder({"x.safetensors": tensors})
        for layout in ("transformers", "comfyui"):
            with self.subTest(layout=layout):
                trees = []
                for threads in (1, 2, 2, 5):
                    self.assert_done(self.run_on(source, "--hashes", "--threads", threads, definition=self.layouts[layout]))
                    trees.append(support.read_tree(self.out))
                for tree in trees[1:]:
                    self.assertEqual(tree, trees[0])
                for path in self.files():
                    self.check_hashes(path)

    @unittest.skipIf(safetensors is None, "the safetensors package is not installed")
    def test_the_package_opens_the_files(self):
        tensors = {"embed.weight": bf16(words(1, 600)), "empty": filled("F32", [0, 3]), "layers.0.a.weight": bf16(words(2, 20)),
                   "layers.0.b.weight": bf16(words(3, 30)), **{name: filled("I32", [i + 1]) for i, name in enumerate(ODD_NAMES)}}
        for layout, definition in self.layouts.items():
            with self.subTest(layout=layout):
                self.assert_done(self.run_on(self.source_folder({"x.safetensors": tensors}), "--hashes", definition=definition))
                for path in self.files():
                    want, metadata = read_strictly(path)
                    with safetensors.safe_open(path, framework="np") as file:
                        self.assertEqual(file.metadata(), metadata)
                        self.assertEqual(set(file.keys()), set(want))
                        for name, (_, shape, content) in want.items():
                            tensor = file.get_tensor(name)
                            self.assertEqual((list(tensor.shape), tensor.tobytes()), (shape, content), name)

    def test_source_with_hashes_of_its_own(self):
        """Metadata of the source is not taken over, so old hashes do not meet new ones."""
        header, data = sources.pack(model_tensors())
        content = sources.file_bytes({"__metadata__": {"sha256": "x", "sha256:norm.weight": "0" * 64}, **header}, data)
        source = self.source_folder({"x.safetensors": content})
        self.compressed(source, expected_output(model_tensors()), ["--hashes"])
        for path in self.files():
            self.check_hashes(path)
        self.assertEqual(self.record()["source_files"][0]["metadata"], {"sha256": "x", "sha256:norm.weight": "0" * 64})


class Refusals(HashCase):
    def test_not_with_strict_identity(self):
        source = self.source_folder({"x.safetensors": model_tensors()})
        self.refused(source, IMPOSSIBLE, "--strict-identity and --hashes", options=["--hashes", "--strict-identity"])

    def test_a_header_that_hashes_make_too_long(self):
        """Names of 4 KB stand twice in it: without hashes the file can be written, with them not."""
        names = [f"{i:06}".ljust(4000, "n") for i in range(15_000)]
        tensors = {**model_tensors(), **{name: ("U8", [0], b"") for name in names}}
        source = self.source_file(tensors_file(tensors))
        self.refused(source, IMPOSSIBLE, "header of more than 100000000 bytes", "leave out --hashes", options=["--hashes"], definition=self.layouts["comfyui"])
        self.assert_done(self.run_on(source, definition=self.layouts["comfyui"]))


if __name__ == "__main__":
    unittest.main()
