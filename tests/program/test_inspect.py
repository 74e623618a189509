"""`weightpress inspect`: what it says of outputs and sources, against numbers that the slow model and numpy make.

Standard library and numpy only.
"""
import json
import os
import random
import shutil

import numpy as np

import support
from support import BUFFERS, bf16, compress, mentions, reference, run, words
from test_compress_command import CONTROL_CHARACTERS, CompressCase, small_tensors, unittest

UNITS = {"embed": ["embed.weight"], "layers.0": ["layers.0.a.weight", "layers.0.b.weight"]}
RECORD = {
    "weightpress": "0.3.0", "format": "df11", "layout": "transformers",
    "definition": {"name": "small", "format_version": "0.5.0", "pattern_dict": {"embed": [], r"layers\.\d+": ["a", "b"]}},
    "options": {"luts": "compat"},
    "source_files": [{"name": "model.safetensors", "metadata": {"format": "pt"}, "tensors": [
        {"name": "m.embed.weight", "dtype": "BF16", "shape": [60, 100], "unit": "embed", "renamed": "embed.weight"},
        {"name": "layers.0.a.weight", "dtype": "BF16", "shape": [30, 100], "unit": "layers.0"},
        {"name": "layers.0.b.weight", "dtype": "BF16", "shape": [20, 100], "unit": "layers.0"},
        {"name": "m.norm.weight", "dtype": "F32", "shape": [25], "renamed": "norm.weight"},
        {"name": "scalar", "dtype": "I64", "shape": []},
        {"name": "inv_freq", "dtype": "F32", "shape": [4], "dropped": "by a rule"}]}],
    "tied_units": [],
    "kept_units": [{"unit": "layers.1", "reason": "tensor 'layers.1.a.weight' holds Inf at weight 7"}],
    "own_coding": [{"unit": "embed", "reasons": ["one reason", "another \x1b[31m reason"]}],
    "verification": "none"}


def expected_unit(name, parts):
    """What is to be said of a unit that is made of these arrays."""
    unit, _ = reference.encode_unit(np.concatenate(parts))
    lengths = unit["luts"][-1][unit["luts"][-1] > 0]
    size = sum(len(np.asarray(buffer).reshape(-1)) for buffer in unit.values()) + 8 * (len(parts) - 1)
    weights = sum(map(len, parts))
    return {"name": name, "weights": weights, "tensors": len(parts), "bytes": size, "bits_per_weight": 8 * size / weights,
            "tables": len(unit["luts"]) - 1, "shortest_code": int(lengths.min()), "longest_code": int(lengths.max()),
            "exponents": len(lengths)}


def array_of(tensor):
    return np.frombuffer(tensor[2], "<u2")


def stored(path):
    """The tensors of a file that may be written again."""
    return {name: (dtype, shape, bytes(data)) for name, (dtype, shape, data) in reference.read_safetensors(path)[0].items()}


def by_dtype(tensors):
    """{dtype: counts} of {name: (dtype, shape, bytes)}"""
    totals = {}
    for dtype, shape, data in tensors.values():
        total = totals.setdefault(dtype, {"tensors": 0, "elements": 0, "bytes": 0})
        total["tensors"] += 1
        total["elements"] += int(np.prod(shape, dtype=np.int64))
        total["bytes"] += len(data)
    return totals


class InspectCase(CompressCase):
    def inspect(self, path):
        """The JSON, and the text for people, both without complaint."""
        done = run("inspect", path, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.endswith("}\n") and done.stdout.isascii())
        text = run("inspect", path)
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertIsNone(CONTROL_CHARACTERS.search(text.stdout + text.stderr), repr(text.stdout + text.stderr))
        self.assertFalse(mentions(text.stdout, r"\bTODO\b|stub|not (yet )?implemented"), text.stdout)
        report = json.loads(done.stdout)
        self.assertEqual(text.stderr, "".join(f"note: {note}\n" for note in report["notes"]))
        self.assertEqual(report["path"], str(path))
        return report, text.stdout

    def compressed(self, changes=None, definition=None, **options):
        """A DF11 folder without a record of its own."""
        self.assert_done(compress(self.model(changes, **options), self.out, definition or self.definition))
        (self.out / "weightpress.json").unlink(missing_ok=True)
        return self.out

    def record(self, path=None, **changes):
        (path or self.out / "weightpress.json").write_text(json.dumps({**RECORD, **changes}))


class Outputs(InspectCase):
    def test_everything_about_a_small_output(self):
        report, text = self.inspect(self.compressed())
        tensors = small_tensors()
        units = [expected_unit(name, [array_of(tensors[part]) for part in parts]) for name, parts in UNITS.items()]
        kept = {name: tensor for name, tensor in tensors.items() if name not in sum(UNITS.values(), [])}
        kept_bytes = sum(len(tensor[2]) for tensor in kept.values())
        weights, unit_bytes = 11000, sum(unit["bytes"] for unit in units)
        files = []
        for path in sorted(self.out.glob("*.safetensors")):
            content, metadata = reference.read_safetensors(path)
            files.append({"name": path.name, "bytes": path.stat().st_size, "tensors": len(content),
                          "metadata": metadata is not None})
        expected = {
            "path": str(self.out), "kind": "df11", "files": files, "file_bytes": sum(file["bytes"] for file in files),
            "units": units, "weights": weights, "unit_bytes": unit_bytes, "bits_per_weight": 8 * unit_bytes / weights,
            "kept": by_dtype(kept), "kept_bytes": kept_bytes, "bf16_bytes": 2 * weights + kept_bytes,
            "ratio": (unit_bytes + kept_bytes) / (2 * weights + kept_bytes), "record": None, "kept_units": [],
            "own_coding": [], "config": {"version": "0.5.0", "patterns": 2}, "notes": []}
        self.assertEqual(report, expected)
        self.assertEqual(list(report), list(expected))
        self.assertEqual(list(report["units"][0]), list(units[0]))
        for unit in units:
            self.assertRegex(text, rf"(?m)^ *{unit['tensors']} +{unit['weights']:,} .* {unit['bits_per_weight']:.2f} +"
                                   rf"{unit['tables']} +{unit['shortest_code']}-{unit['longest_code']} +{unit['exponents']}"
                                   rf"  {unit['name']}$")
        self.assertTrue(mentions(text, "2 units made of 3 tensors", "11,000 in", rf"{100 * report['ratio']:.2f}%",
                                 "version 0.5.0, 2 patterns"), text)

    def test_any_grouping_of_files(self):
        whole, _ = self.inspect(self.compressed())
        tensors = reference.load_all(str(self.out))
        chance = random.Random(5)
        for count in (1, 4):
            folder = self.work / f"grouped_{count}"
            folder.mkdir()
            groups = [{} for _ in range(count)]
            for name, tensor in tensors.items():
                chance.choice(groups)[name] = tensor
            for index, group in enumerate(groups):
                reference.write_safetensors(folder / f"{index}.safetensors", group)
            # Loaders of DF11 take every file: an index that was copied from the source says nothing.
            (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "gone.safetensors"}}')
            report, _ = self.inspect(folder)
            self.assertEqual([report[key] for key in ("units", "kept", "ratio")],
                             [whole[key] for key in ("units", "kept", "ratio")])
            self.assertEqual((len(report["files"]), report["config"]), (count, None))
        report, _ = self.inspect(self.work / "grouped_1" / "0.safetensors")
        self.assertEqual(report["units"], whole["units"])

    def test_one_shard(self):
        self.compressed()
        report, text = self.inspect(self.out / "layers_0.safetensors")
        self.assertEqual([unit["name"] for unit in report["units"]], ["layers.0"])
        self.assertEqual(report["kept"], {"BF16": {"tensors": 2, "elements": 130, "bytes": 260}})
        self.assertTrue(mentions(text, "1 unit made of 2 tensors"), text)

    def test_units_of_the_official_compressor(self):
        tensors, expected = {}, {}
        for folder in sorted(path.parent for path in support.GOLDEN.glob("*/weights.bf16")):
            meta = json.loads((folder / "meta.json").read_text())
            luts = folder / ("luts.u8" if (folder / "luts.u8").exists() else "luts_safe.u8")
            unit = {"luts": luts, "split_positions": folder / "split_positions.i64",
                    "output_positions": folder / "output_positions.u32"}
            size = 0
            for buffer in BUFFERS:
                data = unit.get(buffer, folder / f"{buffer}.u8").read_bytes()
                dtype = "I64" if buffer == "split_positions" else "U8"
                shape = {"luts": [len(data) // 256, 256], "split_positions": [len(data) // 8]}.get(buffer, [len(data)])
                tensors[f"golden.{folder.name}.{buffer}"] = (dtype, shape, data)
                size += len(data)
            lengths = [length for symbol, (length, _) in meta["code_table"].items() if symbol != "EOF"]
            expected[f"golden.{folder.name}"] = {
                "weights": meta["n_weights"], "tensors": len(meta["sizes"]), "bytes": size,
                "tables": luts.stat().st_size // 256 - 1, "shortest_code": min(lengths), "longest_code": max(lengths),
                "exponents": len(lengths)}
        reference.write_safetensors(self.work / "golden.safetensors", tensors)
        report, _ = self.inspect(self.work / "golden.safetensors")
        self.assertEqual(len(report["units"]), len(expected))
        for unit in report["units"]:
            with self.subTest(unit=unit["name"]):
                self.assertAlmostEqual(unit.pop("bits_per_weight"), 8 * unit["bytes"] / unit["weights"])
                self.assertEqual(unit, {"name": unit["name"], **expected[unit["name"]]})

    def test_tables_of_other_makers(self):
        self.compressed()
        path = self.out / "embed.safetensors"
        tensors = stored(path)
        luts = tensors["embed.luts"][2]
        for tables in (1, 17, 18):  # the index does not follow them
            tensors["embed.luts"] = ("U8", [tables + 1, 256], bytes(256 * tables) + luts[-256:])
            reference.write_safetensors(path, tensors)
            report, _ = self.inspect(path)
            self.assertEqual(report["units"][0]["tables"], tables)
            self.assertEqual(len(report["notes"]), int(tables > 17))
        self.assertTrue(mentions(report["notes"][0], "'embed'", "18 tables", "no use"))

    def many_units(self, count):
        tensors = {"head.weight": bf16(words(1, 600))}
        for index in range(count):
            tensors[f"layers.{index}.a.weight"] = bf16(words(index, 500 + index))
            tensors[f"layers.{index}.b.weight"] = bf16(words(index, 400))
        model = support.write_model(self.work / "many", tensors)
        definition = support.write_definition(self.work / "many.json", {r"head": [], r"layers\.\d+": ["a", "b"]})
        self.assert_done(compress(model, self.out, definition))
        return self.inspect(self.out)

    def test_a_line_a_unit_and_numbers_are_counted(self):
        report, text = self.many_units(12)
        names = ["head"] + [f"layers.{index}" for index in range(12)]
        self.assertEqual([unit["name"] for unit in report["units"]], names)
        self.assertEqual([line.split()[-1] for line in text.splitlines()[-13:]], names)

    def test_many_units_alike_share_a_line(self):
        report, text = self.many_units(40)
        self.assertEqual(len(report["units"]), 41)
        last = text.splitlines()[-1].split()
        layers = report["units"][1:]
        self.assertEqual((last[0], last[1], last[2], last[-1]),
                         ("40", "2", f"{sum(unit['weights'] for unit in layers):,}", "layers.{0-39}"))
        bits = [unit["bits_per_weight"] for unit in layers]
        self.assertIn(f" {min(bits):.2f}-{max(bits):.2f} ", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        self.assertLessEqual(len(text.splitlines()), 12)

    def test_names_reach_no_terminal_raw(self):
        name = "u\x1b[31m\r\x07\x9b\u202ex"
        definition = support.write_definition(self.work / "rough.json", {r"(?s)u.*": []})
        model = support.write_model(self.work / "rough", {f"{name}.weight": bf16(words(1, 500)), "n\n.w": bf16(words(2, 5))})
        if compress(model, self.out, definition).returncode != 0:  # a name for no file: made by hand
            self.compressed()
            unit = stored(self.out / "embed.safetensors")
            shutil.rmtree(self.out)
            self.out.mkdir()
            reference.write_safetensors(self.out / "x.safetensors",
                                        {key.replace("embed", name): tensor for key, tensor in unit.items()})
        report, text = self.inspect(self.out)
        self.assertEqual([unit["name"] for unit in report["units"]], [name])
        self.assertIn("u\\x1b[31m", text)


class SideFiles(InspectCase):
    def test_what_the_record_tells(self):
        self.compressed()
        self.record()
        report, text = self.inspect(self.out)
        self.assertEqual(report["record"], {"file": "weightpress.json", "weightpress": "0.3.0", "definition": "small",
                                            "format_version": "0.5.0", "patterns": 2, "layout": "transformers"})
        self.assertEqual((report["kept_units"], report["own_coding"]), (RECORD["kept_units"], RECORD["own_coding"]))
        self.assertEqual(report["notes"], [])
        self.assertTrue(mentions(text, "small, layout transformers", r"layers\.1: tensor 'layers\.1\.a\.weight' holds Inf",
                                 r"embed: one reason; another"), text)

    def test_the_record_of_a_file(self):
        self.compressed()
        path = self.work / "single.safetensors"
        reference.write_safetensors(path, reference.load_all(str(self.out)))
        self.assertIsNone(self.inspect(path)[0]["record"])
        self.record(self.work / "single.weightpress.json", layout="comfyui")
        report, _ = self.inspect(path)
        self.assertEqual((report["record"]["file"], report["record"]["layout"]), ("single.weightpress.json", "comfyui"))
        self.assertEqual(report["config"], None)

    def test_a_shard_takes_the_record_of_its_folder(self):
        self.compressed()
        self.record()
        report, _ = self.inspect(self.out / "embed.safetensors")
        self.assertEqual((report["record"]["definition"], report["notes"]), ("small", []))

    def test_what_the_record_lists_and_is_not_there(self):
        self.compressed()
        self.record()
        (self.out / "layers_0.safetensors").unlink()
        (self.out / "model.safetensors").unlink()
        report, _ = self.inspect(self.out)
        self.assertEqual(len(report["notes"]), 2)
        self.assertTrue(mentions(report["notes"][0], r"weightpress\.json", "unit 'layers.0',", "do not hold"))
        self.assertTrue(mentions(report["notes"][1], r"weightpress\.json", "'norm.weight' and 1 more"))

    def test_a_record_that_is_none(self):
        self.compressed()
        whole, _ = self.inspect(self.out)
        path = self.out / "weightpress.json"
        changed = json.dumps({**RECORD, "kept_units": 7})
        for content in ("", "{", "[]", "{}", '{"weightpress": 1}', changed, "[" * 100_000, "\xff\0"):
            with self.subTest(content=content[:20]):
                path.write_text(content)
                report, _ = self.inspect(self.out)
                (note,) = report.pop("notes")
                self.assertTrue(mentions(note, r"weightpress\.json", "left out"), note)
                self.assertEqual({**report, "notes": []}, whole)
        path.unlink()
        path.mkdir()
        self.assertEqual(len(self.inspect(self.out)[0]["notes"]), 1)

    def test_config_json(self):
        self.compressed()
        path = self.out / "config.json"
        for content, notes in (('{"model_type": "bert"}', 0), ("{", 1), ('{"dfloat11_config": 1}', 1),
                               ('{"dfloat11_config": {"version": 1, "pattern_dict": {}}}', 1)):
            with self.subTest(content=content):
                path.write_text(content)
                report, _ = self.inspect(self.out)
                self.assertEqual((report["config"], len(report["notes"])), (None, notes))
        path.write_text('{"dfloat11_config": {"version": "0.3.1", "pattern_dict": {"a": [], "b": [], "c": []}}}')
        report, text = self.inspect(self.out)
        self.assertEqual(report["config"], {"version": "0.3.1", "patterns": 3})
        self.assertTrue(mentions(text, "version 0.3.1, 3 patterns"), text)


class Sources(InspectCase):
    def test_a_source(self):
        model = self.model({"half": ("F16", [2, 3], bytes(12))})
        report, text = self.inspect(model)
        size = (model / "model.safetensors").stat().st_size
        tensors = {**small_tensors(), "half": ("F16", [2, 3], bytes(12))}
        self.assertEqual(report.pop("source", "absent") == "absent", False)
        self.assertEqual(report, {
            "path": str(model), "kind": "safetensors",
            "files": [{"name": "model.safetensors", "bytes": size, "tensors": 9, "metadata": True}], "file_bytes": size,
            "tensors": by_dtype(tensors), "tensor_bytes": sum(len(tensor[2]) for tensor in tensors.values()), "notes": []})
        self.assertEqual(list(report["tensors"]), ["BF16", "F32", "F16", "I64"])
        self.assertTrue(mentions(text, "not compressed, 9 tensors", "with metadata", r"not BF16 +4 tensors, 120 B",
                                 r"5 +11,130 +22\.3 kB  BF16\n"), text)

    def test_shards_and_an_index(self):
        self.model(name="sharded")
        model = self.work / "sharded"
        (model / "model.safetensors").unlink()
        tensors, weight_map = small_tensors(), {}
        for index, names in enumerate((sorted(tensors)[:3], sorted(tensors)[3:])):
            file = f"model-0000{index + 1}-of-00002.safetensors"
            part = {name: tensors[name] for name in names}
            reference.write_safetensors(model / file, part, {"format": "pt"} if index else None)
            weight_map.update(dict.fromkeys(names, file))
        for with_index in (False, True):
            if with_index:
                (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
                shutil.copy(model / "model-00001-of-00002.safetensors", model / "copy.safetensors")
            report, text = self.inspect(model)
            self.assertEqual(report["tensors"], by_dtype(tensors))
            self.assertEqual([file["metadata"] for file in report["files"]], [False, True])
            self.assertTrue(mentions(text, r"files +2, .*metadata in 1"), text)
        (model / "model-00002-of-00002.safetensors").unlink()
        self.assert_fails(run("inspect", model), 2, "model-00002-of-00002", "missing")

    def test_only_bf16(self):
        model = support.write_model(self.work / "plain", {"a.weight": bf16(words(1, 10))})
        _, text = self.inspect(model / "model.safetensors")
        self.assertFalse(mentions(text, "not BF16"), text)

    def test_no_tensor_at_all(self):
        reference.write_safetensors(self.work / "empty.safetensors", {})
        report, _ = self.inspect(self.work / "empty.safetensors")
        self.assertEqual((report["kind"], report["tensors"], report["tensor_bytes"]), ("safetensors", {}, 0))


class Failures(InspectCase):
    def fails(self, path, code, *patterns):
        for options in ([], ["--json"]):
            done = run("inspect", path, *options)
            self.assert_fails(done, code, *patterns, out_absent=False)
            self.assertEqual(done.stdout, "")

    def test_paths_that_are_no_model(self):
        (self.work / "bare").mkdir()
        self.fails(self.work / "bare", 2, "bare", r"no \.safetensors")
        self.fails(self.work / "nowhere\x1b[2J", 2, "nowhere", "no such")
        self.fails(self.definition, 2, r"arch\.json", "neither")
        self.assert_fails(run("inspect"), 2, "PATH")
        self.assert_fails(run("inspect", self.work / "bare", "--jsn"), 2, "--jsn")

    def test_files_that_are_none(self):
        good = (self.model() / "model.safetensors").read_bytes()
        for content, code, pattern in ((b"version https://git-lfs.github.com/spec/v1\n", 2, "lfs"), (good[:-1], 1, "cut short"),
                                       (good + b"x", 1, "trailing"), (b"", 1, "too short")):
            (self.work / "bad.safetensors").write_bytes(content)
            self.fails(self.work / "bad.safetensors", code, r"bad\.safetensors", pattern)

    def test_two_models_in_a_folder(self):
        self.compressed()
        shutil.copy(self.out / "embed.safetensors", self.out / "copy.safetensors")
        self.fails(self.out, 2, r"copy\.safetensors", r"embed\.safetensors", "both")

    def change(self, buffer, *tensor):
        """Replaces a buffer of the unit layers.0, or removes it."""
        path = self.out / "layers_0.safetensors"
        tensors = stored(path)
        tensors.pop(f"layers.0.{buffer}")
        if tensor:
            tensors[f"layers.0.{buffer}"] = tensor
        reference.write_safetensors(path, tensors)

    def test_buffers_that_are_missing_or_wrong(self):
        self.compressed()
        good = (self.out / "layers_0.safetensors").read_bytes()
        splits = {"beyond": [5001], "negative": [-1], "descending": [4000, 3000]}
        cases = {f"no {buffer}": (buffer, "missing") for buffer in BUFFERS}
        cases.update({
            "dtype": ("gaps", r"I8 \[320\]", "I8", [320], bytes(320)),
            "shape": ("gaps", r"\[320, 1\]", "U8", [320, 1], bytes(320)),
            "size": ("gaps", "321 bytes", "U8", [321], bytes(321)),
            "luts": ("luts", "no code length", "U8", [2, 256], bytes(512)),
            "lengths": ("luts", "no prefix code", "U8", [2, 256], bytes(256) + b"\1" * 240 + bytes(16)),
            "stream": ("encoded_exponent", "bytes, but 5000 codes", "U8", [50], bytes(50))})
        cases.update({name: ("split_positions", "number of weights", "I64", [len(values)], np.array(values, "<i8").tobytes())
                      for name, values in splits.items()})
        for name, (buffer, pattern, *tensor) in cases.items():
            with self.subTest(case=name):
                self.change(buffer, *tensor)
                self.fails(self.out, 1, r"layers_0\.safetensors: unit 'layers\.0': buffer " + buffer, pattern)
                (self.out / "layers_0.safetensors").write_bytes(good)
        self.inspect(self.out)

    def test_output_that_nobody_takes(self):
        self.compressed()
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as pipe, open("/dev/full", "w", encoding="ascii") as full:
            for target in (pipe, full):
                for options in ([], ["--json"]):
                    done = run("inspect", self.out, *options, stdout=target)
                    self.assertEqual(done.returncode, 2)
                    self.assertTrue(mentions(done.stderr, "standard output"), done.stderr)

    def test_compress_still_refuses_what_is_compressed(self):
        self.compressed()
        self.assert_fails(compress(self.out, self.work / "again", self.definition), 2, "already DF11-compressed",
                          out_absent=False)

    def test_help_fits_a_screen_and_shows_an_example(self):
        done = run("inspect", "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLessEqual(len(done.stdout.splitlines()), 24)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 110)
        self.assertTrue(mentions(done.stdout, "example", "weightpress inspect", "exit codes"), done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
