"""`weightpress estimate`: the sum of the sizes that compress leaves, to the byte, and nothing is written anywhere.

Standard library and numpy only.
"""
import json
import os
import re
import subprocess
import unittest

import numpy as np

import support
from broken_runs import IS_SANITIZED, LAYOUTS, SEED, layered_tensors, out_of
from sources import SourceCase, fingerprint, floats, index_of, model_tensors, run_measured, tensors_file
from support import bf16, run, words

PATTERNS = {r"embed": [], r"layers\.\d+": ["a", "b"]}
MEMBERS = ["output_bytes", "source_bytes", "num_files", "units", "kept_tensors", "unit_source_bytes", "unit_output_bytes"]


class EstimateCase(SourceCase):
    def estimate(self, source, *options, definition=None, **keywords):
        return run("estimate", source, "--arch", definition or self.definition, *options, timeout=120, **keywords)

    def compress_all(self, source, layout, *options, definition=None):
        """(files that compress leaves, its report)"""
        folder = self.place()
        out, report = out_of(folder, layout), self.work / "report.json"
        done = support.compress(source, out, definition or self.definition, "--layout", layout, "--report", report, *options)
        self.assert_done(done)
        files = [path for path in (out.rglob("*") if out.is_dir() else folder.iterdir()) if path.is_file()]
        return files, json.loads(report.read_text())

    def check(self, source, layout, *options, definition=None):
        """Estimate and compress agree in everything. Returns the estimate."""
        before = fingerprint(self.work)
        done = self.estimate(source, "--layout", layout, *options, "--json", definition=definition)
        self.assert_done(done)
        self.assertEqual(fingerprint(self.work), before, "something was written")
        told = json.loads(done.stdout)
        files, report = self.compress_all(source, layout, *options, definition=definition)
        self.assertEqual(told["output_bytes"], sum(path.stat().st_size for path in files), [path.name for path in files])
        self.assertEqual(told["num_files"], len(files), [path.name for path in files])
        for member in ("output_bytes", "source_bytes", "units", "kept_tensors", "unit_source_bytes", "unit_output_bytes"):
            self.assertEqual(told[member], report[member], member)
        return told


class Sizes(EstimateCase):
    def setUp(self):
        super().setUp()
        self.definition = support.write_definition(self.work / "arch.json", PATTERNS)

    def test_every_layout_and_option(self):
        source = support.write_model(self.work / "model", layered_tensors(4, 20_000, SEED), config=b'{"model_type": "llama"}')
        (source / "generation_config.json").write_text('{"a": 1}\n')
        for layout in LAYOUTS:
            for options in ([], ["--hashes"], ["--with-config"], ["--luts", "safe"], ["--cast-to-bf16"], ["--keep-unencodable"],
                            ["--fast"], ["--strict-identity"], ["--threads", 1], ["--ram", "256M"],
                            ["--hashes", "--with-config", "--luts", "safe", "--cast-to-bf16", "--keep-unencodable", "--fast"]):
                with self.subTest(layout=layout, options=options, seed=SEED):
                    told = self.check(source, layout, *options)
                    self.assertEqual([member for member in MEMBERS if member in told], MEMBERS)

    def test_units_that_are_kept(self):
        inf = words(4, 2000)
        inf[7] = 0x7F80
        tensors = model_tensors(3) | {"layers.1.a.weight": bf16(inf, [20, 100])}
        source = support.write_model(self.work / "model", tensors)
        for layout in LAYOUTS:
            for options in ([], ["--hashes"], ["--cast-to-bf16", "--with-config"]):
                with self.subTest(layout=layout, options=options):
                    told = self.check(source, layout, "--keep-unencodable", *options)
                    self.assertEqual(told["units"], len(["embed", "layers.0", "layers.2"]))

    def test_casts(self):
        """Of a unit, of a kept tensor, of one that overflows."""
        values = np.array([1.0001] * 500 + [1e-42, 3.4e38], np.float32)
        tensors = model_tensors(2) | {"layers.0.a.weight": floats("F32", np.linspace(-1, 1, 3000, dtype=np.float32)),
                                      "layers.0.b.weight": floats("F16", np.linspace(-1, 1, 200, dtype=np.float16)),
                                      "norm.weight": floats("F32", values)}
        source = support.write_model(self.work / "model", tensors)
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                self.check(source, layout, "--cast-to-bf16")
                self.check(source, layout, "--cast-to-bf16", "--hashes")

    def test_units_with_a_coding_of_their_own(self):
        """One symbol alone, and so many weights that a chunk would be too dense; Fibonacci counts, whose codes are long."""
        counts, fibonacci = (1, 1), []
        for symbol in range(22):
            fibonacci.append(np.full(counts[0], symbol + 90))
            counts = counts[1], sum(counts)
        exponents = np.random.Generator(np.random.PCG64(SEED)).permutation(np.concatenate(fibonacci))
        tensors = model_tensors(1) | {"embed.weight": bf16(np.zeros(100_000, "<u2")),
                                      "layers.0.a.weight": bf16((exponents << 7).astype("<u2"))}
        source = support.write_model(self.work / "model", tensors)
        for layout in LAYOUTS:
            for options in ([], ["--luts", "safe"]):
                with self.subTest(layout=layout, options=options):
                    self.check(source, layout, *options)

    def test_ties_and_dropped_tensors(self):
        tied = self.define({r"lm_head": [], r"model\.embed_tokens": [], r"model\.layers\.\d+": ["a", "b"]}, drop=["^gone"],
                           tied_lm_head=True)
        embedded = bf16(words(1, 6000), [60, 100])
        body = {f"model.{name}": tensor for name, tensor in model_tensors(2).items() if name != "embed.weight"}
        body |= {"model.embed_tokens.weight": embedded, "gone.weight": bf16(words(3, 100))}
        sources = [support.write_model(self.work / name, body | more, config=json.dumps({
            "model_type": "llama", "tie_word_embeddings": tie}).encode()) for name, more, tie in (
                ("once", {}, True), ("twice", {"lm_head.weight": embedded}, True),
                ("apart", {"lm_head.weight": bf16(words(9, 6000), [60, 100])}, False))]
        for layout in LAYOUTS:
            for source in sources:
                with self.subTest(layout=layout, source=source.name):
                    self.check(source, layout, definition=tied)

    def test_shards_with_an_index(self):
        tensors = model_tensors(3)
        names = sorted(tensors)
        files = {f"model-0000{number + 1}-of-00003.safetensors": {name: tensors[name] for name in names[number::3]}
                 for number in range(3)}
        source = self.source_folder(files, index=index_of(files))
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                self.check(source, layout)

    def test_a_file_alone(self):
        source = self.source_file(tensors_file(model_tensors(2)))
        (source.parent / "config.json").write_bytes(support.CONFIG)
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                self.check(source, layout)

    def test_of_the_sizes_of_units(self):
        """With units at the borders of windows, chunks and segments."""
        sizes = [1, 2, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097, 32767, 32768, 32769, 65536, 131071, 262145]
        pool = words(SEED, 300_000)
        source = support.write_model(self.work / "model", {f"layers.{number}.{part}.weight": bf16(pool[number:number + size])
                                                           for number, size in enumerate(sizes) for part in ("a", "b")})
        definition = self.define({r"layers\.\d+": ["a", "b"]})
        for layout in ("transformers", "comfyui"):
            with self.subTest(layout=layout):
                self.check(source, layout, definition=definition)

    def test_the_layout_and_definition_that_compress_takes(self):
        """Without --layout the definition's."""
        source = support.write_model(self.work / "model", model_tensors(2))
        for layout in LAYOUTS:
            definition = self.define(PATTERNS, layout=layout)
            with self.subTest(layout=layout):
                told = json.loads(self.estimate(source, "--json", definition=definition).stdout)
                self.assertEqual(told["output_bytes"], self.check(source, layout, definition=definition)["output_bytes"])


class Behaviour(EstimateCase):
    def setUp(self):
        super().setUp()
        self.definition = support.write_definition(self.work / "arch.json", PATTERNS)
        self.source = support.write_model(self.work / "model", layered_tensors(2, 9000, SEED) | model_tensors(2))

    def test_text(self):
        told = json.loads(self.estimate(self.source, "--json").stdout)
        done = self.estimate(self.source)
        self.assert_done(done)
        digits = re.sub(r"(?<=\d)[,_' ](?=\d{3})", "", done.stdout)
        self.assertIn(str(told["output_bytes"]), digits, "the exact size is not told")
        self.assertNotRegex(done.stdout, r"[\x00-\x08\x0b-\x1f\x7f]")

    def test_results_alone_on_standard_output(self):
        for options in ((), ("--json",)):
            done = self.estimate(self.source, *options)
            self.assert_done(done)
            self.assertNotIn("note:", done.stdout)
        json.loads(done.stdout)

    def test_nothing_is_written(self):
        """Not beside the source, not in the working folder, not in /tmp."""
        elsewhere = self.place()
        scratch = self.place()
        before = fingerprint(self.work)
        done = self.estimate(self.source, "--json", cwd=elsewhere, env={**os.environ, "TMPDIR": str(scratch), "HOME": str(scratch)})
        self.assert_done(done)
        self.assertEqual(fingerprint(self.work), before)

    def test_on_a_disk_that_cannot_be_written(self):
        script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && ! touch "$1/x" 2>/dev/null || exit 77; shift; "$@"'
        done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", self.work, support.PROGRAM,
                               "estimate", self.source, "--arch", self.definition, "--json"], text=True, capture_output=True,
                              timeout=60, check=False, cwd=self.work)
        if done.returncode == 77 or "unshare:" in done.stderr:
            self.skipTest(f"no mount name spaces here: {done.stderr}")
        self.assert_done(done)
        here, there = (json.loads(run.stdout) for run in (done, self.estimate(self.source, "--json")))
        for result in here, there:
            del result["seconds"], result["peak_memory_bytes"]
        self.assertEqual(here, there)

    def test_errors_are_those_of_compress(self):
        inf = words(4, 2000)
        inf[7] = 0x7F80
        float_unit = ("F32", [20, 100], words(4, 4000).tobytes())
        sound = model_tensors(2)
        cases = {"inf": sound | {"layers.1.a.weight": bf16(inf)}, "dtype": sound | {"layers.1.a.weight": float_unit},
                 "missing": {name: tensor for name, tensor in sound.items() if name != "layers.1.b.weight"},
                 "empty": sound | {"layers.1.a.weight": ("BF16", [0], b""), "layers.1.b.weight": ("BF16", [0], b"")}}
        for what, tensors in cases.items():
            source = support.write_model(self.work / f"bad_{what}", tensors)
            for layout in LAYOUTS:
                with self.subTest(what=what, layout=layout):
                    self.assert_same_error(source, "--layout", layout)
        with self.subTest("no such source"):
            self.assert_same_error(self.work / "nowhere")
        with self.subTest("no safetensors file"):
            path = self.source_file(b"hello, this is no model at all\n" * 50)
            self.assert_same_error(path)
        with self.subTest("no config.json"):
            self.assert_same_error(support.write_model(self.work / "bare", sound, config=None), "--layout", "transformers")
        with self.subTest("no such definition"):
            self.assert_same_error(self.source, "--arch", self.work / "none.json", definition=False)
        with self.subTest("strict"):
            source = support.write_model(self.work / "one", sound | {"embed.weight": bf16(np.zeros(100_000, "<u2"))})
            self.assert_same_error(source, "--strict-identity")

    def assert_same_error(self, source, *options, definition=True):
        arch = ["--arch", self.definition] if definition else []
        before = fingerprint(self.work)
        wanted = run("compress", source, "-o", self.work / "out", *arch, *options, "--progress", "none")
        self.assertNotEqual(wanted.returncode, 0)
        done = run("estimate", source, *arch, *options)
        self.assertEqual(done.returncode, wanted.returncode, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(self.last_line(done.stderr), self.last_line(wanted.stderr))
        self.assertEqual(fingerprint(self.work), before)

    @staticmethod
    def last_line(text):
        return ([line for line in text.splitlines() if line.startswith("weightpress:")] or [text])[-1]

    def test_usage(self):
        for arguments in ([], [self.source, "--no-such-option"], [self.source, "--layout", "round"], [self.source, "--ram", "0"],
                          [self.source, self.source], [self.source, "--luts", "quick"]):
            with self.subTest(arguments=arguments):
                done = run("estimate", *arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertTrue(done.stderr)

    def test_help(self):
        done = run("estimate", "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(support.mentions(done.stdout, "example", "weightpress estimate", "--json"), done.stdout)
        self.assertTrue(support.mentions(run("--help").stdout, r"\bestimate\b"))

    def test_a_closed_output_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = self.estimate(self.source, stdout=full)
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_within_its_memory(self):
        if IS_SANITIZED:
            self.skipTest("a sanitizer's own memory counts too")
        pool = words(SEED, 1_000_000)
        source = support.write_model(self.work / "large", {"embed.weight": bf16(np.tile(pool, 60))})
        definition = self.define({r"embed": []})
        for layout in ("transformers", "comfyui"):
            with self.subTest(layout=layout):
                done, peak = run_measured("estimate", source, "--arch", definition, "--layout", layout, "--ram", "64M", "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertLess(peak * 1.048576, 64)


if __name__ == "__main__":
    unittest.main()
