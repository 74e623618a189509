"""The official decode.ptx on a GPU, through the emulated CUDA driver: `compress` reads units back with it where they were made, and
`verify --engine=official --device cuda` runs it over finished files.

The kernel is that of the package dfloat11 (PyPI), which scripts/setup-python installs; without it these tests are skipped.
Standard library and numpy only.
"""
import collections
import json
import os
import unittest

import numpy as np

import support
from broken_runs import LAYOUTS, SEED, layered_tensors, out_of
from support import bf16, words
from test_gpu_compress import NAME, GpuCase, of_every_kind, of_long_units
from test_gpu_trouble import GAVE_UP, LESS_MEMORY
from test_verify_command import VerifyCase
from test_verify_faults import golden_names, golden_unit, hangs
from test_verify_official import KERNEL, VARIABLE


@unittest.skipIf(KERNEL is None, "no decode.ptx of dfloat11 0.5.0: scripts/setup-python installs it")
class OfficialCase(GpuCase):
    def setUp(self):
        super().setUp()
        os.environ[VARIABLE] = str(KERNEL)
        self.addCleanup(os.environ.pop, VARIABLE)

    def kernels(self, trace):
        return collections.Counter(line["name"] for line in trace if line["op"] == "kernel")


class InPlace(OfficialCase):
    def check(self, source, layout, *options, **settings):
        want = self.want(source, layout)
        done, report, trace = self.run_on_gpu(source, layout, "--device", "cuda", *options, settings=settings, traced=True)
        self.assert_done(done)
        self.assert_same(out_of(self.place_of_out, layout), want)
        self.assert_sound(trace)
        self.assert_pinned(trace)
        self.assertNotIn("the GPU failed", done.stderr)
        return report, self.kernels(trace)

    def test_every_kind_of_unit(self):
        source = support.write_model(self.work / "model", of_every_kind())
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                report, kernels = self.check(source, layout, CHECK="all")
                self.assertEqual(report["verifier"], "decode")
                # Once over each unit that went through the GPU, after our own.
                self.assertEqual(kernels["decode"], kernels["wp_decode"])
                self.assertGreater(kernels["decode"], 5)

    def test_in_slabs(self):
        source = support.write_model(self.work / "model", of_long_units())
        for layout, vram in (("transformers", "900K"), ("comfyui", "1500K")):
            with self.subTest(layout=layout, vram=vram):
                settings = {"CONTEXT_MEMORY": "256M", "MEMORY": f"{int(vram[:-1]) + 64 + 256 * 1024}K", "SEED": SEED}
                report, kernels = self.check(source, layout, "--vram", vram, CHECK="all" if layout == "comfyui" else "",
                                             **settings)
                self.assertEqual((report["verifier"], report["options"]["verifier"]), ("decode", "auto"))
                self.assertEqual(kernels["decode"], kernels["wp_decode"])
                self.assertGreater(kernels["decode"], 20)

    def test_what_is_chosen(self):
        source = support.write_model(self.work / "model", layered_tensors(1, 2000))
        for verifier, wanted in (("own", "wp_decode"), ("official", "decode"), ("auto", "decode")):
            report, kernels = self.check(source, "transformers", "--verifier", verifier)
            self.assertEqual((report["verifier"], "decode" in kernels), (wanted, wanted == "decode"))
        os.environ[VARIABLE] = str(self.work / "absent.ptx")
        report, kernels = self.check(source, "transformers")
        self.assertEqual((report["verifier"], "decode" in kernels), ("wp_decode", False))
        for options, told in ((("--device", "cuda"), "absent.ptx"), (("--device", "cpu"), "--verifier official takes a GPU")):
            out = self.fresh_out("transformers")
            done = self.compress(source, out, "transformers", "--verifier", "official", *options, env=self.settings())
            self.assert_fails(done, 2, told)
            self.assertFalse(out.exists())

    def test_flipped_bits_and_too_little_memory(self):
        source = support.write_model(self.work / "model", layered_tensors(1, 3000, SEED))
        want = self.want(source, "transformers")
        _, _, trace = self.run_on_gpu(source, "transformers", "--device", "cuda", "-q", "--threads", 1, traced=True)
        totals = next(line for line in trace if line["op"] == "totals")
        found = collections.Counter()
        plans = [{"FLIP_AT": k, "SEED": 100 * SEED + k % 7} for k in range(1, totals["launches"] + 1)]
        plans += [{"OOM_AT": k} for k in range(1, totals["allocations"] + 1, 3)]
        plans += [{"FAIL_LAUNCH_AT": k, "LAUNCH_RESULT": 719} for k in range(1, totals["launches"] + 1, 3)]
        for plan in plans:
            with self.subTest(**plan):
                done, report, _ = self.run_on_gpu(source, "transformers", "--device", "auto", "-q", "--threads", 1, settings=plan)
                self.assert_done(done)
                self.assert_same(out_of(self.place_of_out, "transformers"), want)
                gave_up = [line for line in done.stderr.splitlines() if line.startswith(GAVE_UP)]
                self.assertEqual(report["device"], "cpu" if gave_up or "CUDA_ERROR" in report["why_device"] else NAME)
                found[next(iter(plan)), "given up" if gave_up else "less" if LESS_MEMORY in done.stderr else "on"] += 1
        print(f"seed {SEED}: {dict(found)}")
        self.assertGreater(found["FLIP_AT", "given up"], 3)
        self.assertGreater(found["FAIL_LAUNCH_AT", "given up"], 3)


class Verify(OfficialCase):
    def verify(self, out, *options, settings=None, code=0):
        done = support.run("verify", out, "--engine", "official", "--json", *options,
                           env={**os.environ, **self.settings(**(settings or {}))})
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_the_interpreters_answers(self):
        source = support.write_model(self.work / "model", of_every_kind())
        for layout in ("transformers", "comfyui"):
            out = self.fresh_out(layout)
            self.assert_done(self.compress(source, out, layout, "-q", "--device", "cpu"))
            for options in ((), ("--source", source), ("--level", "sample", "--samples", "9", "--seed", "5")):
                with self.subTest(layout=layout, options=options):
                    said = {device: self.verify(out, *options, "--device", device, settings={"CHECK": "all"})[0]
                            for device in ("cpu", "cuda", "auto")}
                    for device, answer in said.items():
                        on_gpu = device != "cpu"
                        self.assertEqual(answer["verifier"], "decode" if on_gpu else "decode, interpreted")
                        self.assertEqual(answer["device"], NAME if on_gpu else "cpu")
                        self.assertEqual(answer["kernel"]["interpreted"], not on_gpu)
                        self.assertEqual((answer["ok"], answer["failures"], answer["engine"]), (True, [], "official"))
                        for key in ("chunks", "weights"):
                            self.assertEqual(answer["kernel"][key], said["cpu"]["kernel"][key])

    def test_faults_and_units_that_hang(self):
        names = [name for number, name in enumerate(golden_names()) if hangs(name) or number % 5 == 0]
        self.assertGreaterEqual(sum(map(hangs, names)), 2)
        damaged = golden_unit("three_exponents")
        gaps = bytearray(damaged["gaps"])
        gaps[3] ^= 0x10
        for name, unit in [*((name, golden_unit(name)) for name in names), ("damaged", {**damaged, "gaps": bytes(gaps)})]:
            path = VerifyCase.write_units(self, {"u": unit})
            with self.subTest(unit=name):
                code = 1 if name == "damaged" or hangs(name) else 0
                on_gpu = self.verify(path, "--device", "cuda", settings={"CHECK": "all"}, code=code)[0]
                interpreted = self.verify(path, "--device", "cpu", code=code)[0]
                self.assertEqual(on_gpu["failures"], interpreted["failures"])

    def test_a_gpu_that_fails(self):
        source = support.write_model(self.work / "model", layered_tensors(2, 3000))
        out = self.fresh_out("transformers")
        self.assert_done(self.compress(source, out, "transformers", "-q", "--device", "cpu"))
        for settings in ({"FAIL_LAUNCH_AT": 1}, {"FAIL_LAUNCH_AT": 2}, {"LOSE_DEVICE_AT": 90}, {"OOM_AT": 9, "OOM_STAYS": 1}):
            with self.subTest(**settings):
                answer, told = self.verify(out, "--device", "auto", settings=settings)
                self.assertTrue(answer["ok"])
                self.assertEqual(answer["verifier"], "decode, interpreted")
                self.assertIn("CUDA_ERROR", answer["why_device"])
                self.assertEqual(answer["kernel"]["chunks"], answer["num_chunks"])
                done = support.run("verify", out, "--engine", "official", "--device", "cuda",
                                   env={**os.environ, **self.settings(**settings)})
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("CUDA_ERROR", done.stderr)

    def test_another_kernel_is_interpreted(self):
        source = support.write_model(self.work / "model", {"layers.0.a.weight": bf16(words(1, 3000)),
                                                           "layers.0.b.weight": bf16(np.zeros(5, "<u2"))})
        support.write_definition(self.definition, {r"layers\.\d+": ["a", "b"]})
        out = self.fresh_out("transformers")
        self.assert_done(self.compress(source, out, "transformers", "-q", "--device", "cpu"))
        other = self.work / "other.ptx"
        other.write_text(KERNEL.read_text() + "\n// another\n")
        answer, _ = self.verify(out, "--kernel", other)
        self.assertEqual((answer["device"], answer["verifier"]), ("cpu", "decode, interpreted"))
        done = support.run("verify", out, "--engine", "official", "--device", "cuda", "--kernel", other,
                           env={**os.environ, **self.settings()})
        self.assertEqual(done.returncode, 2, done.stderr)


if __name__ == "__main__":
    unittest.main()
