"""`weightpress verify` as a user runs it: levels, exit codes, what it says, outputs of other makers, wrong sources, hashes.

test_verify_faults.py tries faults by the thousand. Standard library and numpy only.
"""
import json
import os
import random
import shutil
import unittest

import numpy as np

import support
from sources import CORRUPT, IMPOSSIBLE, SourceCase
from support import BUFFERS, GOLDEN, bf16, reference, run, words

SEED = int(os.environ.get("WEIGHTPRESS_SEED", "5"))
PATTERNS = {r"layers\.\d+": ["a", "b"], r"head": []}
KEYS = ["path", "level", "source", "seed", "ok", "hashes", "num_units", "num_tensors", "num_weights", "chunks_checked",
        "num_chunks", "seconds", "threads", "peak_memory_bytes", "failures", "notes"]


def golden_tensors(name, unit):
    folder = GOLDEN / name
    luts = folder / "luts.u8"
    content = {"luts": (luts if luts.exists() else folder / "luts_safe.u8").read_bytes(),
               "output_positions": (folder / "output_positions.u32").read_bytes(),
               "split_positions": (folder / "split_positions.i64").read_bytes(),
               **{buffer: (folder / f"{buffer}.u8").read_bytes() for buffer in ("encoded_exponent", "sign_mantissa", "gaps")}}
    return as_tensors(content, unit)


def as_tensors(content, unit):
    shapes = {"luts": lambda data: [len(data) // 256, 256], "split_positions": lambda data: [len(data) // 8]}
    return {f"{unit}.{buffer}": ("I64" if buffer == "split_positions" else "U8",
                                 shapes.get(buffer, lambda data: [len(data)])(content[buffer]), content[buffer])
            for buffer in BUFFERS}


class VerifyCase(SourceCase):
    def setUp(self):
        super().setUp()
        self.tensors = {
            "layers.0.a.weight": bf16(words(1, 60_000), [200, 300]), "layers.0.b.weight": bf16(words(2, 25_000)),
            "layers.0.norm.weight": bf16(words(3, 100)), "layers.1.a.weight": bf16(words(4, 7000)),
            "layers.1.b.weight": bf16(words(5, 640)), "head.weight": bf16(words(6, 90_000), [900, 100]),
            "scale": ("F32", [], b"\0\0\x80\x3f"), "none": ("F32", [0, 3], b""), "embed.weight": bf16(words(7, 4000))}
        self.source = support.write_model(self.work / "model", self.tensors)
        self.definition = support.write_definition(self.work / "definition.json", PATTERNS)

    def compressed(self, *options, name="out"):
        out = self.work / name
        done = run("compress", self.source, "-o", out, "--arch", self.definition, *options, "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        return out

    def verify(self, path, *options, code=0):
        done = run("verify", path, *options, "--json", "--progress", "none")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(list(report), KEYS)
        self.assertEqual(report["ok"], code == 0)
        self.assertEqual(bool(report["failures"]), code != 0)
        return report

    def change(self, path, tensor, place, value):
        """Puts a byte into a tensor of a file."""
        tensors, _ = reference.read_safetensors(path)
        raw = bytearray(path.read_bytes())
        header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
        begin = header[tensor]["data_offsets"][0] + 8 + int.from_bytes(raw[:8], "little")
        self.assertIn(tensor, tensors)
        raw[begin + place] ^= value
        path.write_bytes(raw)


class Levels(VerifyCase):
    def test_what_each_level_needs_and_tells(self):
        out = self.compressed()
        hashed = self.compressed("--hashes", name="hashed")
        plain = self.verify(out)
        self.assertEqual((plain["level"], plain["hashes"], plain["seed"], plain["source"]), ("structure", "none", None, None))
        self.assertEqual((plain["num_units"], plain["num_tensors"], plain["num_weights"]), (3, 4, 182_640))
        self.assertEqual(plain["chunks_checked"], plain["num_chunks"])
        self.assertEqual(self.verify(hashed)["hashes"], "checked")
        self.assertEqual(self.verify(hashed, "--level", "full")["level"], "full")
        full = self.verify(out, "--source", self.source)
        self.assertEqual((full["level"], full["source"]), ("full", str(self.source)))
        self.assertEqual(self.verify(out, "--source", self.source / "model.safetensors")["level"], "full")
        self.assertEqual(self.verify(out, "--source", self.source, "--level", "structure")["level"], "structure")
        for options in (("--level", "full"), ("--level", "sample"), ("--level", "other"), ("--samples", "0"),
                        ("--source", self.work / "none"), ("--source", out), ("--arch", "no-such")):
            done = run("verify", out, *options)
            if options[0] == "--arch":
                continue  # of no use without a source
            self.assertEqual(done.returncode, IMPOSSIBLE, (options, done.stderr))
            self.assertEqual(done.stdout, "")

    def test_samples(self):
        out = self.compressed()
        source = ("--source", self.source, "--level", "sample")
        one, again, other = (self.verify(out, *source, "--samples", "9", "--seed", seed) for seed in (1, 1, 2))
        self.assertEqual((one["seed"], one["chunks_checked"]), (1, again["chunks_checked"]))
        self.assertLess(other["chunks_checked"], other["num_chunks"])
        everything = self.verify(out, *source)
        self.assertEqual(everything["chunks_checked"], everything["num_chunks"])
        self.assertIsNotNone(everything["seed"])
        # The first chunk, the last one and that of the split are always looked at.
        for weight in (5, 59_999, 60_000, 84_999):
            damaged = self.work / f"damaged_{weight}"
            shutil.copytree(out, damaged)
            self.change(damaged / "layers_0.safetensors", "layers.0.sign_mantissa", weight, 0x80)
            report = self.verify(damaged, *source, "--samples", "1", "--seed", "3", code=CORRUPT)
            self.assertEqual([(f["unit"], f["kind"], f["weight"]) for f in report["failures"]], [("layers.0", "weight", weight)])

    def test_text(self):
        out = self.compressed()
        done = run("verify", out, "--source", self.source)
        self.assertRegex(done.stdout, r"(?s)level +full, against .*units +3 of 182640 weights.*all that was checked holds")
        self.change(out / "layers_0.safetensors", "layers.0.sign_mantissa", 61_000, 1)
        self.change(out / "head.safetensors", "head.gaps", 3, 4)
        self.change(out / "model.safetensors", "embed.weight", 17, 1)
        done = run("verify", out, "--source", self.source, "-q")
        self.assertEqual(done.returncode, CORRUPT)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 3, done.stdout)
        self.assertRegex(lines[0], r"^FAILED  unit head: gaps: window \d+ \(chunk 0\)")
        self.assertRegex(lines[1], r"^FAILED  unit layers.0: sign_mantissa: weight 61000, .*1000 of tensor 'layers.0.b.weight'")
        self.assertEqual(lines[2], "FAILED  tensor embed.weight: byte 17 differs from the source")

    def test_memory(self):
        big = support.write_model(self.work / "big", {"head.weight": bf16(words(1, 40_000_000))})
        out = self.work / "big-out"
        definition = support.write_definition(self.work / "big.json", {r"head": []})
        self.assertEqual(run("compress", big, "-o", out, "--arch", definition, "-q").returncode, 0)
        report = self.verify(out, "--source", big)
        self.assertLess(report["peak_memory_bytes"], 60e6)


class OfOtherMakers(VerifyCase):
    def test_golden_units(self):
        names = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
        tensors = {}
        for name in names:
            tensors |= golden_tensors(name, f"units.{name}")
        hang = [name for name in names if name.startswith("official_tables_hang_kernel")]
        self.assertEqual(len(hang), 2)
        path = self.source_file(tensors)
        report = self.verify(path, code=CORRUPT)
        self.assertEqual([(f["unit"], f["kind"]) for f in report["failures"]], [(f"units.{name}", "padding") for name in hang])
        for failure in report["failures"]:
            self.assertRegex(failure["message"], "weights are intact, but the official kernel would never end")
        for name in names:
            self.verify(self.source_file(golden_tensors(name, "u")), code=CORRUPT if name in hang else 0)

    def test_official_limits(self):
        dense, _ = reference.encode_unit(np.zeros(100_000, np.uint16))
        report = self.verify(self.source_file(as_tensors({name: np.asarray(dense[name]).tobytes() if name in dense else b""
                                                          for name in BUFFERS}, "u")), code=CORRUPT)
        self.assertEqual({f["kind"] for f in report["failures"]}, {"limit"})
        self.assertIn("23550", report["failures"][0]["message"])

    def test_more_tables_than_pointers_reach(self):
        for extra in (16, 17, 5000):  # behind one table
            tensors = golden_tensors("one_weight", "u")
            luts = tensors["u.luts"][2]
            tensors["u.luts"] = ("U8", [2 + extra, 256], luts[:256] * (1 + extra) + luts[256:])
            path = self.source_file(tensors)
            done = run("decompress", path, "-o", self.work / f"back_{extra}")
            if extra == 16:
                self.verify(path)
                self.assertEqual(done.returncode, 0, done.stderr)
                continue
            report = self.verify(path, code=CORRUPT)
            self.assertEqual([(f["unit"], f["kind"]) for f in report["failures"]], [("u", "limit")])
            self.assertEqual(done.returncode, CORRUPT)
            self.assertIn(f"there are {1 + extra} tables", done.stderr)

    def test_any_grouping_with_and_without_side_files(self):
        out = self.compressed()
        tensors = {}
        for path in sorted(out.glob("*.safetensors")):
            tensors |= reference.read_safetensors(path)[0]
        names = sorted(tensors)
        scattered = self.place()
        for part in range(3):
            reference.write_safetensors(scattered / f"{part}.safetensors", {name: tensors[name] for name in names[part::3]})
        shutil.copy(out / "config.json", scattered)
        self.verify(scattered, "--source", self.source)  # by the patterns of config.json
        (scattered / "config.json").unlink()
        self.verify(scattered)
        self.verify(scattered, "--source", self.source, "--arch", self.definition)
        done = run("verify", scattered, "--source", self.source)
        self.assertEqual(done.returncode, IMPOSSIBLE, done.stdout)  # no definition is known
        self.assertIn("--arch", done.stderr)
        (scattered / "weightpress.json").write_text("{")
        self.assertRegex(" ".join(self.verify(scattered)["notes"]), "weightpress.json.*not used")

    def test_every_layout_renames_casts_and_ties(self):
        tensors = {"net." + name: value for name, value in self.tensors.items()}
        floats = np.random.Generator(np.random.PCG64(1)).standard_normal(5000).astype("<f4")
        tensors |= {"net.layers.2.a.weight": ("F32", [5000], floats.tobytes()), "net.layers.2.b.weight": bf16(words(8, 10))}
        source = support.write_model(self.work / "renamed", tensors)
        for layout in ("transformers", "diffusers", "diffusers-single", "comfyui"):
            definition = self.work / f"{layout}.json"
            definition.write_text(json.dumps({"name": "test", "layout": layout, "family": "test", "strip_prefixes": ["net."],
                                              "pattern_dict": PATTERNS, "rules": {}, "provenance": "test"}))
            out = self.work / f"out-{layout}"
            done = run("compress", source, "-o", out, "--arch", definition, "--cast-to-bf16", "-q")
            self.assertEqual(done.returncode, 0, done.stderr)
            report = self.verify(out, "--source", source)
            self.assertRegex(" ".join(report["notes"]), "rounded to BF16")
            if layout == "comfyui":
                self.verify(out / "model.safetensors", "--source", source)  # the folder's record is the file's
            for record in out.glob("weightpress.json"):
                record.unlink()
            self.verify(out, "--source", source, "--arch", definition)


class WrongThings(VerifyCase):
    def test_wrong_sources(self):
        out = self.compressed()
        cases = {"shape": {"layers.0.a.weight": bf16(words(1, 59_999))}, "weight": {"head.weight": bf16(words(60, 90_000))},
                 "split": {"layers.0.a.weight": bf16(words(1, 59_999)), "layers.0.b.weight": bf16(words(2, 25_001))},
                 "tensor": {"embed.weight": bf16(words(70, 4000))}}
        for kind, changes in cases.items():
            source = support.write_model(self.work / kind, self.tensors | changes)
            report = self.verify(out, "--source", source, code=CORRUPT)
            self.assertEqual({f["kind"] for f in report["failures"]}, {kind}, report["failures"])
        fewer = {name: value for name, value in self.tensors.items() if name != "embed.weight"}
        report = self.verify(out, "--source", support.write_model(self.work / "fewer", fewer), code=CORRUPT)
        self.assertIn("embed.weight", {f["tensor"] for f in report["failures"]})
        more = support.write_model(self.work / "more", self.tensors | {"other": bf16(words(9, 4))})
        report = self.verify(out, "--source", more, code=CORRUPT)
        self.assertEqual([f["tensor"] for f in report["failures"]], ["other"])

    def test_lost_files(self):
        out = self.compressed()
        (out / "layers_1.safetensors").unlink()
        report = self.verify(out, "--source", self.source, code=CORRUPT)
        self.assertEqual({f["kind"] for f in report["failures"]}, {"tensor"})
        self.assertTrue(all("layers.1" in f["tensor"] for f in report["failures"]))

    def test_what_is_no_output(self):
        text = self.work / "text.safetensors"
        text.write_text("not a model")
        empty = self.place()
        pipe = self.work / "pipe.safetensors"
        os.mkfifo(pipe)
        for path, code in ((text, CORRUPT), (empty, IMPOSSIBLE), (self.work / "none", IMPOSSIBLE), (pipe, IMPOSSIBLE),
                           (self.source, IMPOSSIBLE), (self.definition, IMPOSSIBLE)):
            done = run("verify", path, timeout=20)
            self.assertIn(done.returncode, (code, CORRUPT, IMPOSSIBLE) if path == text else (code,), (path, done.stderr))
            self.assertTrue(done.stderr.startswith("weightpress: "), done.stderr)

    def test_any_flipped_bit_of_a_hashed_output_is_found(self):
        out = self.compressed("--hashes")
        generator = random.Random(SEED)
        print(f"seed {SEED}")
        for path in sorted(out.glob("*.safetensors")):
            sound = path.read_bytes()
            header_bits = 8 * (8 + int.from_bytes(sound[:8], "little"))
            bits = [generator.randrange(8 * len(sound)) for _ in range(15)] + [generator.randrange(header_bits) for _ in range(25)]
            for bit in bits:
                wrong = bytearray(sound)
                wrong[bit // 8] ^= 1 << bit % 8
                path.write_bytes(wrong)
                with self.subTest(file=path.name, bit=bit):
                    done = run("verify", out, "-q")
                    self.assertEqual(done.returncode, CORRUPT, done.stdout + done.stderr)
            path.write_bytes(sound)
        self.verify(out)

    def test_closed_output_and_quiet(self):
        out = self.compressed()
        self.assertEqual(run("verify", out, "-q").stdout, "")
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.assertEqual(run("verify", out, stdout=full).returncode, IMPOSSIBLE)


if __name__ == "__main__":
    unittest.main()
