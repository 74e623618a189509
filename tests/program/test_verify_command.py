"""`weightpress verify` as a user meets it: levels, sources, hashes, foreign outputs, trouble; exit codes and what is said.

What single faults of a unit lead to is tested in test_verify_faults.py. Standard library and numpy only.
"""
import json
import os
import re
import shutil
import subprocess
import time
import unittest

import numpy as np

import faults
import sources
import support
import test_real_headers
from sources import CORRUPT, DONE, IMPOSSIBLE, SourceCase, filled, floats, model_tensors, rounded_to_bf16, tensors_file
from support import BUFFERS, bf16, mentions, reference, run, words
from test_compress_command import CONTROL_CHARACTERS
from test_verify_faults import golden_names, golden_unit, hangs

KEYS = ["path", "level", "engine", "device", "why_device", "verifier", "source", "seed", "ok", "hashes", "num_units", "num_tensors", "num_weights",
        "chunks_checked", "num_chunks", "seconds", "threads", "peak_memory_bytes", "kernel", "failures", "notes"]
FAILURE_KEYS = ["unit", "tensor", "kind", "message", "chunk", "window", "weight"]
KINDS = {"header", "table", "stream", "gap", "position", "weight", "padding", "limit", "split", "hash", "tensor", "shape", "kernel"}
SOON = 15  # seconds


def changed(tensor, bit=None):
    """The tensor with one bit flipped, by default the lowest of its last element's first byte."""
    dtype, shape, data = tensor
    bit = 8 * len(data) - 9 if bit is None else bit
    return dtype, shape, faults.flipped(data, bit)


class VerifyCase(SourceCase):
    def verify(self, path, *options, code=None):
        """The JSON of a run that came to a verdict; the text of another run must say the same."""
        done = run("verify", path, "--json", *options)
        self.assertIn(done.returncode, (DONE, CORRUPT) if code is None else (code,), done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(done.stdout.endswith("}\n") and done.stdout.isascii())
        self.assertEqual(list(report), KEYS)
        self.assertEqual((report["path"], report["ok"]), (str(path), done.returncode == DONE))
        self.assertEqual(report["ok"], not report["failures"])
        self.assertEqual(done.stderr, "".join(f"note: {note}\n" for note in report["notes"]))
        for failure in report["failures"]:
            self.assertEqual(list(failure), FAILURE_KEYS)
            self.assertIn(failure["kind"], KINDS)
            if failure["window"] is not None:
                self.assertEqual(failure["chunk"], failure["window"] // 512)
        seed = ["--seed", report["seed"]] if report["seed"] is not None else []
        text = run("verify", path, *options, *seed)
        self.assertEqual(text.returncode, done.returncode, text.stderr)
        self.assertIsNone(CONTROL_CHARACTERS.search(text.stdout + text.stderr), repr(text.stdout + text.stderr))
        lines = text.stdout.splitlines()
        self.assertEqual([line for line in lines if line.startswith("FAILED")], [self.line(one) for one in report["failures"]])
        self.assertTrue(all(line.startswith("FAILED") for line in lines[:len(report["failures"])]), text.stdout)
        self.assertIn("all that was checked holds" if report["ok"] else f"{len(report['failures'])} failure", lines[-1])
        quiet = run("verify", path, "-q", *options, *seed)
        self.assertEqual((quiet.returncode, quiet.stdout.splitlines()), (done.returncode, lines[:len(report["failures"])]))
        return report

    @staticmethod
    def line(failure):
        what = f"unit {failure['unit']}: " if failure["unit"] else f"tensor {failure['tensor']}: " if failure["tensor"] else ""
        return f"FAILED  {what}{failure['message']}"

    def failures(self, *arguments, **kwargs):
        """[(unit or tensor, kind)]"""
        return [(failure["unit"] or failure["tensor"], failure["kind"])
                for failure in self.verify(*arguments, **kwargs)["failures"]]

    def refused_to_verify(self, code, *arguments, says=()):
        done = run("verify", *arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIsNone(CONTROL_CHARACTERS.search(done.stderr), repr(done.stderr))
        self.assertRegex(done.stderr, "^weightpress: [^\n]+\n$")
        self.assertTrue(mentions(done.stderr, *says), done.stderr)

    def make(self, tensors=None, *options, **kwargs):
        """(source, output) of a model. Keywords: as those of source_folder, and definition."""
        definition = kwargs.pop("definition", None)
        source = self.source_folder({"model.safetensors": tensors or model_tensors()}, **kwargs)
        self.assert_done(self.run_on(source, *options, definition=definition))
        return source, self.out

    def write_units(self, units, name="units.safetensors"):
        path = self.place() / name
        tensors = {}
        for unit, buffers in units.items():
            tensors |= faults.tensors_of(unit, buffers)
        reference.write_safetensors(path, tensors)
        return path

    def rewrite(self, path, change):
        """Changes a file's {name: tensor} in place."""
        tensors, metadata = reference.read_safetensors(path)
        tensors = {name: (dtype, shape, bytes(data)) for name, (dtype, shape, data) in tensors.items()}
        change(tensors)
        reference.write_safetensors(path, tensors, metadata)


class Levels(VerifyCase):
    def test_every_combination(self):
        source, plain = self.make()
        self.assert_done(self.run_on(source, "--hashes"))
        hashed = self.out
        some = self.place() / "some"
        shutil.copytree(hashed, some)
        for name in ("embed.safetensors", "weightpress.json"):
            shutil.copy(plain / name, some / name)
        for out, hashes in ((plain, "none"), (hashed, "checked"), (some, "some")):
            for level in (None, "structure", "sample", "full"):
                for has_source in (False, True):
                    options = (["--level", level] if level else []) + (["--source", source] if has_source else [])
                    with self.subTest(hashes=hashes, options=options):
                        if level == "sample" and not has_source:
                            self.refused_to_verify(IMPOSSIBLE, out, *options, says=["sample", "--source"])
                            continue
                        if level == "full" and not has_source and hashes != "checked":
                            self.refused_to_verify(IMPOSSIBLE, out, *options, says=["full", "--source", "hashes"])
                            continue
                        report = self.verify(out, *options, code=DONE)
                        want = level or ("full" if has_source else "structure")
                        self.assertEqual(report["level"], want)
                        self.assertEqual(report["source"], str(source) if has_source else None)
                        self.assertEqual(report["hashes"], "none" if want == "sample" else hashes)
                        self.assertEqual(report["seed"] is None, want != "sample")
                        self.assertEqual((report["num_units"], report["num_tensors"]), (3, 3))
                        self.assertEqual(report["num_weights"], 1600)
                        self.assertEqual((report["chunks_checked"], report["num_chunks"]), (3, 3))
                        self.assertGreater(report["peak_memory_bytes"], 1e6)
                        self.assertEqual(any("hold no hashes" in note for note in report["notes"]),
                                         hashes == "some" and want != "sample")

    def test_what_each_level_sees(self):
        """A wrong weight, a wrong kept tensor, a wrong gap: with a source, with hashes, with neither."""
        source, plain = self.make()
        self.assert_done(self.run_on(source, "--hashes"))
        cases = {  # tensor whose first bit is wrong: (unit or tensor, what the source shows, what hashes show, what neither shows)
            "layers.1.sign_mantissa": ("layers.1", "weight", "hash", None), "norm.weight": ("norm.weight", "tensor", "hash", None),
            "layers.0.norm.weight": ("layers.0.norm.weight", "tensor", "hash", None), "layers.0.gaps": ("layers.0", "gap", "gap", "gap")}
        for name, (where, with_source, with_hashes, with_neither) in cases.items():
            for out, without_source in ((plain, with_neither), (self.out, with_hashes)):
                (path,) = [path for path in out.glob("*.safetensors") if name in reference.read_safetensors(path)[0]]
                content = path.read_bytes()
                length = int.from_bytes(content[:8], "little")
                begin = 8 + length + json.loads(content[8:8 + length])[name]["data_offsets"][0]
                path.write_bytes(faults.flipped(content, 8 * begin))
                with self.subTest(tensor=name, has_hashes=out != plain):
                    self.assertEqual(self.failures(out, "--source", source)[0], (where, with_source))
                    self.assertEqual(self.failures(out), [(where, without_source)] if without_source else [])
                    if out != plain:
                        self.assertEqual(self.failures(out, "--level", "full"), [(where, without_source)])
                path.write_bytes(content)


class GoldenUnits(VerifyCase):
    def test_those_that_hang_the_kernel(self):
        names = golden_names()
        report = self.verify(self.write_units({name: golden_unit(name) for name in names}), code=CORRUPT)
        self.assertEqual([(failure["unit"], failure["kind"]) for failure in report["failures"]],
                         [(name, "padding") for name in ("official_tables_hang_kernel_119", "official_tables_hang_kernel_4214")])
        for failure in report["failures"]:
            self.assertTrue(mentions(failure["message"], "weights are intact", "never end", "hang"), failure["message"])
        for name in names:
            with self.subTest(unit=name):
                self.assertEqual(self.failures(self.write_units({"u": golden_unit(name)})),
                                 [("u", "padding")] if hangs(name) else [])

    def test_limits_of_the_official_loader(self):
        constant, _ = reference.encode_unit(np.full(60_000, 0x3F80, "<u2"))
        constant = {**{buffer: data.tobytes() for buffer, data in constant.items()}, "split_positions": b""}
        report = self.verify(self.write_units({"u": constant}), code=CORRUPT)
        (failure,) = [failure for failure in report["failures"] if failure["kind"] == "limit"]
        self.assertTrue(mentions(failure["message"], r"\b32768\b", r"\b23550\b", "weights are intact"), failure["message"])
        self.assertLessEqual({failure["kind"] for failure in report["failures"]}, {"limit", "padding"})
        source = self.source_file({"u.weight": bf16(np.full(60_000, 0x3F80))})
        definition = self.define({"u": []})
        found = self.failures(self.write_units({"u": constant}), "--source", source, "--arch", definition)
        self.assertEqual([kind for _, kind in found],
                         [failure["kind"] for failure in report["failures"]])

        unit = golden_unit("normal_20000")
        tables, lengths = unit["luts"][:-256], unit["luts"][-256:]
        more = (tables * 18)[:18 * 256]
        self.assertEqual(self.failures(self.write_units({"u": {**unit, "luts": more[:17 * 256] + lengths}})), [])
        report = self.verify(self.write_units({"u": {**unit, "luts": more + lengths}}), code=CORRUPT)
        self.assertEqual([failure["kind"] for failure in report["failures"]], ["limit"])
        self.assertTrue(mentions(report["failures"][0]["message"], "18 tables", "17"))

    def test_more_tables_than_pointers_reach(self):
        """decompress refuses it as well: what a compressor means by more tables decodes to other weights."""
        unit = golden_unit("one_weight")
        for tables in (17, 18, 5001):
            luts = unit["luts"][:256] * tables + unit["luts"][-256:]
            path = self.write_units({"u": {**unit, "luts": luts}})
            done = run("decompress", path, "-o", self.work / f"back_{tables}")
            with self.subTest(tables=tables):
                self.assertEqual(self.failures(path), [("u", "limit")] if tables > 17 else [])
                self.assertEqual(done.returncode, CORRUPT if tables > 17 else DONE, done.stderr)
                self.assertEqual(f"there are {tables} tables" in done.stderr, tables > 17, done.stderr)

    def test_a_chunk_at_the_limit(self):
        """23,550 weights are taken, one more is not."""
        for count in (23_549, 23_550, 23_551):
            twos = 32_768 - count  # codes of two bits among those of one, so that the codes fill the chunk
            exponents = np.concatenate([np.full(count - twos, 120), np.full(twos, 121)])
            unit, _ = reference.encode_unit(support.words_of_exponents(exponents, np.random.Generator(np.random.PCG64(1))))
            buffers = {**{buffer: data.tobytes() for buffer, data in unit.items()}, "split_positions": b""}
            self.assertEqual((len(buffers["encoded_exponent"]), len(buffers["sign_mantissa"])), (4096, count))
            with self.subTest(weights=count):
                self.assertEqual(self.failures(self.write_units({"u": buffers})), [("u", "limit")] if count > 23_550 else [])


class Samples(VerifyCase):
    def setUp(self):
        super().setUp()
        tensors = model_tensors() | {"embed.weight": bf16(words(1, 400_000)),
                                     "layers.0.a.weight": bf16(words(2, 200_000)), "layers.0.b.weight": bf16(words(3, 150_000))}
        self.source, _ = self.make(tensors)
        self.positions = {unit: np.frombuffer(support.read_unit(self.out, unit)["output_positions"], "<u4")
                          for unit in ("embed", "layers.0", "layers.1")}
        self.num_chunks = sum(len(positions) - 1 for positions in self.positions.values())

    def with_fault(self, unit, weight):
        """The output with that weight's sign wrong, which only a comparison sees."""
        out = self.work / "faulty"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.out, out)
        name = f"{unit}.sign_mantissa"
        self.rewrite(support.shard_path(out, unit), lambda tensors: tensors.update({name: changed(tensors[name], 8 * weight)}))
        return out

    def sample(self, out, *options):
        done = run("verify", out, "--source", self.source, "--level", "sample", "--json", *options)
        self.assertIn(done.returncode, (DONE, CORRUPT), done.stderr)
        return json.loads(done.stdout)

    def test_first_last_and_split_chunks_are_always_looked_at(self):
        self.assertGreater(self.num_chunks, 60)
        last = self.positions["embed"][-1] - 1
        for unit, weight in (("embed", 0), ("embed", last), ("embed", self.positions["embed"][-2]), ("layers.0", 199_999),
                             ("layers.0", 200_000), ("layers.0", 0), ("layers.0", 349_999), ("layers.1", 250)):
            out = self.with_fault(unit, int(weight))
            for seed in (1, 2):
                with self.subTest(unit=unit, weight=weight, seed=seed):
                    (failure,) = self.sample(out, "--samples", 1, "--seed", seed)["failures"]
                    self.assertEqual((failure["unit"], failure["kind"], failure["weight"]), (unit, "weight", weight))

    def test_the_others_by_chance_that_a_seed_repeats(self):
        chunk = 10
        weight = int(self.positions["embed"][chunk]) + 5
        out = self.with_fault("embed", weight)
        counts = {}
        must = self.sample(out, "--samples", 1, "--seed", 0)["chunks_checked"]
        self.assertIn(must, (6, 7))  # ends of three units, of which one is a single chunk, and one or two with the split
        for samples in (must + (self.num_chunks - must) // 2, self.num_chunks, 10 ** 6):
            found = []
            for seed in range(40):
                report = self.sample(out, "--samples", samples, "--seed", seed)
                self.assertEqual((report["seed"], report["chunks_checked"]), (seed, min(samples, self.num_chunks)))
                self.assertLessEqual([failure["chunk"] for failure in report["failures"]], [chunk])
                found.append(bool(report["failures"]))
            counts[samples] = sum(found)
            again = [bool(self.sample(out, "--samples", samples, "--seed", seed, "--threads", 1 + seed % 3)["failures"])
                     for seed in range(0, 40, 5)]
            self.assertEqual(again, found[::5])
        half, *whole = counts.values()
        self.assertEqual(whole, [40, 40])
        self.assertTrue(8 < half < 32, half)  # a fair coin falls outside once in 10,000

    def test_the_seed_that_was_drawn_is_told(self):
        out = self.with_fault("embed", int(self.positions["embed"][20]))
        reports = [self.sample(out, "--samples", 35) for _ in range(3)]
        self.assertGreater(len({report["seed"] for report in reports}), 1)
        for report in reports:
            self.assertEqual(self.sample(out, "--samples", 35, "--seed", report["seed"])["failures"], report["failures"])
            text = run("verify", out, "--source", self.source, "--level", "sample", "--samples", 35).stdout
            self.assertRegex(text, r"(?m)^seed +\d+ \(")

    def test_default_is_a_thousand(self):
        self.assertEqual(self.sample(self.out)["chunks_checked"], self.num_chunks)
        for bad in ("0", "-1", "x", ""):
            self.refused_to_verify(IMPOSSIBLE, self.out, "--source", self.source, "--level", "sample", "--samples", bad,
                                   says=["samples"])

    def test_kept_tensors_at_both_ends(self):
        big = filled("U8", [1_000_000])
        source, out = self.make(model_tensors() | {"big": big})
        for bit, seen in ((0, True), (8 * 999_999, True), (8 * 500_000, False)):
            path = out / "model.safetensors"
            pristine = path.read_bytes()
            self.rewrite(path, lambda tensors: tensors.update({"big": changed(tensors["big"], bit)}))
            self.assertEqual(self.failures(out, "--source", source, "--level", "sample"), [("big", "tensor")] if seen else [])
            self.assertEqual(self.failures(out, "--source", source), [("big", "tensor")])
            path.write_bytes(pristine)


class Sources(VerifyCase):
    def test_other_weights(self):
        _, out = self.make()
        tensors = model_tensors()
        other = tensors | {"layers.1.b.weight": changed(tensors["layers.1.b.weight"], 16 * 130),
                           "norm.weight": changed(tensors["norm.weight"])}
        report = self.verify(out, "--source", self.source_file(other), code=CORRUPT)
        self.assertEqual([(failure["unit"], failure["tensor"], failure["kind"], failure["weight"]) for failure in report["failures"]],
                         [("layers.1", None, "weight", 430), (None, "norm.weight", "tensor", None)])
        self.assertTrue(mentions(report["failures"][0]["message"], r"weight 430\b", r"\b130 of tensor 'layers\.1\.b\.weight'"))
        self.assertIn("byte 38", report["failures"][1]["message"])
        every = {name: filled("BF16", shape, 7) for name, (_, shape, _) in tensors.items()}
        self.assertEqual([failure["kind"] for failure in self.verify(out, "--source", self.source_file(every))["failures"]],
                         ["weight"] * 3 + ["tensor"] * 3)

    def test_other_shapes(self):
        _, out = self.make()
        tensors = model_tensors()
        cases = {
            "a unit's tensor is longer": ({"layers.1.a.weight": bf16(words(11, 310))}, [("layers.1", "shape")]),
            "a tensor is longer, its neighbour shorter": ({"layers.1.a.weight": bf16(words(11, 310)),
                                                           "layers.1.b.weight": bf16(words(21, 190))}, [("layers.1", "split")]),
            "a kept tensor is longer": ({"norm.weight": bf16(words(2, 21))}, [("norm.weight", "shape")]),
            "another shape of as many": ({"norm.weight": bf16(words(2, 20), [4, 5])}, [("norm.weight", "shape")]),
            "another type": ({"norm.weight": filled("I16", [20])}, [("norm.weight", "shape")]),
            "a type that no unit holds": ({"embed.weight": filled("I16", [6, 100])}, [("embed", "shape")]),
        }
        for case, (changes, want) in cases.items():
            with self.subTest(case=case):
                self.assertEqual(self.failures(out, "--source", self.source_file(tensors | changes)), want)
        # In units shapes are not stored: another one of as many weights holds the same.
        self.assertEqual(self.failures(out, "--source", self.source_file(
            tensors | {"embed.weight": (*tensors["embed.weight"][:1], [600], tensors["embed.weight"][2])})), [])

    def test_more_or_fewer_tensors(self):
        tensors = model_tensors()
        source, out = self.make()
        for use_record in (True, False):
            if not use_record:
                (out / "weightpress.json").unlink()
            for name in ("norm.weight", "layers.0.norm.weight"):
                with self.subTest(record=use_record, missing=name):
                    less = {key: tensor for key, tensor in tensors.items() if key != name}
                    self.assertEqual({where for where, _ in self.failures(out, "--source", self.source_file(less))}, {name})
            with self.subTest(record=use_record, missing="layers.0.b.weight"):
                less = {key: tensor for key, tensor in tensors.items() if key != "layers.0.b.weight"}
                found = self.failures(out, "--source", self.source_file(less))
                self.assertLessEqual({where for where, _ in found}, {"layers.0", "layers.0.b.weight"})
                self.assertIn(("layers.0", "tensor"), found)
            with self.subTest(record=use_record, more="x"):
                more = self.source_file(tensors | {"x": filled("U8", [3])})
                self.assertEqual(self.failures(out, "--source", more), [("x", "tensor")])
        self.rewrite(out / "model.safetensors", lambda held: held.update({"y": filled("U8", [3])}))
        self.assertEqual(self.failures(out, "--source", source), [("y", "tensor")])
        self.rewrite(out / "model.safetensors", lambda held: (held.pop("y"), held.pop("norm.weight")))
        self.assertEqual(self.failures(out, "--source", source), [("norm.weight", "tensor")])

    def test_another_model(self):
        _, out = self.make()
        other = self.source_file({"blocks.0.w.weight": bf16(words(1, 100)), "norm.weight": model_tensors()["norm.weight"]})
        found = self.failures(out, "--source", other)
        self.assertLessEqual({"embed", "layers.0", "layers.1"}, {where for where, _ in found})

    def test_a_unit_is_gone(self):
        source, out = self.make()
        (out / "layers_1.safetensors").unlink()
        self.assertEqual(self.verify(out, "--source", source)["ok"], False)
        self.assertLessEqual({where for where, _ in self.failures(out, "--source", source)},
                             {"layers.1.a.weight", "layers.1.b.weight", "layers.1.norm.weight", "layers.1"})

    def test_sources_that_are_none(self):
        good, out = self.make()
        for source, code in ((self.work / "missing", IMPOSSIBLE), (self.place(), IMPOSSIBLE),
                             (self.source_file(b"\x40" + bytes(7) + b"x" * 100), CORRUPT)):
            self.refused_to_verify(code, out, "--source", source, says=[re.escape(str(source))])
        self.refused_to_verify(IMPOSSIBLE, out, "--source", good, "--arch", "nobody", says=["nobody"])
        self.refused_to_verify(IMPOSSIBLE, out, "--source", out, says=["already DF11"])

    def test_cast(self):
        values = np.linspace(-2, 2, 300).astype(np.float32) * np.float32(1.001)
        tensors = model_tensors() | {"layers.0.a.weight": floats("F32", values), "half": floats("F16", values[:50]),
                                     "norm.weight": floats("F32", values[:20])}
        source, out = self.make(tensors, "--cast-to-bf16")
        report = self.verify(out, "--source", source, code=DONE)
        self.assertTrue(any("rounded to BF16" in note for note in report["notes"]), report["notes"])
        self.assertEqual(self.failures(out, "--source", source, "--level", "sample"), [])
        (out / "weightpress.json").unlink()
        self.assertEqual(self.failures(out, "--source", source), [])
        # A value that is rounded to its neighbour is another one; one that is rounded to the same is not.
        words_of_a = rounded_to_bf16(values)
        same = (words_of_a.astype(np.uint32) << 16).view(np.float32)
        self.assertEqual(self.failures(out, "--source", self.source_file(tensors | {"layers.0.a.weight": floats("F32", same)})), [])
        same[7] *= 1.01
        self.assertEqual(self.failures(out, "--source", self.source_file(tensors | {"layers.0.a.weight": floats("F32", same)})),
                         [("layers.0", "weight")])
        self.assertEqual(self.failures(out, "--source", self.source_file(tensors | {"half": floats("F16", values[1:51])})),
                         [("half", "tensor")])

    def test_ties(self):
        head, embedding = "lm_head.weight", "model.embed_tokens.weight"
        body = {embedding: bf16(words(1, 600), [30, 20]), "model.layers.0.a.weight": bf16(words(2, 300)),
                "model.layers.0.b.weight": bf16(words(3, 200)), "model.norm.weight": bf16(words(4, 20))}
        layers = {r"model\.layers\.\d+": ["a", "b"]}
        tied = {"model_type": "llama", "tie_word_embeddings": True}
        left_out = body | {head: body[embedding]}
        source, out = self.make(left_out, definition=self.define(layers), config=tied)
        wrong = self.source_folder({"m.safetensors": left_out | {head: changed(body[embedding])}}, config=tied)
        for use_record in (True, False):
            if not use_record:
                (out / "weightpress.json").unlink()
            with self.subTest("the head is left out", record=use_record):
                self.assertEqual(self.failures(out, "--source", source), [])
                self.assertEqual(self.failures(out, "--source", wrong), [(head, "tensor")])
        with_heads = self.define({"lm_head": [], r"model\.embed_tokens": [], **layers}, tied_lm_head=True)
        source, out = self.make(body, definition=with_heads, config=tied)
        other = self.source_folder({"m.safetensors": body | {embedding: changed(body[embedding])}}, config=tied)
        for use_record in (True, False):
            if not use_record:
                (out / "weightpress.json").unlink()
            with self.subTest("the head is a unit", record=use_record):
                self.assertEqual(self.failures(out, "--source", source), [])
                self.assertEqual(self.failures(out, "--source", other), [("lm_head", "weight"), ("model.embed_tokens", "weight")])

    def test_prefixes_and_rules(self):
        tensors = {"net." + name: tensor for name, tensor in model_tensors().items()}
        tensors |= {"gone.1": filled("U8", [4]), "net.norm.scale": filled("F32", [5])}
        definition = self.define(strip_prefixes=["net."], drop=["^gone"], rename=[[r"\.scale$", ".s"]])
        source, out = self.make(tensors, definition=definition)
        wrong = self.source_file(tensors | {"net.norm.scale": changed(tensors["net.norm.scale"])})
        for options in ([], ["--arch", definition]):
            with self.subTest(options=options):
                self.assertEqual(self.failures(out, "--source", source, *options), [])
                self.assertEqual(self.failures(out, "--source", wrong, *options), [("norm.s", "tensor")])
        # Without the record config.json knows units only, so names are not what they are in the output.
        (out / "weightpress.json").unlink()
        self.assertNotEqual(self.failures(out, "--source", source), [])
        self.assertEqual(self.failures(out, "--source", source, "--arch", definition), [])

    def test_units_that_could_not_be_stored(self):
        inf = np.frombuffer(model_tensors()["layers.1.b.weight"][2], "<u2").copy()
        inf[7] = 0x7F80
        tensors = model_tensors() | {"layers.1.b.weight": bf16(inf, [2, 100])}
        source, out = self.make(tensors, "--keep-unencodable")
        self.assertEqual(self.failures(out, "--source", source), [])
        other = self.source_file(tensors | {"layers.1.a.weight": changed(tensors["layers.1.a.weight"])})
        self.assertEqual(self.failures(out, "--source", other), [("layers.1.a.weight", "tensor")])


class Records(VerifyCase):
    def test_what_the_record_tells_without_a_source(self):
        _, out = self.make()
        self.verify(out, code=DONE)
        names = sorted(path.name for path in out.glob("*.safetensors"))
        kept = out / "model.safetensors"
        for name in names:
            damaged = self.place() / "damaged"
            shutil.copytree(out, damaged)
            (damaged / name).unlink()
            failures = self.failures(damaged, code=CORRUPT)
            self.assertEqual({kind for _, kind in failures}, {"tensor"}, failures)
        damaged = self.place() / "damaged"
        shutil.copytree(out, damaged)
        tensors, metadata = reference.read_safetensors(kept)
        name, (dtype, shape, data) = next(item for item in tensors.items() if len(item[1][2]) > 1)
        tensors[name] = (dtype, [1, *shape], bytes(data))
        reference.write_safetensors(damaged / kept.name, tensors, metadata)
        self.assertEqual(self.failures(damaged, code=CORRUPT), [(name, "shape")])

    def test_an_endless_pattern_is_noted(self):
        name = "a" * 60
        _, out = self.make({f"{name}.weight": bf16(words(1, 500))}, definition=self.define({"a+": []}))
        record = json.loads((out / "weightpress.json").read_text())
        record["definition"]["pattern_dict"] = {r"(.|..)+[XY]": ["a"], "a+": []}
        (out / "weightpress.json").write_text(json.dumps(record))
        report = self.verify(out, code=DONE)
        self.assertTrue(mentions(" ".join(report["notes"]), "weightpress.json.*match limit.*not used"), report["notes"])

    def test_splits(self):
        _, out = self.make()
        path = next(path for path in sorted(out.glob("layers_*.safetensors")))
        unit = path.stem.replace("_", ".")
        tensors, _ = reference.read_safetensors(path)
        right = np.frombuffer(bytes(tensors[f"{unit}.split_positions"][2]), "<i8")
        for wrong in ([], [*right, right[-1]], [0, *right], [right[0] - 1, *right[1:]], [right[0] + 1, *right[1:]]):
            with self.subTest(splits=wrong):
                damaged = self.place() / "damaged"
                shutil.copytree(out, damaged)
                wrong = np.array(wrong, "<i8")
                self.rewrite(damaged / path.name, lambda all_of_it, splits=wrong: all_of_it.update(
                    {f"{unit}.split_positions": ("I64", [len(splits)], splits.tobytes())}))
                self.assertEqual(self.failures(damaged, code=CORRUPT), [(unit, "split")])


class ForeignOutputs(VerifyCase):
    def test_every_layout(self):
        """With a prefix that is taken off and a unit that is cast; by the record, and by the definition without it."""
        tensors = {"net." + name: tensor for name, tensor in model_tensors().items()}
        tensors["net.layers.1.a.weight"] = floats("F32", np.linspace(-1, 1, 300))
        for layout in ("transformers", "diffusers", "diffusers-single", "comfyui"):
            definition = self.define(layout=layout, strip_prefixes=["net."])
            source, out = self.make(tensors, "--cast-to-bf16", definition=definition)
            wrong = self.source_file(tensors | {"net.layers.0.b.weight": changed(tensors["net.layers.0.b.weight"])})
            if layout == "comfyui":  # the folder's record is that of its only file, too
                self.assertEqual(self.failures(out / "model.safetensors", "--source", source), [])
            for use_record in (True, False):
                if not use_record:
                    (out / "weightpress.json").unlink()
                options = [] if use_record else ["--arch", definition]
                with self.subTest(layout=layout, record=use_record):
                    report = self.verify(out, "--source", source, *options, code=DONE)
                    self.assertIn("rounded to BF16", " ".join(report["notes"]))
                    self.assertEqual(self.failures(out, "--source", wrong, *options), [("layers.0", "weight")])

    def test_any_grouping(self):
        source, out = self.make()
        tensors = {name: (dtype, shape, bytes(data)) for name, (dtype, shape, data) in reference.load_all(str(out)).items()}
        for count in (1, 2, 5):
            folder = self.place()
            for index in range(count):
                reference.write_safetensors(folder / f"{index}.safetensors", dict(list(tensors.items())[index::count]))
            (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "gone.safetensors"}}')
            with self.subTest(files=count):
                self.assertEqual(self.failures(folder), [])
                self.assertEqual(self.failures(folder, "--source", source, "--arch", self.definition), [])
                shutil.copy(out / "config.json", folder)
                self.assertEqual(self.failures(folder, "--source", source), [])
        alone = self.place() / "alone.safetensors"
        reference.write_safetensors(alone, tensors)
        self.assertEqual(self.failures(alone, "--source", source, "--arch", self.definition), [])

    def test_one_shard_of_many(self):
        source, out = self.make()
        self.assertEqual(self.failures(out / "layers_1.safetensors"), [])
        found = self.failures(out / "layers_1.safetensors", "--source", source, "--arch", self.definition)
        self.assertNotIn("layers.1", {where for where, _ in found})

    def test_what_tells_the_tensors_of_a_unit(self):
        """--arch before the record, the record before config.json, config.json before detection."""
        source, out = self.make()
        wrong = self.define({"embed": [], r"layers\.\d+": ["b", "a"]})
        self.assertIn(("layers.0", "split"), self.failures(out, "--source", source, "--arch", wrong))
        config = json.loads((out / "config.json").read_text())
        config["dfloat11_config"]["pattern_dict"][r"layers\.\d+"] = ["b", "a"]
        (out / "config.json").write_text(json.dumps(config))
        self.assertEqual(self.failures(out, "--source", source), [])
        (out / "weightpress.json").unlink()
        self.assertIn(("layers.0", "split"), self.failures(out, "--source", source))
        (out / "config.json").unlink()
        self.refused_to_verify(IMPOSSIBLE, out, "--source", source, says=["definition|arch"])
        self.assertEqual(self.failures(out), [])

    def test_detection(self):
        folder = self.place()
        case = test_real_headers.header_case("phi-4")
        layout = test_real_headers.load_definition(case.definition)["layout"]
        source, _ = test_real_headers.make_source(folder, case, layout)
        out = folder / "out"
        self.assert_done(run("compress", source, "-o", out))
        (out / "weightpress.json").unlink()
        (out / "config.json").unlink()
        report = self.verify(out, "--source", source, code=DONE)
        self.assertTrue(any("phi-4" in note and "chosen" in note for note in report["notes"]), report["notes"])
        self.assertEqual(report["num_units"], 42)

    def test_broken_records_are_noted(self):
        source, out = self.make()
        path = out / "weightpress.json"
        good = json.loads(path.read_text())
        cases = {"no JSON": "[", "another thing": '{"weightpress": 1}', "nothing": "", "levels": "[" * 100_000,
                 "no files": json.dumps({**good, "source_files": 5}),
                 "of another number": json.dumps({**good, "definition": None})}
        for case, text in cases.items():
            with self.subTest(case=case):
                path.write_text(text)
                for options in ([], ["--source", source]):
                    report = self.verify(out, *options, code=DONE)
                    self.assertTrue(mentions(" ".join(report["notes"]), r"weightpress\.json", "not used"), report["notes"])
        path.unlink()
        path.mkdir()
        self.assertEqual(self.failures(out, "--source", source), [])

    def test_names_with_control_characters(self):
        path = self.write_units({"u\x1b[31m\n\u202e": {**golden_unit("three_exponents"), "gaps": bytes([255]) + bytes(319)}})
        done = run("verify", path)
        self.assertEqual(done.returncode, CORRUPT)
        self.assertIsNone(CONTROL_CHARACTERS.search(done.stdout + done.stderr), repr(done.stdout))
        self.assertEqual(done.stdout.count("FAILED"), 1)


class Hashes(VerifyCase):
    def test_any_bit_of_any_file(self):
        """A few hundred bits: half in headers, half anywhere."""
        _, out = self.make(model_tensors(3), "--hashes")
        self.assertEqual(self.failures(out, "--level", "full"), [])
        random = np.random.Generator(np.random.PCG64(5))
        files = sorted(out.glob("*.safetensors"))
        for number in range(360):
            path = files[number % len(files)]
            content = path.read_bytes()
            size = 8 + int.from_bytes(content[:8], "little") if number % 2 else len(content)
            bit = int(random.integers(8 * size))
            path.write_bytes(faults.flipped(content, bit))
            done = run("verify", out, "--json")
            self.assertEqual(done.returncode, CORRUPT, f"bit {bit} of {path.name}: {done.stdout}{done.stderr}")
            if done.stdout:
                self.assertGreater(len(json.loads(done.stdout)["failures"]), 0)
            path.write_bytes(content)
        self.assertEqual(self.failures(out), [])

    def test_hashes_that_are_gone(self):
        """The record says that there are some: a damaged key is no file without hashes."""
        source, plain = self.make({"embed.weight": model_tensors()["embed.weight"]}, definition=self.define({"embed": []}))
        self.assert_done(self.run_on(source, "--hashes", definition=self.define({"embed": []})))
        hashed = self.out
        path = hashed / "model.safetensors"  # holds no tensor, so its only key is the header's
        path.write_bytes(path.read_bytes().replace(b'"sha256"', b'"sha257"'))
        for options in ((), ("--level", "full"), ("--source", source)):
            failures = self.verify(hashed, *options, code=CORRUPT)["failures"]
            self.assertEqual([(one["unit"], one["tensor"], one["kind"]) for one in failures], [(None, None, "hash")])
            self.assertTrue(mentions(failures[0]["message"], "model.safetensors.*no hashes.*weightpress.json"))
        self.verify(plain, code=DONE)

    def test_files_of_another_output_fit_themselves(self):
        """Hashes tell damage, not where a file is from: only the source tells that."""
        tensors = model_tensors()
        source, out = self.make(tensors, "--hashes")
        self.make(tensors | {"layers.0.a.weight": bf16(words(99, 300))}, "--hashes")
        shutil.copy(self.out / "layers_0.safetensors", out)
        self.assertEqual(self.failures(out, "--level", "full"), [])
        self.assertEqual(self.failures(out, "--source", source), [("layers.0", "weight")])
        shutil.copy(out / "layers_0.safetensors", out / "copy.safetensors")
        self.refused_to_verify(IMPOSSIBLE, out, says=[r"layers\.0", r"copy\.safetensors", r"layers_0\.safetensors"])

    def test_what_is_said_of_a_header(self):
        _, out = self.make(model_tensors(), "--hashes")
        path = out / "model.safetensors"
        content = path.read_bytes()
        path.write_bytes(content.replace(b'"format":"pt"', b'"format":"tp"'))
        (failure,) = self.verify(out, code=CORRUPT)["failures"]
        self.assertEqual((failure["unit"], failure["tensor"], failure["kind"]), (None, None, "hash"))
        self.assertTrue(mentions(failure["message"], r"model\.safetensors", "header"), failure["message"])
        path.write_bytes(re.sub(rb'"sha256:norm.weight":"([0-9a-f]{8})', b'"sha256:norm.weight":"00000000', content))
        (failure,) = self.verify(out, code=CORRUPT)["failures"]
        self.assertEqual((failure["unit"], failure["tensor"], failure["kind"]), (None, "norm.weight", "hash"))


class Trouble(VerifyCase):
    def test_what_is_no_df11_output(self):
        source = self.source_folder({"model.safetensors": model_tensors()})
        for path in (source, source / "model.safetensors"):
            self.refused_to_verify(IMPOSSIBLE, path, says=["no DF11 units", re.escape(str(path))])
            self.refused_to_verify(IMPOSSIBLE, path, "--source", source, says=["no DF11 units"])
        self.refused_to_verify(IMPOSSIBLE, self.place(), says=[r"\.safetensors"])
        self.refused_to_verify(IMPOSSIBLE, self.work / "missing", says=["no such"])
        self.refused_to_verify(IMPOSSIBLE, self.source_file(b"version https://git-lfs.github.com/spec/v1\n"))
        self.refused_to_verify(CORRUPT, self.source_file(bytes(range(1, 100))))
        self.refused_to_verify(CORRUPT, self.source_file(tensors_file(model_tensors())[:-1]))

    def test_an_interrupted_output(self):
        """OUT.partial has no header yet where a file was not finished."""
        _, out = self.make()
        (out / "layers_1.safetensors").write_bytes(bytes((out / "layers_1.safetensors").stat().st_size))
        self.assertEqual(run("verify", out).returncode, CORRUPT)

    def test_pipes_devices_and_what_cannot_be_read(self):
        folder = self.place()
        os.mkfifo(folder / "p.safetensors")
        self.refused_to_verify(IMPOSSIBLE, folder / "p.safetensors", says=[r"p\.safetensors"])
        self.refused_to_verify(IMPOSSIBLE, folder, says=[r"p\.safetensors"])
        self.refused_to_verify(IMPOSSIBLE, "/dev/zero")
        if os.geteuid() != 0:
            _, out = self.make()
            (out / "embed.safetensors").chmod(0)
            self.refused_to_verify(IMPOSSIBLE, out, says=[r"embed\.safetensors"])

    def test_usage(self):
        _, out = self.make()
        for options in (["--level", "deep"], ["--threads", "0"], ["--seed", "x"], ["--progress", "loud"], ["--no-such"], ["more"]):
            with self.subTest(options=options):
                self.refused_to_verify(IMPOSSIBLE, out, *options)
        self.refused_to_verify(IMPOSSIBLE, says=["OUT"])
        done = run("verify", "--help")
        self.assertEqual((done.returncode, done.stderr), (DONE, ""))
        self.assertTrue(mentions(done.stdout, "--level", "--samples", "--seed", "--source", "--arch", "--json"))

    def test_closed_and_full_standard_output(self):
        _, out = self.make()
        with open("/dev/full", "w", encoding="ascii") as full:
            done = run("verify", out, stdout=full)
        self.assertEqual(done.returncode, IMPOSSIBLE)
        self.assertIn("standard output could not be written", done.stderr)
        command = f'exec "{support.PROGRAM}" verify "{out}" >&-'
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn(done.returncode, (DONE, IMPOSSIBLE), done.stderr)
        process = subprocess.Popen([support.PROGRAM, "verify", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        self.assertIn(process.wait(60), (DONE, IMPOSSIBLE))
        process.stderr.close()

    def test_progress_goes_to_standard_error(self):
        source, out = self.make()
        for mode in ("bar", "plain", "none", "auto"):
            for options in ([], ["--source", source], ["--json"]):
                done = run("verify", out, "--progress", mode, *options)
                with self.subTest(mode=mode, options=options):
                    self.assertEqual(done.returncode, DONE, done.stderr)
                    self.assertNotIn("verifying", done.stdout)
                    self.assertNotIn("\r", done.stdout)
                    if options == ["--json"]:
                        json.loads(done.stdout)
                    if mode == "bar":
                        self.assertIn("verifying", done.stderr)
                    if mode in ("none", "auto"):
                        self.assertEqual(done.stderr, "")
        self.assertEqual(run("verify", out, "--progress", "bar", "-q").stderr, "")

    def test_nothing_is_changed(self):
        source, out = self.make()
        before = sources.fingerprint(out), sources.fingerprint(source)
        self.verify(out, "--source", source)
        self.verify(out)
        self.assertEqual((sources.fingerprint(out), sources.fingerprint(source)), before)

    def test_every_unit_is_told(self):
        """A fault in one is no reason not to look at the others; each has one line."""
        unit = golden_unit("normal_20000")
        units = {f"u.{index}": {**unit, "gaps": faults.flipped(unit["gaps"], 500 + index)} if index % 3 == 0 else unit
                 for index in range(30)}
        units["u.7"] = {**unit, "encoded_exponent": unit["encoded_exponent"][:-30]}
        report = self.verify(self.write_units(units), code=CORRUPT)
        faulty = sorted({f"u.{index}" for index in range(0, 30, 3)} | {"u.7"})
        self.assertEqual(sorted(failure["unit"] for failure in report["failures"]), faulty)
        self.assertEqual(report["num_units"], 30)


class Hostile(VerifyCase):
    def test_lookup_tables_that_lead_nowhere(self):
        unit = golden_unit("fibonacci_26")
        tables = len(unit["luts"]) // 256 - 1
        lengths = unit["luts"][-256:]
        ones = bytes([1, 1]) + bytes(254)
        cycle = b"".join(bytes([255 - (table + 1) % max(tables, 2) if tables > 1 else 255]) * 256 for table in range(tables))
        kinds = {"a table that points to itself": bytes([255]) * 256 * tables + lengths,
                 "tables in a circle": cycle + lengths, "all pointers": bytes([240]) * 256 * tables + lengths,
                 "pointers to tables that are not there": bytes([241]) * 256 + unit["luts"][256:],
                 "zeros": bytes(256 * tables) + lengths, "no lengths": unit["luts"][:-256] + bytes(256),
                 "lengths of 255": unit["luts"][:-256] + bytes([255]) * 256, "lengths of 1": unit["luts"][:-256] + bytes([1]) * 256,
                 "lengths of 32": unit["luts"][:-256] + bytes([32]) * 240 + bytes(16),
                 "two codes of one bit": bytes(128) + bytes([1]) * 128 + bytes(256 * (tables - 1)) + ones,
                 "17 tables of pointers to the next": b"".join(bytes([255 - table]) * 256 for table in range(16)) + bytes(256) + lengths,
                 "everything is 255": bytes([255]) * len(unit["luts"]), "everything is 0": bytes(len(unit["luts"]))}
        for kind, luts in kinds.items():
            with self.subTest(kind=kind):
                start = time.monotonic()
                (failure,) = self.verify(self.write_units({"u": {**unit, "luts": luts}}), code=CORRUPT)["failures"]
                self.assertIn(failure["kind"], ("table", "header", "stream", "gap", "position"))
                self.assertLess(time.monotonic() - start, SOON)

    def test_buffers_of_anything(self):
        unit = golden_unit("student_t_60000")
        random = np.random.Generator(np.random.PCG64(3))
        units = {}
        for buffer in BUFFERS:
            size = len(unit[buffer])
            for number, content in enumerate([bytes(size), b"\xff" * size] + [random.bytes(size) for _ in range(8)]):
                if buffer != "split_positions":
                    units[f"{buffer}.u{number}"] = {**unit, buffer: content}
        start = time.monotonic()
        report = self.verify(self.write_units(units), code=CORRUPT)
        self.assertLess(time.monotonic() - start, SOON)
        found = {failure["unit"] for failure in report["failures"]}
        # Signs and mantissas may be anything; the rest may not.
        self.assertEqual(found, {name for name in units if not name.startswith("sign_mantissa.")})

    def test_sizes_that_headers_claim(self):
        """Headers of nothing behind: refused before anything is allocated."""
        shapes = {"luts": ("U8", [2 ** 40, 256]), "encoded_exponent": ("U8", [2 ** 50]), "sign_mantissa": ("U8", [2 ** 55]),
                  "output_positions": ("U8", [2 ** 50]), "gaps": ("U8", [2 ** 50]), "split_positions": ("I64", [2 ** 45])}
        header, end = {}, 0
        for name, (dtype, shape) in shapes.items():
            size = int(np.prod(shape)) * (8 if dtype == "I64" else 1)
            header[f"u.{name}"] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
            end += size
        done, peak_mb = sources.run_measured("verify", self.source_file(sources.file_bytes(header)), timeout=10)
        self.assertEqual(done.returncode, CORRUPT, done.stderr)
        self.assertLess(peak_mb, 100)

    def test_memory(self):
        """300 MB of weights and 20 MB of kept tensors in less than 100 MB."""
        block = words(1, 1_000_000)
        tensors = {"embed.weight": bf16(np.tile(block, 150)), "kept": filled("U8", [20_000_000])}
        definition = self.define({"embed": []})
        source, out = self.make(tensors, "--fast", "--hashes", definition=definition)
        tensors.clear()
        for options in ([], ["--source", source], ["--source", source, "--level", "sample", "--seed", 1]):
            done = run("verify", out, "--json", *options)
            report = json.loads(done.stdout)
            with self.subTest(options=options):
                self.assertEqual((report["failures"], report["num_weights"]), ([], 150_000_000))
                self.assertLess(report["peak_memory_bytes"], 100_000_000)


if __name__ == "__main__":
    unittest.main(verbosity=2)
