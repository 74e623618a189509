"""`weightpress compress` and `estimate` with --device, through the emulated CUDA driver (tests/cuda_driver).

The files are those of --device cpu whatever the layout, the options, the order in which the GPU works and the memory it has. A
run that was killed goes on with another device. The times of the emulator's trace show that copies and kernels overlap.

WEIGHTPRESS_SEED. Standard library and numpy only.
"""
import ctypes
import itertools
import json
import os
import pathlib
import random
import re
import signal
import unittest

import numpy as np

import support
from broken_runs import FILE_LAYOUTS, LAYOUTS, SEED, BrokenRuns, layered_tensors, out_of, partial_of, remove, results
from sources import floats
from support import bf16, reference, words, words_of_exponents

EMULATOR = os.environ["WEIGHTPRESS_EMULATED_CUDA"]  # the folder of its libcuda.so.1
NAME = "cuda:0 (weightpress emulated GPU, PTX for compute_75)"
IN_SLABS = r"(?m)^note: units of more than \d+ weights go through the GPU in slabs: the longest unit takes (\d+) bytes"
TROUBLES = ("left_over", "context_lost", "device_lost")  # in a trace
SEGMENT = 8 * 4096 - 512  # weights that one thread block encodes


def pruned(seed, count, share=0.7):
    """Most are zero: their code has one bit, which the plan has to look at the weights for."""
    found = words(seed, count)
    found[np.random.Generator(np.random.PCG64(seed)).random(count) < share] = 0
    return found


def of_exponents(seed, count, weights):
    """exponent by exponent, from 100 on, with these relative weights."""
    generator = np.random.Generator(np.random.PCG64(seed))
    share = np.array(weights) / sum(weights)
    return words_of_exponents(generator.choice(np.arange(100, 100 + len(weights)), count, p=share), generator)


def of_every_kind():
    """Unit embed is normal; head is one weight; units layers.N: long, pruned, of one exponent, two, many."""
    fibonacci = [1.0, 1.0]
    while len(fibonacci) < 30:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    layers = [(words(10, SEGMENT), words(11, 1)), (words(12, 2 * SEGMENT), words(13, 70)),
              (pruned(14, 6000), pruned(15, 3001)), (np.zeros(5000, "<u2"), np.zeros(1, "<u2")),
              (of_exponents(16, 4000, [1]), of_exponents(17, 3000, [1, 3])), (words(18, 1), words(19, 1)),
              (of_exponents(20, 9000, fibonacci), words(21, 100)), (words(22, 511, 3.0), words(23, 5000))]
    tensors = {"embed.weight": bf16(words(1, 30_011)), "head.weight": bf16(words(2, 1)), "norm.weight": bf16(words(3, 77)),
               "table": floats("F32", [0.5, 1.25, -3.0]), "step": ("I64", [], bytes(8))}
    for number, (a, b) in enumerate(layers):
        tensors |= {f"layers.{number}.a.weight": bf16(a), f"layers.{number}.b.weight": bf16(b),
                    f"layers.{number}.norm.weight": bf16(words(40 + number, 9))}
    return tensors


def of_long_units():
    """Of several slabs each where little memory may be used, of codes of every length; and shorter ones between."""
    fibonacci = [1.0, 1.0]
    while len(fibonacci) < 33:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    layers = [words(10, 9 * SEGMENT), words(11, 3000), of_exponents(12, 250_001, [1, 1, 1, 1]), words(13, SEGMENT),
              of_exponents(14, 8 * SEGMENT + 1, [1] * 130), of_exponents(15, 300_000, fibonacci), words(16, 40_000)]
    return {"embed.weight": bf16(words(1, 280_007)), "head.weight": bf16(words(2, 5000))} | {
        f"layers.{number}.{name}.weight": bf16(found) for number, layer in enumerate(layers)
        for name, found in (("a", layer[:1000]), ("b", layer[1000:]))}


def check_overlap(case, what, trace, most):
    """From the times of a trace: copies in, kernels and copies out run beside each other, and all takes at most so many times as
    long as the busiest of them."""
    def both(one, other):
        """How long both are busy."""
        total, i, j = 0, 0, 0
        while i < len(one) and j < len(other):
            total += max(0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
            if one[i][1] < other[j][1]:
                i += 1
            else:
                j += 1
        return total

    spans = {engine: sorted((line["start_ns"], line["end_ns"]) for line in trace if line.get("engine") == engine)
             for engine in ("copy_in", "compute", "copy_out")}
    busy = {engine: sum(end - start for start, end in found) for engine, found in spans.items()}
    end = max(line["end_ns"] for line in trace if "end_ns" in line)
    print(f"{what}: {end} ns in all, busy {busy}: {end / max(busy.values()):.3f} times the busiest")
    for one, other in itertools.combinations(spans, 2):
        together = both(spans[one], spans[other])
        case.assertGreaterEqual(together, 0.3 * min(busy[one], busy[other]), f"{one} and {other}: {together} of {busy}")
    case.assertLessEqual(end, most * max(busy.values()))


class GpuCase(BrokenRuns):
    def setUp(self):
        super().setUp()
        self.wanted = {}

    @staticmethod
    def settings(libraries=EMULATOR, **settings):
        """Environment of a run: the emulator's variables without their prefix."""
        others = [name for name in os.environ if name.startswith("WEIGHTPRESS_CUDA_")]
        assert not others, f"the environment has {others}"
        variables = {f"WEIGHTPRESS_CUDA_{name}": str(value) for name, value in settings.items()}
        return {"LD_LIBRARY_PATH": str(libraries), **variables}

    def fresh_out(self, layout):
        remove(self.place_of_out)
        self.place_of_out.mkdir()
        return out_of(self.place_of_out, layout)

    def want(self, source, layout, *options):
        """The CPU's files."""
        key = source, layout, options
        if key not in self.wanted:
            self.wanted[key] = self.unbroken(source, layout, "--device", "cpu", *options)
        return self.wanted[key]

    def run_on_gpu(self, source, layout, *options, settings=None, traced=False):
        """Returns the finished process, the report, and the trace if it is wanted."""
        out, report, trace = self.fresh_out(layout), self.work / "report.json", self.work / "trace"
        more = {"TRACE": trace} if traced else {}
        trace.write_text("")
        done = self.compress(source, out, layout, "--report", report, *options, env=self.settings(**more, **(settings or {})))
        lines = [json.loads(line) for line in trace.read_text().splitlines()] if traced else None
        self.trace = lines
        return done, json.loads(report.read_text()), lines

    def assert_sound(self, trace):
        self.assertEqual([line for line in trace if line["op"] in TROUBLES or "failure" in line], [])
        self.assertTrue(all(line["state"] == "done" for line in trace if "state" in line))

    def assert_pinned(self, trace):
        copies = [line for line in trace if line["op"] in ("copy_in", "copy_out")]
        self.assertEqual([line for line in copies if not line["pinned"]], [])


class SameFiles(GpuCase):
    def setUp(self):
        super().setUp()
        self.source = support.write_model(self.work / "model", of_every_kind())

    def check(self, source, layout, *options, settings=None, device="cuda", slabs=False, as_options=()):
        """as_options: that change the files. Files, report and messages are right. Returns the process and the report."""
        want = self.want(source, layout, *as_options)
        done, report, trace = self.run_on_gpu(source, layout, "--device", device, *as_options, *options, settings=settings,
                                              traced=True)
        self.assert_done(done)
        self.assert_same(out_of(self.place_of_out, layout), want)
        self.assertEqual((report["device"], report["status"]), (NAME, "done"))
        self.assertEqual(report["why_device"], "it was asked for" if device != "auto" else "a GPU that can be used is there")
        verifier = "" if "--fast" in as_options else "wp_decode"
        self.assertEqual(report["verifier"], verifier)
        kernels = {line["name"] for line in trace if line["op"] == "kernel"}
        self.assertIn("wp_encode", kernels)
        self.assertEqual("wp_decode" in kernels, verifier == "wp_decode")
        self.assertEqual(bool(re.search(IN_SLABS, done.stderr)), slabs, done.stderr)
        self.assertNotIn("the GPU failed", done.stderr)
        self.assert_sound(trace)
        self.assert_pinned(trace)
        return done, report

    def test_of_every_layout(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                _, report = self.check(self.source, layout, settings={"CHECK": "all"}, device="auto")
                # The pruned one goes back to the CPU.
                self.assertEqual(report["memory"]["units_held"] + report["memory"]["units_streamed"], report["units"])
                self.assertEqual(report["units"], 10)

    def test_by_the_slow_model(self):
        source = support.write_model(self.work / "layered", layered_tensors(3, 5000))
        self.check(source, "transformers")
        self.assertEqual(reference.check(str(source), str(out_of(self.place_of_out, "transformers"))), 0)

    def test_options_that_change_files(self):
        for options in (["--hashes"], ["--fast"], ["--luts", "safe"], ["--with-config"], ["--hashes", "--fast"]):
            for layout in ("transformers", "comfyui"):
                with self.subTest(options=options, layout=layout):
                    self.check(self.source, layout, as_options=options)

    def test_rounded_tensors(self):
        generator = np.random.Generator(np.random.PCG64(5))
        tensors = {"embed.weight": floats("F32", generator.standard_normal(5000) * 0.02), "head.weight": bf16(words(3, 700)),
                   "norm.weight": floats("F16", [1.0, 0.1])}
        for layer in range(3):
            tensors |= {f"layers.{layer}.a.weight": floats("F16", generator.standard_normal(3000) * 0.02),
                        f"layers.{layer}.b.weight": floats("F32", generator.standard_normal(2000))}
        source = support.write_model(self.work / "mixed", tensors)
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                _, report = self.check(source, layout, as_options=["--cast-to-bf16"])
                out = self.fresh_out(layout)
                path = self.work / "cpu.json"
                self.assert_done(self.compress(source, out, layout, "--cast-to-bf16", "--device", "cpu", "--report", path))
                self.assertEqual(report["cast"], json.loads(path.read_text())["cast"])

    def test_units_that_are_kept(self):
        tensors = of_every_kind()
        bad = words(1, 4000)
        bad[3000] = 0x7F80  # infinity
        for name in ("layers.1.b.weight", "layers.7.a.weight"):
            tensors[name] = bf16(bad)
        tensors["layers.4.a.weight"] = floats("F32", [1.0, 2.0])
        source = support.write_model(self.work / "infinite", tensors)
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                _, report = self.check(source, layout, as_options=["--keep-unencodable"])
                self.assertEqual([unit["unit"] for unit in report["kept_units"]], ["layers.4", "layers.1", "layers.7"])
        tensors["layers.4.a.weight"] = bf16(words(1, 2))
        source = support.write_model(self.work / "refused", tensors)
        for layout in ("transformers", "comfyui"):
            said = {}
            for device in ("cpu", "cuda"):
                out = self.fresh_out(layout)
                done = self.compress(source, out, layout, "--device", device, "--progress", "none", env=self.settings())
                self.assertEqual(done.returncode, 2)
                self.assertFalse(out.exists())
                said[device] = done.stderr
            self.assertEqual(said["cuda"], said["cpu"])
            self.assertTrue(support.mentions(said["cuda"], r"layers\.1\.b\.weight", "weight 3000"), said["cuda"])

    def test_units_longer_than_the_gpus_memory(self):
        source = support.write_model(self.work / "long", of_long_units())
        runs = [("transformers", "600K"), ("diffusers-single", "700K"), ("comfyui", "850K"), ("transformers", "1100K"),
                ("diffusers", "1250K")]
        for seed, (layout, vram) in enumerate(runs):
            for fixed in ([], ["--fast"]) if seed == 0 else ([],):
                with self.subTest(layout=layout, vram=vram, fixed=fixed):
                    done, report = self.check(source, layout, "--vram", vram, slabs=True, as_options=fixed,
                                              settings={"SEED": seed, "CHECK": "all" if seed == 1 else "",
                                                        "CONTEXT_MEMORY": "256M", "MEMORY": f"{int(vram[:-1]) + 64 + 256 * 1024}K"})
                    self.assertEqual(report["options"]["vram"], int(vram[:-1]) << 10)
                    self.assertEqual(len([note for note in report["notes"] if "in slabs" in note]), 1)
                    self.assertRegex(done.stderr, rf"of which {int(vram[:-1]) << 10} may be used")
                    self.assertNotIn("goes on with", done.stderr)
        # A card that is nearly full.
        self.check(source, "transformers", settings={"MEMORY": "257M", "CONTEXT_MEMORY": "256M"}, slabs=True)

    def test_units_of_many_slabs_cross_the_bus_twice_and_overlap(self):
        """The longest unit alone: copies in both directions and kernels beside each other."""
        weights = 2_000_000
        support.write_definition(self.definition, {r"layers\.\d+": ["a"]})
        source = support.write_model(self.work / "one", {"layers.0.a.weight": bf16(words(1, weights))})
        done, report, trace = self.run_on_gpu(source, "transformers", "--device", "cuda", "--vram", "3M", "--threads", 1,
                                              traced=True)
        self.assert_done(done)
        self.assert_same(out_of(self.place_of_out, "transformers"), self.want(source, "transformers"))
        copied = sum(line["bytes"] for line in trace if line["op"] == "copy_in")
        self.assertLessEqual(copied, 2 * (2 * weights) * 1.5)
        self.assertGreaterEqual(copied, 2 * (2 * weights))
        self.assertGreaterEqual(len([line for line in trace if line.get("name") == "wp_decode"]), 10)
        check_overlap(self, "in slabs", trace, 1.35)

    def test_a_card_with_no_more_than_vram(self):
        """Units of long codes: more of them is written than usual."""
        weights, generator = 1_500_000, np.random.Generator(np.random.PCG64(1))
        even = words_of_exponents(generator.integers(1, 240, weights), generator)
        tensors = {f"layers.{layer}.{part}.weight": bf16(even) for layer in range(2) for part in "ab"}
        support.write_definition(self.definition, {r"layers\.\d+": ["a", "b"]})
        source = support.write_model(self.work / "even", tensors)
        options = ("estimate", source, "--arch", self.definition, "--device", "cuda", "--vram", "1M")
        least = int(re.search(IN_SLABS, support.run(*options, env={**os.environ, **self.settings(COUNT=0)}).stderr)[1])
        # Room for both units, with the counts of their segments.
        vram = (least + 2 * 2 * weights) // 1024 + 128
        settings = {"CONTEXT_MEMORY": "256M", "MEMORY": f"{vram + 64 + 256 * 1024}K", "COUNT": 0}
        self.check(source, "transformers", "--vram", f"{vram}K", settings=settings)

    def test_estimate(self):
        for layout in LAYOUTS:
            said = {}
            for device, options in (("cpu", []), ("cuda", []), ("auto", ["--vram", "1M"])):
                environment = {**os.environ, **self.settings(CHECK="all" if layout == "comfyui" else "")}
                done = support.run("estimate", self.source, "--arch", self.definition, "--layout", layout, "--json",
                                   "--device", device, *options, env=environment)
                self.assertEqual(done.returncode, 0, done.stderr)
                said[device] = json.loads(done.stdout)
                for volatile in ("seconds", "peak_memory_bytes"):
                    del said[device][volatile]
            self.assertEqual(said["cuda"], said["cpu"], layout)
            self.assertEqual(said["auto"], said["cpu"], layout)
            sizes = sum(len(content) for content in self.want(self.source, layout).values())
            self.assertEqual(said["cuda"]["output_bytes"], sizes)


class KilledRuns(GpuCase):
    """SIGKILL at a chosen write; the same command goes on, on the same device or another."""

    def test_any_device_goes_on(self):
        self.need_shim()
        source = support.write_model(self.work / "model", layered_tensors(6, 4000, SEED))
        choice = random.Random(SEED)
        killed, went_on = 0, 0
        for layout, (first, second) in itertools.product(LAYOUTS, (("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda"))):
            for options in ([], ["--hashes"]):
                want = self.want(source, layout, *options)
                out = self.fresh_out(layout)
                count = self.work / "count"
                rule = f"write|/{partial_of(out).name}|"
                self.assert_done(self.compress(source, out, layout, *options, "--device", first, count=count,
                                               trouble=rule + "1000000|kill", env=self.settings()))
                calls = int(count.read_text())
                for call in sorted(choice.sample(range(2, calls + 1), 3)):
                    action = choice.choice(("kill", "half", "killafter"))
                    with self.subTest(seed=SEED, layout=layout, options=options, devices=(first, second), call=call,
                                      action=action):
                        out = self.fresh_out(layout)
                        done = self.compress(source, out, layout, *options, "--device", first, trouble=f"{rule}{call}|{action}",
                                             env=self.settings(SEED=call))
                        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
                        killed += 1
                        done = self.compress(source, out, layout, *options, "--device", second, env=self.settings(SEED=call))
                        self.assert_done(done)
                        went_on += "went on" in done.stderr
                        self.assert_same(out, want)
        print(f"seed {SEED}: {killed} kills, {went_on} runs went on with finished units")
        self.assertGreater(2 * went_on, killed // 2)


class Overlap(GpuCase):
    """Virtual time: what the emulator's engines do when, on a host that never makes them wait."""
    UNITS, WEIGHTS = 20, 600_000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        pool = words(SEED, cls.WEIGHTS + cls.UNITS)
        cls.tensors = {}
        for unit in range(cls.UNITS):
            mine = pool[unit:unit + cls.WEIGHTS]
            cls.tensors |= {f"layers.{unit}.a.weight": bf16(mine[:400_000]),
                            f"layers.{unit}.b.weight": bf16(mine[400_000:])}

    def check(self, layout, passes, *options):
        support.write_definition(self.definition, {r"layers\.\d+": ["a", "b"]})
        source = support.write_model(self.work / "equal", self.tensors)
        done, report, trace = self.run_on_gpu(source, layout, "--device", "cuda", "--threads", 1, *options, traced=True)
        self.assert_done(done)
        self.assert_same(out_of(self.place_of_out, layout), self.want(source, layout))
        self.assert_sound(trace)
        self.assert_pinned(trace)
        self.assertEqual(report["verifier"], "wp_decode")
        weights = self.UNITS * self.WEIGHTS
        copied = sum(line["bytes"] for line in trace if line["op"] == "copy_in")
        self.assertLessEqual(copied, 2.1 * passes * weights)
        self.assertGreaterEqual(copied, 2 * weights)
        return trace

    def test_in_a_folder_weights_cross_the_bus_once(self):
        check_overlap(self, "folder", self.check("transformers", 1), 1.15)

    def test_in_a_single_file_twice(self):
        check_overlap(self, "single file", self.check("comfyui", 2, "--vram", "7M"), 1.15)

    def test_in_a_single_file_once_if_there_is_memory_for_all(self):
        """Nothing is written before all is counted: in, then out."""
        trace = self.check("comfyui", 1)
        busy = {engine: sum(line["end_ns"] - line["start_ns"] for line in trace if line.get("engine") == engine)
                for engine in ("copy_in", "copy_out")}
        end = max(line["end_ns"] for line in trace if "end_ns" in line)
        print(f"single file, all kept: {end} ns, {end / sum(busy.values()):.3f} times copies in and out together")
        self.assertLessEqual(end, 1.15 * sum(busy.values()))


class Devices(GpuCase):
    def setUp(self):
        super().setUp()
        self.source = support.write_model(self.work / "model", layered_tensors(1, 1000))

    def assert_on_the_cpu(self, why, settings=None, **keywords):
        """auto takes the CPU and says why; cuda does not."""
        out = self.fresh_out("transformers")
        report = self.work / "report.json"
        environment = self.settings(**keywords, **(settings or {}))
        done = self.compress(self.source, out, "transformers", "-v", "--report", report, env=environment)
        self.assert_done(done)
        self.assertRegex(done.stderr, rf"(?m)^note: device: cpu, since .*{why}")
        found = json.loads(report.read_text())
        self.assertEqual((found["device"], found["verifier"]), ("cpu", "host decoder"))
        self.assertRegex(found["why_device"], why)
        self.assert_same(out, self.want(self.source, "transformers"))
        out = self.fresh_out("transformers")
        self.assertNotIn("device", self.compress(self.source, out, "transformers", "-q", env=environment).stderr)
        out = self.fresh_out("transformers")
        done = self.compress(self.source, out, "transformers", "--device", "cuda", env=environment)
        self.assert_fails(done, 2, r"--device cuda: .*" + why)
        self.assertFalse(out.exists() or partial_of(out).exists())

    def test_no_driver(self):
        folder = self.place()
        (folder / "libcuda.so.1").write_text("not a library")
        self.assert_on_the_cpu("the NVIDIA driver cannot be loaded", libraries=folder)
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            self.assert_on_the_cpu("driver", libraries=self.place())

    def test_drivers_that_cannot_be_used(self):
        for settings, why in (({"DEVICES": 0}, "no GPU"), ({"INIT_RESULT": 100}, "no GPU"),
                              ({"INIT_RESULT": 803}, "SYSTEM_DRIVER_MISMATCH"),
                              ({"DRIVER_VERSION": 9000}, "UNSUPPORTED_PTX_VERSION"),
                              ({"MEMORY": "100M", "CONTEXT_MEMORY": "200M"}, "OUT_OF_MEMORY")):
            with self.subTest(**settings):
                self.assert_on_the_cpu(why, settings)

    def devices_of(self, device, **settings):
        """Numbers of the devices that kernels ran on, and the report."""
        done, report, trace = self.run_on_gpu(self.source, "transformers", "--device", device, settings=settings, traced=True)
        self.assert_done(done)
        self.assert_same(out_of(self.place_of_out, "transformers"), self.want(self.source, "transformers"))
        return {line["device"] for line in trace if line["op"] == "kernel"}, report

    def test_a_gpu_by_number(self):
        for device, number in (("cuda", 0), ("cuda:0", 0), ("cuda:1", 1), ("auto", 0)):
            with self.subTest(device=device):
                found, report = self.devices_of(device, DEVICES=2)
                self.assertEqual(found, {number})
                self.assertEqual(report["device"], NAME.replace("cuda:0", f"cuda:{number}"))
        self.assertEqual(self.devices_of("cpu", DEVICES=2)[0], set())

    def test_several_gpus_share_the_units(self):
        for device, numbers in (("cuda:0,1", [0, 1]), ("cuda:2,0", [2, 0])):
            found, report = self.devices_of(device, DEVICES=3)
            self.assertEqual(found, set(numbers))
            self.assertEqual(report["device"], ", ".join(NAME.replace("cuda:0", f"cuda:{number}") for number in numbers))
            self.assertEqual(report["why_device"], "they were asked for")

    def test_one_of_several_gpus_that_fails_is_an_error(self):
        for settings in ({"LOSE_DEVICE_AT": 120, "LOSE_DEVICE": 1}, {"FAIL_LAUNCH_AT": 9}, {"OOM_AT": 2, "OOM_STAYS": 1}):
            with self.subTest(**settings):
                out = self.fresh_out("transformers")
                done = self.compress(self.source, out, "transformers", "--device", "cuda:0,1",
                                     env=self.settings(DEVICES=2, **settings))
                self.assert_fails(done, 2, "cuda:", "CUDA_ERROR")
                self.assertFalse(out.exists())
                self.assert_done(self.compress(self.source, out, "transformers", "-q", "--device", "cpu", env=self.settings()))
                self.assert_same(out, self.want(self.source, "transformers"))

    def test_auto_takes_the_first_that_can_be_used(self):
        found, report = self.devices_of("auto", DEVICES=2, OOM_AT=1)  # the first one's context
        self.assertEqual((found, report["device"]), ({1}, NAME.replace("cuda:0", "cuda:1")))
        self.assertRegex(report["why_device"], "cuda:0: .*OUT_OF_MEMORY")

    def test_numbers_and_names_that_are_none(self):
        for device, count, told in (("cuda:7", 1, ("cuda:7", "one GPU", "cuda:0")),
                                    ("cuda:2", 2, ("cuda:2", "cuda:0 to cuda:1")),
                                    ("cuda:0,1", 1, ("cuda:0,1", "one GPU")), ("cuda:1,1", 2, ("cuda:1 twice",))):
            out = self.fresh_out("transformers")
            done = self.compress(self.source, out, "transformers", "--device", device, env=self.settings(DEVICES=count))
            self.assert_fails(done, 2, *map(re.escape, told))
            self.assertFalse(out.exists() or partial_of(out).exists())
        wrong = ("cuda:x", "cuda:", "cuda:-1", "cuda:+1", "cuda:1x", "cuda:99999999999", "cuda0", "CUDA", "gpu", "", "cpu:0",
                 "\x1b[31m", "cuda:0,", "cuda:,1", "cuda:0,x", "cuda:0 ,1", "cuda,1")
        for command in ("compress", "estimate"):
            for device in wrong:
                with self.subTest(command=command, device=device):
                    out = self.fresh_out("transformers")
                    done = support.run(command, self.source, "--arch", self.definition, "--device", device,
                                       *(["-o", out] if command == "compress" else []), env={**os.environ, **self.settings()})
                    self.assert_fails(done, 2, "--device", r"auto, cpu, cuda, cuda:N or cuda:N,M")
                    self.assertFalse(out.exists() or partial_of(out).exists())

    def test_sizes_that_are_none(self):
        for vram in ("x", "-1", "0", "1.5.2G"):
            out = self.fresh_out("transformers")
            done = self.compress(self.source, out, "transformers", f"--vram={vram}", env=self.settings())
            self.assert_fails(done, 2, "--vram", "4G")


if __name__ == "__main__":
    unittest.main()
