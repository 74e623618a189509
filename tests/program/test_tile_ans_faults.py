"""Tile-ANS files that are damaged, cut off or made to harm: verify finds it, or nothing was lost; nothing crashes.

WEIGHTPRESS_SEED: the bits that flip. Standard library and numpy only.
"""
import json
import os
import unittest

import numpy as np

import tile_ans_files as files
from sources import run_measured
from support import run
from test_tile_ans import CORRUPT, IMPOSSIBLE, TileAnsCase
from tile_ans_files import PREFIX, safetensors_bytes, tensor, with_header

SEED = int(os.environ.get("WEIGHTPRESS_SEED", "1"))
FLIPS = int(os.environ.get("WEIGHTPRESS_FLIPS", "5"))


class Faults(TileAnsCase):
    def setUp(self):
        super().setUp()
        random = np.random.Generator(np.random.PCG64(SEED))
        lane = random.integers(0, 256, (12_001, 4), np.uint8)  # two raw lanes, of which one has odd tiles, and two coded ones
        lane[:, 2:] = np.abs(np.round(3 * random.standard_normal((12_001, 2)))).astype(np.uint8)
        self.tensors = {"a": ("F32", [12_001], lane.tobytes()), "b": tensor("BF16", 9000, SEED), "kept": ("I64", [2], bytes(16))}
        self.source = self.file_of(self.tensors)
        self.good = self.work / "good.safetensors"
        self.compressed(self.source, self.good, "--tile-elements", "1001")
        self.stored, _ = files.read_file(self.good)
        self.assertEqual(list(self.stored[f"a{PREFIX}buffers.lane_modes"][2]), [1, 1, 0, 0])
        self.path = self.work / "bad.safetensors"

    def write(self, stored):
        self.path.write_bytes(stored if isinstance(stored, bytes) else safetensors_bytes(stored))
        return self.path

    def judge(self, message=""):
        """What the program says of self.path: "fault", or "harmless" if all of the source is still there."""
        with_source = run("verify", self.path, "--source", self.source)
        alone = run("verify", self.path)
        back = self.work / "back.safetensors"
        restored = run("decompress", self.path, "-o", back, "--force")
        for done in (with_source, alone, restored, run("inspect", self.path)):
            self.assertIn(done.returncode, (0, CORRUPT, IMPOSSIBLE), f"{message}: {done.stderr}")
            if done.returncode != 0 and done is not with_source and done is not alone:
                self.assertRegex(done.stderr, r"^weightpress: ", message)
        if restored.returncode == 0:
            self.assertEqual(back.read_bytes() == self.source.read_bytes(), with_source.returncode == 0, message)
        else:
            self.assertNotEqual(with_source.returncode, 0, message)
            self.assertNotEqual(alone.returncode, 0, message)
            self.assertFalse(back.exists(), message)
        result = "harmless" if with_source.returncode == 0 else "fault"
        back.unlink(missing_ok=True)
        return result

    def test_flipped_bits(self):
        random = np.random.Generator(np.random.PCG64(SEED))
        for name, (dtype, shape, content) in self.stored.items():
            whole = len(content) <= 8
            places = range(8 * len(content)) if whole else random.integers(0, 8 * len(content), FLIPS)
            if not whole:
                places = [0, 8 * len(content) - 1, *places]
            for bit in map(int, places):
                with self.subTest(tensor=name, bit=bit, seed=SEED):
                    bad = bytearray(content)
                    bad[bit // 8] ^= 1 << bit % 8
                    self.write({**self.stored, name: (dtype, shape, bytes(bad))})
                    # All buffers are redundant or checked: no bit is free but spellings of the header.
                    if self.judge() == "harmless":
                        self.assertTrue(name.endswith("header"), "this bit means nothing")

    def test_what_a_fault_is_called(self):
        content = self.stored[f"a{PREFIX}buffers.payload"]
        words = np.frombuffer(content[2], "<u2").copy()
        words[-1] ^= 0x100
        self.write({**self.stored, f"a{PREFIX}buffers.payload": (*content[:2], words.tobytes())})
        done = run("verify", self.path, "--json")
        self.assertEqual(done.returncode, CORRUPT)
        (failure,) = json.loads(done.stdout)["failures"]
        self.assertEqual((failure["unit"], failure["kind"], failure["chunk"]), ("a", "stream", 11))
        self.assertIn("lane 3", failure["message"])
        done = run("decompress", self.path, "-o", self.work / "x.safetensors")
        self.assertEqual(done.returncode, CORRUPT)
        for text in ("bad.safetensors", "'a'", "lane 3", "tile 11", "damaged"):
            self.assertIn(text, done.stderr)
        # A kept tensor, and another value that is coded well.
        other = {**self.tensors, "kept": ("I64", [2], bytes(15) + b"\1"), "b": tensor("BF16", 9000, SEED + 1)}
        again = self.file_of(other, "other.safetensors")
        report = json.loads(run("verify", self.good, "--source", again, "--json").stdout)
        self.assertEqual([(failure["unit"] or failure["tensor"], failure["kind"]) for failure in report["failures"]],
                         [("b", "weight"), ("kept", "tensor")])
        missing = self.file_of({"b": self.tensors["b"], "more": self.tensors["kept"]}, "missing.safetensors")
        report = json.loads(run("verify", self.good, "--source", missing, "--json").stdout)
        self.assertEqual({(failure["unit"] or failure["tensor"], failure["kind"]) for failure in report["failures"]},
                         {("a", "tensor"), ("kept", "tensor"), ("more", "tensor")})

    def test_truncated_files(self):
        whole = self.good.read_bytes()
        for size in (*range(0, 64, 9), len(whole) // 2, len(whole) - 1):
            with self.subTest(size=size):
                self.write(whole[:size])
                self.assertEqual(self.judge(), "fault")
        for name in self.stored:
            if PREFIX not in name:
                continue
            with self.subTest(missing=name):
                self.write({key: value for key, value in self.stored.items() if key != name})
                self.assertEqual(self.judge(), "fault")

    def test_headers_of_strangers(self):
        good = {name: value for name, value in self.stored.items() if name.startswith("b.")}
        self.source = self.file_of({"b": self.tensors["b"]})
        cases = {
            "no JSON": lambda header: b"{", "empty": lambda header: b"", "a list": lambda header: [], "NUL": lambda header: b"\0" * 50,
            "deep": lambda header: b"[" * 30_000, "long": lambda header: b" " * 70_000,
            "other method": lambda header: header | {"header": {"compress_method": "dfloat11"}},
            "raw": lambda header: header | {"header": {"compress_method": "raw"}, "buffer_names": ["data"]},
            "dtype": lambda header: header | {"dtype": "float32"}, "no dtype": lambda header: header | {"dtype": "x" * 1000},
            "shape": lambda header: header | {"shape": [9001]}, "negative": lambda header: header | {"shape": [-9000]},
            "huge": lambda header: header | {"shape": [2**62, 4]}, "many": lambda header: header | {"shape": [9000, *[1] * 10_000]},
            "fraction": lambda header: header | {"shape": [9000.0]}, "zero": lambda header: header | {"shape": [0]},
            "names": lambda header: header | {"buffer_names": ["payload"]},
            **{f"no {key}": lambda header, key=key: {k: v for k, v in header.items() if k != key}
               for key in ("buffer_names", "compress_method", "dtype", "header", "shape")}}
        for name, change in cases.items():
            with self.subTest(case=name):
                self.write(with_header(good, change))
                self.assertEqual(self.judge(name), "fault")
        self.write(with_header(good, lambda header: json.dumps(header, indent=3).encode() + b"\n"))
        self.assertEqual(self.judge(), "harmless")

    def test_claims_of_size(self):
        """A small file that claims a tensor of tebibytes takes neither memory nor disk."""
        good = {name: value for name, value in self.stored.items() if name.startswith("b.")}
        self.source = self.file_of({"b": self.tensors["b"]})
        for elements, tile in ((1 << 46, 1 << 30), (1 << 40, 1)):
            with self.subTest(elements=elements, tile=tile):
                tiles = -(-elements // tile)
                stored = with_header(good, lambda header: header | {"shape": [elements], "dtype": "uint8"})
                layout = np.array([tile, 9, 1, elements], "<i8").tobytes()
                table = np.array([7 | 512 << 8] * 512, "<u4").tobytes()  # one symbol
                num = min(tiles, 1 << 17)
                stored |= {f"b{PREFIX}buffers.payload": ("U16", [0], b""), f"b{PREFIX}buffers.lane_modes": ("U8", [1], b"\0"),
                           f"b{PREFIX}buffers.layout": ("I64", [4], layout),
                           f"b{PREFIX}buffers.decode_tables": ("U32", [1, 512], table),
                           f"b{PREFIX}buffers.offsets": ("U32", [num + 1], bytes(4 * (num + 1))),
                           f"b{PREFIX}buffers.states": ("U32", [num, 32], np.full(32 * num, 1 << 15, "<u4").tobytes())}
                self.write(stored)
                back = self.work / "back.safetensors"
                done, peak = run_measured("decompress", self.path, "-o", back)
                self.assertIn(done.returncode, (CORRUPT, IMPOSSIBLE), done.stderr)
                self.assertFalse(back.exists())
                self.assertLess(peak, 400, done.stderr)
                back.unlink(missing_ok=True)

    def test_offsets_that_lie(self):
        name = f"a{PREFIX}buffers.offsets"
        dtype, shape, content = self.stored[name]
        offsets = np.frombuffer(content, "<u4")
        random = np.random.Generator(np.random.PCG64(SEED))
        for case in range(20):
            bad = offsets.copy()
            which = random.integers(0, len(bad), 1 + case % 3)
            bad[which] = random.choice([0, 1, 0xFFFFFFFF, 0x80000000, int(offsets[-1]), int(random.integers(0, offsets[-1]))], len(which))
            if (bad == offsets).all():
                continue
            with self.subTest(case=case, seed=SEED):
                self.write({**self.stored, name: (dtype, shape, bad.tobytes())})
                self.assertEqual(self.judge(), "fault")

    def test_parts_in_several_files(self):
        """Buffers and header of a tensor need not lie together."""
        folder = self.work / "folder"
        folder.mkdir()
        for number, name in enumerate(self.stored):
            (folder / f"part{number}.safetensors").write_bytes(safetensors_bytes({name: self.stored[name]}))
        self.assert_done(run("verify", folder, "--source", self.source))
        back = self.work / "back"
        self.assert_done(run("decompress", folder, "-o", back))
        got = {}
        for path in back.iterdir():
            got |= files.read_file(path)[0]
        self.assertEqual(got, self.tensors)

    def test_raw_containers(self):
        """Of any dtype that has a name in PyTorch; the package itself makes them on request."""
        data = np.arange(6, dtype="<f8").tobytes()
        header = {"buffer_names": ["data"], "compress_method": "raw", "dtype": "float64", "header": {"compress_method": "raw"},
                  "shape": [2, 3]}
        good = {f"d{PREFIX}header": ("U8", [0], b""), f"d{PREFIX}buffers.data": ("F64", [2, 3], data)}
        self.source = self.file_of({"d": ("F64", [2, 3], data)})

        def put(**changes):
            text = json.dumps(header | changes).encode()
            self.write({**good, f"d{PREFIX}header": ("U8", [len(text)], text)})

        put()
        self.assertEqual(self.judge(), "harmless")
        for changes in ({"shape": [3, 2]}, {"dtype": "int64"}, {"dtype": "complex128"}, {"buffer_names": []}):
            with self.subTest(changes=changes):
                put(**changes)
                self.assertEqual(self.judge(), "fault")
        text = json.dumps(header).encode()
        self.write({f"d{PREFIX}header": ("U8", [len(text)], text),
                    f"d{PREFIX}buffers.data": ("F64", [2, 3], data[:-1] + b"\x41")})
        done = run("verify", self.path, "--source", self.source, "--json")
        self.assertEqual([(failure["unit"], failure["kind"]) for failure in json.loads(done.stdout)["failures"]], [("d", "weight")])
        self.assertIn("byte 47", done.stdout)

    def test_names_that_collide(self):
        self.write({**self.stored, "a": self.tensors["a"]})
        done = run("decompress", self.path, "-o", self.work / "x.safetensors")
        self.assertEqual(done.returncode, IMPOSSIBLE, done.stderr)
        self.assertIn("twice", done.stderr)
        self.write({**self.stored, f"c{PREFIX}buffers.payload": ("U16", [1], b"ab")})
        self.assertEqual(self.judge(), "fault")


if __name__ == "__main__":
    unittest.main()
