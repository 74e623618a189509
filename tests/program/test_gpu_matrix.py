"""The files that `weightpress compress` writes with GPUs are those of --device cpu: over many combinations of GPUs, their memory,
the host's memory, threads and orders of events, through the emulated CUDA driver (tests/cuda_driver).

Models of every kind of unit, of the names of 37 real checkpoints (every dimension at most 16), and a trained one.

WEIGHTPRESS_SEED; WEIGHTPRESS_MATRIX: how many combinations of each kind, instead of a few. Standard library and numpy only.
"""
import collections
import json
import os
import random
import unittest

import support
import test_real_headers
from broken_runs import FOLDER_LAYOUTS, LAYOUTS, SEED, out_of, results
from test_gpu_compress import GpuCase, of_every_kind, of_long_units

COMBINATIONS = int(os.environ.get("WEIGHTPRESS_MATRIX", "0"))
REAL_MODEL = support.ROOT / "build" / "models" / "all-minilm-l6-v2"
MAX_DIMENSION = 16


def combination(choice, vrams):
    """Options of a run, variables of the emulated driver, and how many GPUs it has to use."""
    count = choice.choice((1, 1, 2, 2, 3))
    devices = {1: ("auto", "cuda", "cuda:0"), 2: ("cuda:0,1", "cuda:1,0"), 3: ("cuda:0,1,2", "cuda:2,0,1")}[count]
    settings = {"DEVICES": choice.randint(count, 3), "SEED": choice.randrange(1, 1000), "THREADS": choice.choice((1, 2)),
                "EAGER_PERCENT": choice.choice((0, 0, 30, 100)), "COUNT": 0}
    options = ["--device", choice.choice(devices), "--threads", choice.choice((1, 2, 3))]
    vram, ram = choice.choice(vrams), choice.choice((None, None, "128M", "300M", "1G"))
    options += ["--ram", ram] if ram else []
    options += ["--vram", vram] if vram else []
    return options, settings, count


class Matrix(GpuCase):
    def run_one(self, source, layout, options, settings, count, want, command=None):
        """command: what compresses it, otherwise with the test's own definition."""
        report_path = self.work / "report.json"
        environment = {**os.environ, **self.settings(**settings)}
        out = self.fresh_out(layout)
        all_options = ["--report", report_path, *options]
        if command is None:
            done = self.compress(source, out, layout, *all_options, env=environment)
        else:
            done = support.run(*command, "-o", out, *all_options, env=environment)
        self.assert_done(done)
        self.assert_same(out, want)
        report = json.loads(report_path.read_text())
        self.assertNotIn("the GPU failed", done.stderr)
        self.assertNotIn("goes on with", done.stderr)
        named = report["device"].split("), ")
        self.assertEqual(len(named), count, report["device"])
        self.assertTrue(all(name.startswith("cuda:") for name in named), report["device"])
        return done

    def test_every_kind_of_unit(self):
        choice, in_slabs = random.Random(SEED), 0
        models = {"kinds": of_every_kind(), "long": of_long_units()}
        sources = {name: support.write_model(self.work / name, tensors) for name, tensors in models.items()}
        vrams = {"kinds": (None, "400K", "500K", "1M", "4M"), "long": (None, "600K", "700K", "900K", "1100K", "1500K")}
        number = COMBINATIONS or 10
        for run in range(number):
            name = choice.choice(("kinds", "long", "long"))
            layout, fixed = choice.choice(LAYOUTS), choice.choice(([], [], ["--hashes"], ["--fast"], ["--luts", "safe"]))
            options, settings, count = combination(choice, vrams[name])
            if name == "kinds" and choice.random() < 0.3:
                settings["CHECK"] = "all"
            with self.subTest(seed=SEED, run=run, model=name, layout=layout, fixed=fixed, options=options, settings=settings):
                done = self.run_one(sources[name], layout, [*options, *fixed], settings, count,
                                    self.want(sources[name], layout, *fixed))
                in_slabs += "in slabs" in done.stderr
        print(f"seed {SEED}: {number} runs, {in_slabs} in slabs")
        self.assertGreater(in_slabs, number // 8)

    def test_names_of_real_checkpoints(self):
        choice, seen = random.Random(SEED), collections.Counter()
        headers = sorted(path.stem for path in test_real_headers.HEADERS.glob("*.json"))
        self.assertEqual(len(headers), 37)
        for header in headers:
            case = test_real_headers.header_case(header)
            case.spec = test_real_headers.cut(case.spec, MAX_DIMENSION)
            definition = test_real_headers.load_definition(case.definition)
            folder = self.place()
            source, _ = test_real_headers.make_source(folder, case, definition["layout"])
            command = ["compress", source]
            if header in test_real_headers.TO_BE_CAST:
                command.append("--cast-to-bf16")
            wanted = out_of(folder, definition["layout"])
            self.assert_done(support.run(*command, "-o", wanted, "--device", "cpu", "-q"))
            want = results(wanted)
            for run in range(COMBINATIONS or 1):
                options, settings, count = combination(choice, (None, "300K", "1M", "1G"))
                with self.subTest(seed=SEED, header=header, run=run, options=options, settings=settings):
                    self.run_one(source, definition["layout"], options, settings, count, want, command)
                    seen[count] += 1
        print(f"seed {SEED}: runs by GPUs {dict(seen)}")
        self.assertEqual(sorted(seen), [1, 2, 3])

    def test_a_trained_model(self):
        if not REAL_MODEL.is_dir():
            self.skipTest("no trained model: scripts/fetch-models brings it")
        choice, in_slabs = random.Random(SEED), 0
        number = COMBINATIONS or 3
        vrams, want = ("30M", None, "16M", "60M", "200M"), {}
        for run in range(number):
            layout = LAYOUTS[run % 2 * 3]
            self.assertEqual(layout in FOLDER_LAYOUTS, run % 2 == 0)
            command = ["compress", REAL_MODEL, "--cast-to-bf16", "--layout", layout]
            if layout not in want:
                wanted = out_of(self.place(), layout)
                self.assert_done(support.run(*command, "-o", wanted, "--device", "cpu", "-q"))
                want[layout] = results(wanted)
            options, settings, count = combination(choice, (vrams[run % len(vrams)],))
            with self.subTest(seed=SEED, run=run, layout=layout, options=options, settings=settings):
                done = self.run_one(REAL_MODEL, layout, options, settings, count, want[layout], command)
                in_slabs += "in slabs" in done.stderr
        print(f"seed {SEED}: {number} runs, {in_slabs} in slabs")
        self.assertGreater(in_slabs, 0)


if __name__ == "__main__":
    unittest.main()
