"""compress --format tile-ans, decompress, verify, inspect, estimate on Tile-ANS: every byte of whole files.

Containers are those of tests/golden/tile_ans, made by the official code; what surrounds them is written in Python. Standard
library and numpy only.
"""
import json
import pathlib
import unittest

import numpy as np

import support
import tile_ans_files as files
from sources import SourceCase, filled, fingerprint
from support import run
from test_compress_command import CompressCase
from tile_ans_files import PREFIX, golden_cases, golden_container, golden_source, safetensors_bytes, tensor

CORRUPT, IMPOSSIBLE = 1, 2


class TileAnsCase(CompressCase):
    def compress(self, source, out, *options, **keywords):
        return run("compress", source, "-o", out, "--format", "tile-ans", *options, **keywords)

    def compressed(self, source, out, *options):
        done = self.compress(source, out, *options)
        self.assert_done(done)
        return done

    def file_of(self, tensors, name="source.safetensors", metadata=None):
        path = self.work / name
        path.write_bytes(safetensors_bytes(tensors, metadata))
        return path

    def assert_same_file(self, path, want, message=""):
        got = pathlib.Path(path).read_bytes()
        if got != want:
            both = min(len(got), len(want))
            wrong = np.flatnonzero(np.frombuffer(got[:both], np.uint8) != np.frombuffer(want[:both], np.uint8))
            self.fail(f"{message}: {len(got)} bytes, expected {len(want)}, the first other one at "
                      f"{wrong[0] if len(wrong) else both}")

    def assert_comes_back(self, stored, source, message=""):
        """Decompressed, a file or folder is the source's to the byte; the record aside."""
        back = self.work / ("back.safetensors" if stored.is_file() else "back")
        self.assert_done(run("decompress", stored, "-o", back, "--force"))
        if stored.is_file():
            self.assert_same_file(back, source.read_bytes(), message)
        else:
            self.assertEqual(support.read_tree(back), support.read_tree(source), message)


class Golden(TileAnsCase):
    def test_tensors_become_the_golden_containers(self):
        """Where they are smaller than the tensor; else the tensor stays."""
        num_compressed = 0
        for name, meta, folder in golden_cases():
            with self.subTest(case=name):
                source = golden_source(meta, folder)
                if source[0] not in files.DTYPE_RANK:
                    continue
                container = golden_container("a.weight", meta, folder)
                shrinks = source[1] != [] and meta["container"] != "raw" and files.stored_bytes(container) < len(source[2])
                path = self.file_of({"a.weight": source})
                out = self.work / "out.safetensors"
                options = ["--force", *files.options_of(meta["config"])]
                self.compressed(path, out, *options)
                self.assert_same_file(out, safetensors_bytes(container if shrinks else {"a.weight": source}), name)
                num_compressed += shrinks
                if shrinks:
                    self.assert_comes_back(out, path, name)
        self.assertGreater(num_compressed, 20)

    def test_golden_containers_come_back(self):
        """All of them, also those that are larger than the tensor, and raw ones."""
        num_checked = 0
        for name, meta, folder in golden_cases():
            with self.subTest(case=name):
                source = golden_source(meta, folder)
                path = self.file_of({"a.weight": source, "other": ("U8", [3], b"abc")})
                stored = self.file_of({**golden_container("a.weight", meta, folder), "other": ("U8", [3], b"abc")},
                                      "stored.safetensors", {"format": "pt"})
                back = self.work / "back.safetensors"
                self.assert_done(run("decompress", stored, "-o", back, "--force"))
                self.assert_same_file(back, safetensors_bytes({"a.weight": source, "other": ("U8", [3], b"abc")},
                                                              {"format": "pt"}), name)
                self.assert_done(run("verify", stored))
                self.assert_done(run("verify", stored, "--source", path))
                told = json.loads(run("inspect", stored, "--json").stdout)
                (found,) = told["containers"]
                self.assertEqual((found["name"], found["dtype"], found["shape"]), ("a.weight", source[0], source[1]))
                self.assertEqual(found["raw_container"], meta["container"] == "raw")
                if not found["raw_container"]:
                    layout = meta["layout"]
                    self.assertEqual((found["tile_elements"], found["probability_bits"], found["lanes"], found["elements"]),
                                     tuple(layout[key] for key in ("tile_elements", "probability_bits", "num_lanes", "num_elements")))
                    self.assertEqual(found["raw_lanes"], sum(meta["lane_modes"]))
                self.assertEqual(found["bytes"], meta["storage_nbytes"])
                num_checked += 1
        self.assertEqual(num_checked, 75)

    def test_golden_tensors_together(self):
        """Those of equal settings in one file, among tensors that stay."""
        for settings, cases in files.golden_groups().items():
            with self.subTest(settings=settings):
                source, want = {"n.scalar": ("F32", [], b"\0\0\x80\x3f"), "n.empty": ("BF16", [0, 7], b"")}, {}
                want |= source
                for name, meta, folder in cases:
                    given, container = golden_source(meta, folder), golden_container(name, meta, folder)
                    source[name] = given
                    shrinks = given[1] != [] and meta["container"] != "raw" and files.stored_bytes(container) < len(given[2])
                    want |= container if shrinks else {name: given}
                path, out = self.file_of(source, metadata={"b": "ü", "a": "1"}), self.work / "out.safetensors"
                self.compressed(path, out, "--force", *files.options_of(json.loads(settings)))
                self.assert_same_file(out, safetensors_bytes(want, {"b": "ü", "a": "1"}))
                self.assert_comes_back(out, path)


class Tensors(TileAnsCase):
    def test_every_dtype(self):
        """16 shrink, the others of safetensors stay."""
        tensors = {f"t.{dtype}": tensor(dtype, 20_000, seed, [100, 200]) for seed, dtype in enumerate(files.TORCH_NAMES)}
        others = {f"t.{dtype}": filled(dtype, [1000]) for dtype in files.DTYPE_BITS if dtype not in files.TORCH_NAMES}
        others = {name: (dtype, shape, bytes(len(data))) for name, (dtype, shape, data) in others.items()}
        source, out = self.file_of(tensors | others), self.work / "out.safetensors"
        self.compressed(source, out)
        stored, _ = files.read_file(out)
        self.assertEqual({name.removesuffix(PREFIX + "header") for name in stored if name.endswith("header")}, set(tensors))
        for name, (dtype, shape, _) in tensors.items():
            header = json.loads(stored[name + PREFIX + "header"][2])
            self.assertEqual((header["dtype"], header["shape"]), (files.TORCH_NAMES[dtype], shape))
        for name, content in others.items():
            self.assertEqual(stored[name], content)
        self.assert_comes_back(out, source)
        for level in ("structure", "sample", "full"):
            self.assert_done(run("verify", out, "--source", source, "--level", level))

    def test_what_stays_as_it_is(self):
        kept = {"scalar": ("F32", [], bytes(4)), "empty": ("F32", [0, 3], b""), "empty2": ("BF16", [4, 0], b""),
                "random": filled("U8", [50_000]), "tiny": ("BF16", [100], bytes(200)), "double": ("F64", [5000], bytes(40_000))}
        source, out = self.file_of(kept), self.work / "out.safetensors"
        done = self.compressed(source, out)
        self.assert_same_file(out, source.read_bytes())
        self.assertIn("no tensor would shrink", done.stderr)
        self.assert_comes_back(out, source)
        self.assert_done(run("verify", out, "--source", source))
        # Without the record it is any file.
        (self.work / "out.weightpress.json").unlink()
        self.assertEqual(run("verify", out).returncode, IMPOSSIBLE)

    def test_choice_of_tensors(self):
        tensors = {f"layers.{layer}.{name}.weight": tensor(dtype, 30_000, layer)
                   for layer in range(2) for name, dtype in (("a", "BF16"), ("b", "F32"), ("c", "I8"))}
        source = self.file_of(tensors)
        everything = set(tensors)
        for options, want in (
                ([], everything),
                (["--include", r"layers\.0\..*"], {name for name in everything if ".0." in name}),
                (["--include", r".*\.a\..*", "--include", r".*\.c\..*"], {name for name in everything if ".b." not in name}),
                (["--exclude", r"layers\.1\..*"], {name for name in everything if ".0." in name}),
                (["--include", r".*a.*", "--exclude", r"layers\.1\..*", "--exclude", r".*\.b\..*"],
                 {"layers.0.a.weight", "layers.0.c.weight"}),
                (["--exclude", "layers"], everything),  # whole names
                (["--dtype", "BF16"], {name for name in everything if ".a." in name}),
                (["--dtype", "float32,I8"], {name for name in everything if ".a." not in name}),
                (["--dtype", "F16"], set()), (["--exclude", ".*"], set())):
            with self.subTest(options=options):
                out = self.work / "out.safetensors"
                done = self.compressed(source, out, "--force", *options)
                self.assertEqual("note: no tensor of the source is chosen by --include, --exclude and --dtype" in done.stderr, not want)
                stored, _ = files.read_file(out)
                found = {name.removesuffix(PREFIX + "header") for name in stored if name.endswith(PREFIX + "header")}
                self.assertEqual(found, want)
                self.assertEqual({name for name in stored if PREFIX not in name}, everything - want)
                if want:
                    self.assert_comes_back(out, source)


class Folders(TileAnsCase):
    def model(self):
        shards = {f"model-0000{n}-of-00003.safetensors": {
            f"layers.{n}.a": tensor("BF16", 9000, n, [90, 100]), f"layers.{n}.b": tensor("F16", 40_000, n),
            f"layers.{n}.norm": tensor("F32", 30, n)} for n in (1, 2, 3)}
        return shards, files.write_folder(self.work / "model", shards, {"format": "pt"}, side_files={
            "config.json": support.CONFIG, "generation_config.json": b"{ }\n"})

    def test_shards_and_index(self):
        shards, source = self.model()
        self.compressed(source, self.out)
        self.assertEqual(sorted(support.read_tree(self.out)),
                         sorted([*shards, "config.json", "generation_config.json", "model.safetensors.index.json",
                                 "weightpress.json"]))
        stored = {name: files.read_file(self.out / name)[0] for name in shards}
        for name, tensors in shards.items():
            for tensor_name in tensors:
                small = tensor_name.endswith("norm")
                self.assertIn(tensor_name if small else f"{tensor_name}{PREFIX}header", stored[name])
            self.assert_same_file(self.out / name, safetensors_bytes(stored[name], {"format": "pt"}))
        self.assertEqual((self.out / "model.safetensors.index.json").read_text(), files.index_text(stored))
        for name in ("config.json", "generation_config.json"):
            self.assertEqual((self.out / name).read_bytes(), (source / name).read_bytes())
        self.assert_comes_back(self.out, source)
        self.assert_done(run("verify", self.out))
        self.assert_done(run("verify", self.out, "--source", source))
        record = json.loads((self.out / "weightpress.json").read_text())
        self.assertEqual(record["format"], "tile-ans")
        self.assertEqual([file["name"] for file in record["source_files"]], sorted(shards))
        fates = {entry["name"]: entry["stored"] for file in record["source_files"] for entry in file["tensors"]}
        self.assertEqual({name for name, fate in fates.items() if fate != "tile-ans"}, {f"layers.{n}.norm" for n in (1, 2, 3)})

    def test_the_index_as_source_and_another_name(self):
        shards, _ = self.model()
        source = files.write_folder(self.work / "other", shards, index="model.safetensors.index.fp16.json")
        self.compressed(source / "model.safetensors.index.fp16.json", self.out)
        self.assertIn("model.safetensors.index.fp16.json", support.read_tree(self.out))
        self.assert_comes_back(self.out, source)

    def test_no_index(self):
        one = files.write_folder(self.work / "one", {"weights.safetensors": {"a": tensor("BF16", 9000, 1)}}, index=None)
        self.compressed(one, self.out)
        self.assertEqual(sorted(support.read_tree(self.out)), ["weightpress.json", "weights.safetensors"])
        self.assert_comes_back(self.out, one)
        self.assert_fails(self.compress(self.model()[1], self.work / "x.safetensors"), IMPOSSIBLE, "name a folder", out_absent=False)

    def test_estimate_tells_what_compress_writes(self):
        _, source = self.model()
        for options in ([], ["--dtype", "F16"], ["--tile-elements", "999", "--probability-bits", "11"]):
            before = fingerprint(self.work)
            done = run("estimate", source, "--format", "tile-ans", "--json", *options)
            self.assert_done(done)
            self.assertEqual(fingerprint(self.work), before, "something was written")
            told = json.loads(done.stdout)
            report = self.work / "report.json"
            self.compressed(source, self.out, "--force", "--report", report, *options)
            tree, wrote = support.read_tree(self.out), json.loads(report.read_text())
            self.assertEqual(told["output_bytes"], sum(map(len, tree.values())))
            self.assertEqual(told["num_files"], len(tree))
            for member in ("output_bytes", "source_bytes", "units", "kept_tensors", "unit_source_bytes", "unit_output_bytes"):
                self.assertEqual(told[member], wrote[member], member)
            self.assertEqual(wrote["options"]["format"], "tile-ans")
            self.assertEqual(wrote["source_bytes"], sum(
                len(content) for name in support.read_tree(source) if name.endswith(".safetensors")
                for _, _, content in files.read_file(source / name)[0].values()))
            report.unlink()

    def test_threads_and_memory_change_no_byte(self):
        _, source = self.model()
        self.compressed(source, self.out)
        want = support.read_tree(self.out)
        for options in (["--threads", 1], ["--threads", 3, "--ram", "64M"], ["--fast"], ["--device", "cpu"]):
            with self.subTest(options=options):
                out = self.work / "again"
                self.compressed(source, out, "--force", *options)
                got = support.read_tree(out)
                if "--fast" in options:
                    self.assertIn(b'"verification": "none"', got.pop("weightpress.json"))
                self.assertEqual(got, {name: want[name] for name in got})


class Refusals(TileAnsCase):
    def setUp(self):
        super().setUp()
        self.source = self.file_of({"a": tensor("BF16", 9000, 1)})
        self.out = self.work / "out.safetensors"

    def test_options_that_mean_nothing(self):
        for options in (["--hashes"], ["--layout", "comfyui"], ["--arch", "bert"], ["--luts", "safe"], ["--luts", "compat"],
                        ["--strict-identity"], ["--keep-unencodable"], ["--cast-to-bf16"], ["--with-config"]):
            with self.subTest(options=options):
                self.assert_fails(self.compress(self.source, self.out, *options), IMPOSSIBLE, options[0], "tile-ans")
                self.assert_fails(run("estimate", self.source, "--format", "tile-ans", *options), IMPOSSIBLE, options[0])
        for options in (["--tile-elements", 4096], ["--include", "a"], ["--dtype", "BF16"], ["--raw-lane-threshold", 7]):
            with self.subTest(options=options):
                self.assert_fails(run("compress", self.source, "-o", self.out, *options), IMPOSSIBLE, "--format tile-ans")

    def test_settings_that_are_none(self):
        for options, said in ((["--tile-elements", 2**31], "2147483647|tile"), (["--probability-bits", 8], "probability"),
                              (["--probability-bits", 13], "probability"), (["--raw-lane-threshold", "8.5"], "threshold"),
                              (["--raw-lane-threshold", "nan"], "threshold"), (["--raw-lane-threshold", "-1"], "threshold"),
                              (["--tile-elements", "-1"], "--tile-elements: .* -1 "), (["--dtype", ""], "--dtype: the list is empty"),
                              (["--dtype", "F64"], "F64"), (["--dtype", "BF16,"], "dtype"), (["--include", "("], "regular expression"),
                              (["--include", "b"], "no tensor"), (["--device", "tpu"], "auto, cpu, cuda"), (["--verifier", "own"], "--verifier"),
                              (["--format", "zip"], "format"), (["--ram", "4M"], "smallest value that works")):
            with self.subTest(options=options):
                self.assert_fails(self.compress(self.source, self.out, *options), IMPOSSIBLE, said)
        self.assertFalse(pathlib.Path(f"{self.out}.partial").exists())

    def test_what_is_compressed_already(self):
        """By whatever format, with whatever definition: compress and estimate ask for the original model."""
        model = files.write_folder(self.work / "model", {"weights.safetensors": {
            f"model.layers.0.self_attn.{name}_proj.weight": tensor("BF16", 9000, seed) for seed, name in enumerate("qkvo")}}, index=None)
        definition = self.work / "layers.json"
        definition.write_text(json.dumps({"name": "layers", "layout": "transformers", "pattern_dict": {
            r"model\.layers\.\d+": [f"self_attn.{name}_proj" for name in "qkvo"]}}))
        (model / "config.json").write_text('{"model_type": "llama"}')
        folder, file, df11 = self.work / "folder", self.work / "file.safetensors", self.work / "df11"
        self.compressed(model, folder)
        self.compressed(model / "weights.safetensors", file)
        done = run("compress", model, "-o", df11, "--arch", definition, "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        again = self.work / "again"
        for source, what in ((folder, "Tile-ANS"), (file, "Tile-ANS"), (df11, "DF11")):
            said = rf"^weightpress: [^\n]*safetensors: is already {what}-compressed \(it holds [^\n]*\): give the original model\n$"
            for options in ([], ["--arch", "auto"], ["--arch", "qwen3-4b"], ["--arch", definition], ["--arch", "no-such-model"],
                            ["--format", "tile-ans"], ["--format", "tile-ans", "--include", "x.*"]):
                with self.subTest(source=source, options=options):
                    for done in (run("compress", source, "-o", again, *options), run("estimate", source, *options)):
                        self.assertEqual(done.returncode, IMPOSSIBLE)
                        self.assertRegex(done.stderr, said)
                        self.assertEqual(done.stdout, "")
                    self.assertFalse([path for path in self.work.iterdir() if path.name.startswith("again")])
            # Nor is it the source that an output is compared with.
            done = run("verify", folder, "--source", source)
            self.assertEqual(done.returncode, IMPOSSIBLE)
            self.assertRegex(done.stderr, said)

    def test_names_at_the_border(self):
        """A source with a name like a part of a container is none; the longest names leave room for what follows them."""
        odd = self.file_of({"a": tensor("BF16", 9000, 1), f"x{PREFIX}buffers.payload": ("U16", [1], b"ab")}, "odd.safetensors")
        self.assert_fails(self.compress(odd, self.out), IMPOSSIBLE, "already", "buffers.payload")
        names = {length: "n" * length for length in (4032, 4033, 4096)}
        long = self.file_of({name: tensor("BF16", 9000, 1) for name in names.values()}, "long.safetensors")
        self.compressed(long, self.out)
        stored, _ = files.read_file(self.out)
        self.assertEqual([length for length, name in names.items() if name in stored], [4033, 4096])
        self.assert_comes_back(self.out, long)

    def test_outputs_that_are_there(self):
        self.compressed(self.source, self.out)
        before = self.out.read_bytes()
        self.assert_fails(self.compress(self.source, self.out), IMPOSSIBLE, "exists already", out_absent=False)
        self.compressed(self.source, self.out, "--force", "--probability-bits", 12)
        self.assertNotEqual(self.out.read_bytes(), before)
        # A folder: replaced if it is one of ours, never if it is another model.
        folder, model = self.work / "folder", files.write_folder(
            self.work / "model", {"weights.safetensors": {"a": tensor("F32", 30_000, 1)}}, index=None)
        self.compressed(model, folder)
        self.compressed(model, folder, "--force")
        self.assert_fails(self.compress(self.source, model, "--force"), IMPOSSIBLE, "not replaced|of a DF11|source", out_absent=False)
        self.assert_fails(run("decompress", folder, "-o", folder, "--force"), IMPOSSIBLE, out_absent=False)
        self.assert_comes_back(folder, model)

    def test_what_is_not_compressed(self):
        self.assert_fails(run("decompress", self.source, "-o", self.out), IMPOSSIBLE, "holds no DF11 unit and no Tile-ANS tensor")
        self.assert_fails(run("verify", self.source), IMPOSSIBLE, "holds no DF11 units and no Tile-ANS tensors")

    def test_verify_needs(self):
        self.compressed(self.source, self.out)
        for options in (["--level", "full"], ["--level", "sample"], ["--engine", "official", "--source", self.source]):
            self.assert_fails(run("verify", self.out, *options), IMPOSSIBLE, out_absent=False)


if __name__ == "__main__":
    unittest.main()
