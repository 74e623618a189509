"""The oracle itself: entropack's Tile-ANS code over the stand-in for PyTorch makes the golden cases, which it made over PyTorch.

Then random tensors: each comes back from its container, passes the package's check, and survives a safetensors file.
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import official_entropack
import random_tensors
import torch  # the stand-in

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parents[1] / "golden" / "tile_ans"
NUM_GOLDEN = 75


def golden_cases():
    for case in json.loads((GOLDEN / "index.json").read_text())["cases"]:
        yield GOLDEN / case["name"], json.loads((GOLDEN / case["name"] / "meta.json").read_text())


def golden_files(folder):
    """The files of the container."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in ("input.bin", "meta.json")}


def reference(*arguments, requests=None, cwd=None):
    return subprocess.run([sys.executable, "-B", HERE / "reference.py", *map(str, arguments)], input=requests, cwd=cwd, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, check=False)


class GoldenCases(unittest.TestCase):
    def test_every_byte(self):
        num_cases = num_files = 0
        for folder, meta in golden_cases():
            with self.subTest(case=folder.name):
                data = (folder / "input.bin").read_bytes()
                container = official_entropack.encode(data, meta["dtype"], meta["shape"], **meta["config"])
                files, expected = official_entropack.files_of(container), golden_files(folder)
                self.assertEqual(files.keys(), expected.keys())
                for name in files:
                    self.assertTrue(files[name] == expected[name], name)
                self.assertEqual(container.compress_method, meta["container"])
                self.assertEqual(container.storage_nbytes(), meta["storage_nbytes"])
                if meta["actual_bpp"] is None:
                    self.assertRaises(ZeroDivisionError, lambda: container.actual_bpp)
                else:
                    self.assertEqual(container.actual_bpp, meta["actual_bpp"])
                shapes = {name: list(tensor.shape) for name, tensor in container.buffers.items()}
                self.assertEqual(shapes, meta["buffer_shapes"])
                num_cases, num_files = num_cases + 1, num_files + len(files)
        print(f"{num_cases} golden cases, {num_files} files")
        self.assertEqual(num_cases, NUM_GOLDEN)

    def test_decoding_and_checking(self):
        for folder, meta in golden_cases():
            with self.subTest(case=folder.name):
                container = official_entropack.read_folder(folder)
                official_entropack.validate(container)
                self.assertTrue(official_entropack.decode(container) == (folder / "input.bin").read_bytes())
                self.assertEqual([list(container.shape), str(container.dtype)], [meta["shape"], f"torch.{meta['dtype']}"])
                self.assertEqual(official_entropack.header_of(container), golden_files(folder)["header.json"])

    def test_as_a_program(self):
        names = [folder.name for folder, _ in golden_cases()]
        with tempfile.TemporaryDirectory() as work:
            requests = []
            for folder, meta in golden_cases():
                requests += [
                    {"op": "encode", "input": str(folder / "input.bin"), "dtype": meta["dtype"], "shape": meta["shape"],
                     **meta["config"], "output": folder.name},
                    {"op": "validate", "input": folder.name},
                    {"op": "decode", "input": folder.name, "output": f"{folder.name}.bin"}]
            requests += [
                {"op": "pack", "tensors": {name: name for name in names}, "output": "all.safetensors", "metadata": {"a": "b"}},
                {"op": "unpack", "input": "all.safetensors", "output": "again"},
                {"op": "encode", "input": str(GOLDEN / names[0] / "input.bin"), "dtype": "int8", "shape": [1], "output": "x"}]
            done = reference("batch", requests="\n".join(map(json.dumps, requests)), cwd=work)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            *answers, unpacked, wrong = map(json.loads, done.stdout.splitlines())
            self.assertEqual(len(answers), 3 * NUM_GOLDEN + 1)
            for request, answer in zip(requests, answers):
                self.assertTrue(answer["ok"], (request, answer))
            self.assertEqual((unpacked["tensors"], unpacked["others"]), (sorted(names), []))
            self.assertRegex(wrong["error"], "^RuntimeError: ")
            for name in names:
                decoded = (pathlib.Path(work) / f"{name}.bin").read_bytes()
                self.assertTrue(decoded == (GOLDEN / name / "input.bin").read_bytes(), name)
                for folder in (name, f"again/{name}"):
                    self.assertTrue(golden_files(pathlib.Path(work) / folder) == golden_files(GOLDEN / name), folder)

    def test_as_commands(self):
        with tempfile.TemporaryDirectory() as work:
            folder = GOLDEN / "fp32_t1000_b10"
            meta = json.loads((folder / "meta.json").read_text())
            self.assertEqual((meta["config"]["tile_elements"], meta["config"]["probability_bits"]), (1000, 10))
            shape, threshold = ",".join(map(str, meta["shape"])), meta["config"]["raw_lane_threshold"]
            done = reference("encode", folder / "input.bin", "--dtype", meta["dtype"], "--shape", shape, "--tile-elements", 1000,
                             "--probability-bits", 10, "--raw-lane-threshold", threshold, "-o", "one", cwd=work)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertTrue(golden_files(pathlib.Path(work) / "one") == golden_files(folder))
            for arguments in (("validate", "one"), ("decode", "one", "-o", "one.bin"), ("pack", "one", "-o", "one.safetensors"),
                              ("unpack", "one.safetensors", "-o", "unpacked")):
                done = reference(*arguments, cwd=work)
                self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
            self.assertTrue((pathlib.Path(work) / "one.bin").read_bytes() == (folder / "input.bin").read_bytes())
            self.assertTrue(golden_files(pathlib.Path(work) / "unpacked" / "one") == golden_files(folder))
            (pathlib.Path(work) / "one" / "lane_modes.u8").write_bytes(b"\2" * 4)
            done = reference("validate", "one", cwd=work)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("unknown codec mode", done.stderr)


class RandomTensors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {random_tensors.SEED}")
        cls.cases, cls.containers, cls.seen = {}, {}, collections.Counter()
        encoding = decoding = size = 0.0
        for case in random_tensors.make_cases():
            start = time.perf_counter()
            container = official_entropack.encode(case.data, case.dtype, case.shape, **case.settings)
            between = time.perf_counter()
            decoded = official_entropack.decode(container)
            encoding, decoding = encoding + between - start, decoding + time.perf_counter() - between
            size += len(case.data)
            if decoded != case.data:
                raise AssertionError(f"{case.name} does not come back")
            official_entropack.validate(container)
            cls.cases[case.name], cls.containers[case.name] = case, container
            cls.count(case, container)
        print(f"{len(cls.cases)} tensors, {size:.0f} bytes: encoding {encoding:.1f} s, decoding {decoding:.1f} s")
        print(dict(sorted(cls.seen.items())))

    @classmethod
    def count(cls, case, container):
        cls.seen[case.dtype] += 1
        cls.seen[container.compress_method] += 1
        if container.compress_method == "raw":
            return
        tile, bits, num_lanes, num_elements = container.buffers["layout"].tolist()
        modes = container.buffers["lane_modes"].tolist()
        tables = container.buffers["decode_tables"].numpy()
        asked = case.settings.get("probability_bits", 0)
        cls.seen[f"{'chosen' if asked == 0 else 'given'} bits {bits}"] += 1
        cls.seen["ANS lanes"] += modes.count(0)
        cls.seen["raw lanes"] += modes.count(1)
        cls.seen["lanes of both modes"] += 0 < sum(modes) < num_lanes
        cls.seen["lanes of one symbol"] += sum(len(np.unique(table & 0xFF)) == 1 for table in tables)
        cls.seen["lanes of 256 symbols"] += sum(len(np.unique(table & 0xFF)) == 256 for table in tables)
        cls.seen["automatic tiles"] += case.settings.get("tile_elements", 0) == 0
        cls.seen["tiles of 1"] += tile == 1
        cls.seen["odd tiles"] += tile % 2 == 1 and 1 < tile < num_elements
        cls.seen["tiles larger than the tensor"] += tile > num_elements
        cls.seen["more than one tile"] += num_elements > tile
        cls.seen["threshold at or below 0"] += min(case.settings.get("raw_lane_threshold", 7.9), 8 - 1024 / tile) <= 0
        cls.seen["scalars"] += case.shape == []
        cls.seen["several dimensions"] += len(case.shape) > 1

    def test_each_kind_is_there(self):
        self.assertEqual(len(self.cases), random_tensors.COUNT)
        self.assertEqual(set(random_tensors.ITEM_BYTES), set(official_entropack.DTYPES))
        for dtype in official_entropack.DTYPES:
            self.assertGreaterEqual(self.seen[dtype], 30, dtype)
        for kind, least in {"chosen bits 9": 50, "chosen bits 10": 5, "chosen bits 11": 2, "chosen bits 12": 1,
                            "given bits 9": 20, "given bits 10": 20, "given bits 11": 20, "given bits 12": 20,
                            "ANS lanes": 400, "raw lanes": 200, "lanes of both modes": 20, "lanes of one symbol": 50,
                            "lanes of 256 symbols": 50, "automatic tiles": 80, "tiles of 1": 10, "odd tiles": 50,
                            "tiles larger than the tensor": 80, "more than one tile": 100, "threshold at or below 0": 50,
                            "scalars": 1, "several dimensions": 100, "raw": 3}.items():
            self.assertGreaterEqual(self.seen[kind], least, kind)

    def test_the_automatic_tile(self):
        *_, at_most, more = self.containers.values()
        self.assertEqual([container.buffers["layout"].tolist()[0] for container in (at_most, more)], [4096, 8192])

    def test_through_a_safetensors_file(self):
        with tempfile.TemporaryDirectory() as work:
            path = pathlib.Path(work) / "all.safetensors"
            official_entropack.write_safetensors(path, self.containers)
            containers, others = official_entropack.read_safetensors(path)
        self.assertEqual((containers.keys(), others), (self.containers.keys(), {}))
        for name, container in containers.items():
            shapes = {key: tensor.shape for key, tensor in container.buffers.items()}
            self.assertEqual(shapes, {key: tensor.shape for key, tensor in self.containers[name].buffers.items()}, name)
            self.assertTrue(official_entropack.files_of(container) == official_entropack.files_of(self.containers[name]), name)

    def test_the_same_seed_gives_the_same_tensors(self):
        for case, again in zip(self.cases.values(), random_tensors.make_cases(count=random_tensors.COUNT)):
            self.assertTrue(case == again, case.name)
        first, second = (list(random_tensors.make_cases(seed, 20)) for seed in (1, 2))
        self.assertNotEqual(first, second)


class Refusals(unittest.TestCase):
    """That the package refuses these shows that its checks work over the stand-in."""

    def setUp(self):
        data = np.random.Generator(np.random.PCG64(3)).geometric(0.1, 1000).astype("<u2")
        data[::2] += 256 * (np.arange(500) % 251).astype("<u2")
        self.container = official_entropack.encode(data.tobytes(), "int16", [10, 100], tile_elements=99, probability_bits=9,
                                                   raw_lane_threshold=3.0)
        self.data = data.tobytes()
        self.assertEqual(self.container.buffers["lane_modes"].tolist(), [1, 1])
        self.mixed = official_entropack.encode(self.data, "int16", [10, 100], tile_elements=1500, probability_bits=9)

    def test_settings(self):
        for error, settings in ((TypeError, {"tile_elements": True}), (TypeError, {"tile_elements": 1.0}),
                                (ValueError, {"tile_elements": -1}), (ValueError, {"tile_elements": 2**31}),
                                (ValueError, {"probability_bits": 8}),
                                (ValueError, {"probability_bits": 13}), (TypeError, {"raw_lane_threshold": True}),
                                (ValueError, {"raw_lane_threshold": 8.01}), (ValueError, {"raw_lane_threshold": float("nan")})):
            with self.subTest(settings=settings), self.assertRaises(error):
                official_entropack.encode(b"\1\2", "int16", [1], **settings)

    def test_dtypes(self):
        for dtype, item in (("float64", 8), ("complex64", 8)):
            with self.subTest(dtype=dtype), self.assertRaisesRegex(RuntimeError, "is not supported"):
                official_entropack.encode(bytes(item), dtype, [1])
            with self.subTest(dtype=dtype), self.assertRaisesRegex(ValueError, "does not support format"):
                self.changed(header=lambda text: text.replace("int16", dtype))

    def changed(self, container=None, header=None, **buffers):
        """The container with a changed header text or changed buffers, through the package's loader."""
        container = self.container if container is None else container
        text = official_entropack.header_of(container).decode()
        told = header(text) if header else text
        self.assertEqual(header is None, told == text)
        return official_entropack.load(told.encode(), {**container.buffers, **buffers})

    def test_headers(self):
        for message, change in (("is invalid", lambda text: text[:-1]),
                                ("missing fields", lambda text: text.replace('"shape"', '"form"')),
                                ("Unsupported serialized torch dtype", lambda text: text.replace("int16", "int17")),
                                ("Unknown scheme", lambda text: text.replace("tile_ans", "tile_bns")),
                                ("is missing", lambda text: text.replace('"offsets"', '"offset"')),
                                ("must be", lambda text: text.replace(',"layout"', ""))):
            with self.subTest(message=message), self.assertRaisesRegex((ValueError, KeyError), message):
                self.changed(header=change)

    def test_buffers_that_the_full_check_finds(self):
        offsets, payload = (self.container.buffers[name].numpy() for name in ("offsets", "payload"))
        falling, first, short = offsets.copy(), offsets.copy(), offsets[:-1].copy()
        falling[3] = falling[1]
        first[0] = 1
        uneven = offsets.copy()
        uneven[1] += 1
        tables = self.container.buffers["decode_tables"].numpy()
        layout = self.container.buffers["layout"].tolist()
        for message, change in (
                ("monotone", {"offsets": falling}), ("endpoints", {"offsets": first}), ("offsets length", {"offsets": short}),
                ("raw lane payload length", {"offsets": uneven}), ("endpoints", {"payload": payload[1:].copy()}),
                ("unknown codec mode", {"lane_modes": np.array([1, 2], np.uint8)}),
                ("lane_modes length", {"lane_modes": np.ones(3, np.uint8)}),
                ("states shape", {"lane_modes": np.array([1, 0], np.uint8)}),
                ("decode_tables shape", {"decode_tables": tables[:1].copy()}),
                ("must be 1D torch.uint32", {"offsets": offsets.astype(np.int32)}),
                ("must be 2D", {"states": np.zeros(0, np.uint32)}), ("must be contiguous", {"decode_tables": tables.T}),
                ("must be int64", {"layout": np.array(layout[:3])}),
                ("invalid tile_ans layout", {"layout": np.array([0, *layout[1:]])}),
                ("byte lanes", {"layout": np.array([*layout[:2], 4, layout[3]])}),
                ("does not match 999 elements", {"layout": np.array([*layout[:3], 999])})):
            with self.subTest(message=message):
                container = self.changed(**{name: torch.from_numpy(array) for name, array in change.items()})
                self.assertRaisesRegex(ValueError, message, official_entropack.validate, container)
        official_entropack.validate(self.changed())
        self.assertRaisesRegex(ValueError, "does not match 1000 elements", official_entropack.validate,
                               self.changed(header=lambda text: text.replace("[10,100]", "[10,101]")))

    def test_streams_that_the_decoder_finds(self):
        self.assertIn(0, self.mixed.buffers["lane_modes"].tolist())
        payload, offsets = (self.mixed.buffers[name].numpy() for name in ("payload", "offsets"))
        lane = self.mixed.buffers["lane_modes"].tolist().index(0)
        stream = payload[offsets[lane] : offsets[lane + 1]]
        self.assertGreater(len(stream), 100)
        for message, part in (("truncated", stream[len(stream) // 2:]), ("unread words", np.concatenate([stream[:1], stream]))):
            words = np.concatenate([payload[: offsets[lane]], part, payload[offsets[lane + 1] :]])
            moved = offsets.astype(np.int64)
            moved[lane + 1 :] += len(words) - len(payload)
            container = self.changed(self.mixed, payload=torch.from_numpy(words),
                                     offsets=torch.from_numpy(moved.astype(np.uint32)))
            official_entropack.validate(container)
            with self.subTest(message=message):
                self.assertRaisesRegex(ValueError, message, official_entropack.decode, container)
        self.assertEqual(official_entropack.decode(self.changed(self.mixed)), self.data)


class StandIn(unittest.TestCase):
    def test_conversion(self):
        words = torch.tensor([1, 2**32 - 1], dtype=torch.uint32)
        self.assertEqual((words.to(torch.int64) - 2).tolist(), [-1, 2**32 - 3])
        self.assertIs(words.to(torch.uint32), words)

    def test_views(self):
        words = torch.from_numpy(np.arange(12, dtype=np.uint8).reshape(3, 4))
        self.assertEqual(words.view(torch.uint16).tolist(), [[0x0100, 0x0302], [0x0504, 0x0706], [0x0908, 0x0B0A]])
        self.assertEqual(list(words.view(torch.bfloat16).shape), [3, 2])
        for wrong in (lambda: words.view(torch.int64), lambda: words.reshape(5),
                      lambda: torch.tensor(1, dtype=torch.int8).view(torch.int16)):
            self.assertRaises(RuntimeError, wrong)

    def test_no_numbers_of_types_that_numpy_lacks(self):
        words = official_entropack.tensor_of(bytes(4), "bfloat16", [2])
        for use in (lambda: words == 0, words.numpy, words.tolist, lambda: words.to(torch.float32),
                    lambda: torch.tensor([1], dtype=torch.int8).to(torch.float8_e5m2)):
            self.assertRaises(TypeError, use)


if __name__ == "__main__":
    unittest.main(verbosity=2)
