"""`weightpress verify` and `decompress` with --device, through the emulated CUDA driver (tests/cuda_driver).

What they say and write is what they say and write on the CPU: of sound outputs in every layout, and of faulted ones. A GPU that
fails in the middle (memory, launches, a lost device, flipped bits) changes nothing but what is said of the device, or with
--device cuda ends the run with exit code 2. The times of the emulator's trace show that copies and kernels overlap.

WEIGHTPRESS_SEED, WEIGHTPRESS_FLIP_SEEDS: of flipped bits, and how many at each kernel (4). Standard library and numpy only.
"""
import collections
import itertools
import json
import os
import random
import re
import unittest

import numpy as np

import support
import test_gpu_compress  # not its test cases, which would run here too
from broken_runs import LAYOUTS, SEED, layered_tensors, out_of, remove, results
from support import bf16, words, words_of_exponents
from test_gpu_compress import NAME, GpuCase, of_every_kind

FLIP_SEEDS = int(os.environ.get("WEIGHTPRESS_FLIP_SEEDS", "4"))
GAVE_UP = f"note: the GPU failed, and the CPU goes on: {NAME}: "
OF_THE_RUN = ("seconds", "peak_memory_bytes", "engine", "device", "why_device", "verifier")
LAUNCH_RESULTS = {719: "CUDA_ERROR_LAUNCH_FAILED", 701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}


class DecodeCase(GpuCase):
    def setUp(self):
        super().setUp()
        self.back = self.work / "back"

    def output(self, source, layout, *options):
        """The source as DF11, made by the CPU."""
        out = out_of(self.place(), layout)
        self.assert_done(self.compress(source, out, layout, "-q", "--device", "cpu", *options))
        return out

    def run_it(self, command, out, *options, traced=False, **settings):
        """verify or decompress. Returns the process, what it says without what is of the run alone, and what is."""
        trace = self.work / "trace"
        trace.write_text("")
        remove(self.back)
        more = ["-o", self.back] if command == "decompress" else ["--json"]
        environment = {**os.environ, **self.settings(**({"TRACE": trace} if traced else {}), **settings)}
        done = support.run(command, out, *more, "--threads", 1, "--progress", "none", *options, env=environment, timeout=120)
        said = json.loads(done.stdout) if command == "verify" and done.stdout else {}
        of_the_run = {key: said.pop(key) for key in OF_THE_RUN if key in said}
        if traced:
            of_the_run["trace"] = [json.loads(line) for line in trace.read_text().splitlines()]
        return done, said, of_the_run

    def want(self, command, out, *options):
        """(exit code, what is said, messages, what is written) on the CPU."""
        key = command, out, options
        if key not in self.wanted:
            done, said, of_the_run = self.run_it(command, out, *options, "--device", "cpu")
            if command == "verify":
                self.assertEqual((of_the_run["engine"], of_the_run["device"]), ("cpu", "cpu"))
            self.wanted[key] = done.returncode, said, self.told(done), self.written()
        return self.wanted[key]

    def written(self):
        return results(self.back) if os.path.lexists(self.back) else None

    @staticmethod
    def told(done):
        """Lines on stderr, without the emulator's."""
        return [line for line in done.stderr.splitlines() if not line.startswith("emulated CUDA driver: ")]

    def assert_as_on_the_cpu(self, command, out, *options, device="cuda", may_not_decode=False, **settings):
        code, want_said, messages, written = self.want(command, out, *options)
        done, said, of_the_run = self.run_it(command, out, *options, "--device", device, traced=True, **settings)
        self.assertEqual((done.returncode, said, self.told(done)), (code, want_said, messages))
        self.assertTrue(self.written() == written, "other files")
        if command == "verify":
            self.assertEqual([of_the_run[key] for key in ("engine", "device", "verifier")], ["cuda", NAME, "wp_decode"])
        elif code == 0:
            self.assertIn(f" s on {NAME} (wp_decode) with ", done.stdout)
        trace = of_the_run["trace"]
        self.assert_sound(trace)
        self.assert_pinned(trace)
        found = {line["name"] for line in trace if line["op"] == "kernel"}
        self.assertIn(found, ({"wp_decode"}, set()) if may_not_decode else ({"wp_decode"},))
        return done


class SameAnswers(DecodeCase):
    def setUp(self):
        super().setUp()
        self.source = support.write_model(self.work / "model", of_every_kind())

    def test_every_layout(self):
        for number, layout in enumerate(LAYOUTS):
            out = self.output(self.source, layout, *(["--hashes"] if layout == "diffusers" else []))
            settings = {"CHECK": "all"} if layout == "comfyui" else {"SEED": number, "EAGER_PERCENT": (0, 100)[number % 2]}
            for options in ([], ["--source", self.source], ["--source", self.source, "--level", "sample", "--seed", 7]):
                with self.subTest(layout=layout, options=options):
                    done = self.assert_as_on_the_cpu("verify", out, *options, device="auto", **settings)
                    self.assertEqual(done.returncode, 0, done.stdout)
            with self.subTest(layout=layout, command="decompress"):
                done = self.assert_as_on_the_cpu("decompress", out, device="auto", **settings)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((self.back / "model.safetensors").read_bytes(),
                                 (self.source / "model.safetensors").read_bytes())

    def test_another_source(self):
        tensors = of_every_kind()
        for unit, index in (("layers.1.a", 33_333), ("layers.1.b", 3), ("layers.7.b", 4_999)):
            changed = np.frombuffer(tensors[f"{unit}.weight"][2], "<u2").copy()
            changed[index] ^= 0x0101
            tensors[f"{unit}.weight"] = bf16(changed)
        other = support.write_model(self.work / "other", tensors)
        out = self.output(self.source, "transformers")
        done = self.assert_as_on_the_cpu("verify", out, "--source", other)
        self.assertEqual(done.returncode, 1)
        self.assertTrue(support.mentions(done.stdout, "weight 33333", "4999 of tensor"), done.stdout)


class Faults(DecodeCase):
    """Flipped bits of stored units, one in every unit, are told as the CPU tells them."""

    def damage(self, path, choice, buffers):
        """A bit of one of these buffers of every unit of a file."""
        tensors, metadata = support.reference.read_safetensors(path)
        tensors = {name: (dtype, shape, bytes(content)) for name, (dtype, shape, content) in tensors.items()}  # not of the file
        units = {name.rsplit(".", 1)[0] for name in tensors if name.endswith(".encoded_exponent")}
        for unit in sorted(units):
            name = f"{unit}.{choice.choice(buffers)}"
            dtype, shape, content = tensors[name]
            content = bytearray(content)
            content[choice.randrange(len(content))] ^= 1 << choice.randrange(8)
            tensors[name] = dtype, shape, bytes(content)
        support.reference.write_safetensors(path, tensors, metadata)
        return len(units)

    def test_of_every_buffer(self):
        long = words(5, 150_000)  # 12 chunks: several slabs under way
        tensors = layered_tensors(5, 20_000, SEED) | {"layers.9.a.weight": bf16(long), "layers.9.b.weight": bf16(words(6, 9))}
        source = support.write_model(self.work / "model", tensors)
        out, choice, kinds = self.output(source, "comfyui"), random.Random(SEED), collections.Counter()
        sound = out.read_bytes()
        for number in range(12):
            buffers = ([name] if (name := (*support.BUFFERS[:5], *support.BUFFERS[:4])[number % 9]) != "split_positions"
                       else ["encoded_exponent"])
            out.write_bytes(sound)
            self.damage(out, choice, buffers)
            self.wanted.clear()
            for options in ([], ["--source", source]):
                with self.subTest(seed=SEED, number=number, buffers=buffers, options=options):
                    done = self.assert_as_on_the_cpu("verify", out, *options, SEED=number, may_not_decode=buffers[0] in ("luts", "output_positions"))
                    kinds.update(failure["kind"] for failure in json.loads(done.stdout)["failures"])
            with self.subTest(seed=SEED, number=number, buffers=buffers, command="decompress"):
                self.assert_as_on_the_cpu("decompress", out, SEED=number, may_not_decode=buffers[0] in ("luts", "output_positions"))
        print(dict(kinds))
        self.assertLessEqual({"stream", "gap", "position", "weight"}, set(kinds))


class Trouble(DecodeCase):
    """Of the GPU: the same answers, or an error that tells of the GPU."""

    def setUp(self):
        super().setUp()
        # Long codes, so that a few weights are many chunks: embed has four slabs, of which three are under way.
        generator = np.random.Generator(np.random.PCG64(SEED))
        long = words_of_exponents(generator.integers(1, 240, 4000 * 13), generator)
        tensors = layered_tensors(1, 2500, SEED) | {"embed.weight": bf16(long)}
        self.source = support.write_model(self.work / "model", tensors)
        self.out = self.output(self.source, "comfyui")
        self.ways = (("decompress",), ("verify", "--source", self.source), ("verify",))

    def totals(self, way):
        command, *options = way
        done, _, of_the_run = self.run_it(command, self.out, *options, "--device", "cuda", traced=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return next(line for line in of_the_run["trace"] if line["op"] == "totals")

    def check(self, way, device, traced=False, **settings):
        """Returns what became of the run, and its trace."""
        command, *options = way
        code, want_said, messages, written = self.want(command, self.out, *options)
        done, said, of_the_run = self.run_it(command, self.out, *options, "--device", device, traced=traced, **settings)
        told = [line for line in self.told(done) if line not in messages]
        trace = of_the_run.get("trace")
        if done.returncode == code:
            self.assertEqual(said, want_said)
            self.assertTrue(self.written() == written, "other files")
            self.assertLessEqual(len(told), 1, told)
            where = of_the_run["device"] if command == "verify" else done.stdout
            if told:
                self.assertEqual(device, "auto", told)
                self.assertTrue(told[0].startswith(GAVE_UP), told)
                if code == 0:
                    self.assertIn("host decoder", of_the_run.get("verifier", done.stdout))
                if command == "verify":
                    self.assertIn(of_the_run["why_device"], told[0])
                return told[0].removeprefix(GAVE_UP), trace
            return ("unnoticed" if NAME in where else "on the CPU"), trace
        self.assertEqual((done.returncode, device), (2, "cuda"), done.stderr)
        self.assertEqual(len(told), 1, told)
        self.assertRegex(told[0], "^weightpress: (--device cuda: |cuda:0 )")
        self.assertTrue(self.written() is None, "the output is there")
        return told[0], trace

    def sweep(self, way, plans):
        """Every plan with auto or cuda, in turn, and in the next way with the other one."""
        found = {}
        for number, plan in enumerate(plans):
            device = ("auto", "cuda")[(number + self.ways.index(way)) % 2]
            with self.subTest(way=way, device=device, **plan):
                found[json.dumps(plan)], _ = self.check(way, device, **plan)
        return found

    def test_out_of_memory(self):
        for way in self.ways:
            number = self.totals(way)["allocations"]
            self.assertGreater(number, 15)
            plans = [{"OOM_AT": k} for k in range(1, number + 1)]
            plans += [{"OOM_AT": k, "OOM_STAYS": 1} for k in range(1, number + 1)] if way == self.ways[0] else []
            found = self.sweep(way, plans)
            for ended in set(found.values()) - {"unnoticed", "on the CPU"}:
                self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", ended)
            # Smaller slabs, fewer lanes, memory that is not pinned.
            self.assertGreater(list(found.values()).count("unnoticed"), number // 2)

    def test_little_memory(self):
        """A card on which no slab fits goes in parts."""
        room = 128
        done, _, of_the_run = self.run_it("decompress", self.out, "--device", "cuda", traced=True, CONTEXT_MEMORY="256M",
                                          MEMORY=f"{256 * 1024 + room}K")
        self.assertEqual(done.returncode, 0, done.stderr)
        _, _, _, written = self.want("decompress", self.out)
        self.assertTrue(self.written() == written, "other files")
        kernels = [line for line in of_the_run["trace"] if line["op"] == "kernel"]
        self.assertGreater(len(kernels), self.totals(("decompress",))["launches"])
        self.assertIn(f"{NAME} (wp_decode)", done.stdout)

    def test_launches_that_fail(self):
        for way in self.ways:
            number = self.totals(way)["launches"]
            self.assertGreater(number, 4)
            plans = [{"FAIL_LAUNCH_AT": k, "LAUNCH_RESULT": result} for result in LAUNCH_RESULTS for k in range(1, number + 1)]
            plans += [{**plan, "SEED": 1} for plan in plans[1:]]
            for plan, ended in self.sweep(way, plans).items():
                self.assertIn(LAUNCH_RESULTS[json.loads(plan)["LAUNCH_RESULT"]], ended)

    def test_a_device_that_is_lost(self):
        for step, way in zip((3, 5, 7), self.ways):
            calls = self.totals(way)["calls"]
            found = self.sweep(way, [{"LOSE_DEVICE_AT": k, "SEED": k % 5} for k in range(1, calls + 1, step)])
            for plan, ended in found.items():
                if ended == "unnoticed":
                    self.assertGreater(json.loads(plan)["LOSE_DEVICE_AT"], calls // 2, "only giving back can fail unnoticed")
                elif ended != "on the CPU":
                    self.assertIn("CUDA_ERROR_DEVICE_UNAVAILABLE", ended)
            self.assertGreater(sum("CUDA_ERROR" in ended for ended in found.values()), len(found) // 3)

    def test_flipped_bits(self):
        ends = collections.Counter()
        for way in self.ways:
            launches = self.totals(way)["launches"]
            for seed, k in itertools.product(range(100 * SEED, 100 * SEED + FLIP_SEEDS), range(1, launches + 1)):
                device = ("auto", "cuda")[(seed + k) % 2]
                with self.subTest(way=way, device=device, SEED=seed, FLIP_AT=k):
                    ended, trace = self.check(way, device, traced=True, SEED=seed, FLIP_AT=k, COUNT=0)
                    self.assertEqual(len([line for line in trace if line["op"] == "bit_flipped"]), 1)
                    ends["without effect" if ended == "unnoticed" else
                         re.sub(r"\d+", "N", ended.removeprefix(f"weightpress: {NAME}: "))] += 1
        print(f"seed {SEED}: {dict(ends)}")
        self.assertGreater(sum(ends.values()) - ends["without effect"], 0)

    def test_faults_that_a_failing_gpu_does_not_hide(self):
        """A faulted output and a GPU in trouble: the fault is told, at its place."""
        for buffer in ("encoded_exponent", "gaps", "sign_mantissa"):
            damaged = self.out.read_bytes()
            Faults.damage(self, self.out, random.Random(SEED), [buffer])
            self.wanted.clear()
            for way in self.ways:
                for plan in ({"FAIL_LAUNCH_AT": 2}, {"LOSE_DEVICE_AT": 60}, {"OOM_AT": 12}, {"FLIP_AT": 1, "SEED": 3}):
                    with self.subTest(buffer=buffer, way=way, **plan):
                        self.check(way, "auto", **plan)
            self.out.write_bytes(damaged)


class OverlapInDecompress(DecodeCase):
    """Virtual time: what the emulator's engines do when, on a host that never makes them wait."""

    def test_copies_and_kernels(self):
        tensors = {f"layers.{unit}.{part}.weight": bf16(words(unit, 400_000)) for unit in range(2) for part in "a"}
        support.write_definition(self.definition, {r"layers\.\d+": ["a"]})
        source = support.write_model(self.work / "equal", tensors)
        out = self.output(source, "comfyui")
        # Kernels take about as long as copies, so that they can be seen to run beside them.
        done, _, of_the_run = self.run_it("decompress", out, "--device", "cuda", traced=True, INSTRUCTIONS_PER_NS=250)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.back / "model.safetensors").read_bytes(), (source / "model.safetensors").read_bytes())
        trace = of_the_run["trace"]
        self.assert_sound(trace)
        self.assert_pinned(trace)
        test_gpu_compress.check_overlap(self, "decompress", trace, 1.25)


class Devices(DecodeCase):
    def setUp(self):
        super().setUp()
        self.source = support.write_model(self.work / "model", layered_tensors(1, 500))
        self.out = self.output(self.source, "transformers")

    def test_no_gpu(self):
        for command in ("verify", "decompress"):
            done, _, of_the_run = self.run_it(command, self.out, "-v", DEVICES=0)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, "(?m)^note: device: cpu, since .*no GPU")
            if command == "verify":
                self.assertEqual([of_the_run[key] for key in ("engine", "device", "verifier")], ["cpu", "cpu", "host decoder"])
            for options in (["--device", "cuda"], ["--device", "cuda:1"], *([["--engine", "cuda"]] * (command == "verify"))):
                done, _, _ = self.run_it(command, self.out, *options, DEVICES=0)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, f"{options[0]} cuda.*no GPU")
                self.assertIsNone(self.written())

    def test_engines(self):
        for options, engine, device in ((["--engine", "cuda"], "cuda", NAME), (["--engine", "cpu"], "cpu", "cpu"),
                                        (["--engine", "cuda", "--device", "cuda:0"], "cuda", NAME),
                                        (["--engine", "cpu", "--device", "auto"], "cpu", "cpu"),
                                        (["--device", "auto"], "cuda", NAME), (["--device", "cpu"], "cpu", "cpu")):
            done, _, of_the_run = self.run_it("verify", self.out, *options)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((of_the_run["engine"], of_the_run["device"]), (engine, device), options)
        done, _, of_the_run = self.run_it("verify", self.out, "--engine", "cuda", FAIL_LAUNCH_AT=1)
        self.assertEqual(done.returncode, 2)
        self.assertIn("CUDA_ERROR_LAUNCH_FAILED", done.stderr)
        done, _, of_the_run = self.run_it("verify", self.out, "--engine", "cuda", DEVICES=2, OOM_AT=1)
        self.assertEqual((done.returncode, of_the_run["device"]), (0, NAME.replace("cuda:0", "cuda:1")), done.stderr)

    def test_several_gpus_share_the_slabs(self):
        source = support.write_model(self.work / "long", {"layers.0.a.weight": bf16(words(3, 300_000))})
        support.write_definition(self.definition, {r"layers\.\d+": ["a"]})
        out = self.output(source, "comfyui")
        for command in ("verify", "decompress"):
            done, _, of_the_run = self.run_it(command, out, "--device", "cuda:1,0", traced=True, DEVICES=2)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual({line["device"] for line in of_the_run["trace"] if line["op"] == "kernel"}, {0, 1}, command)
        self.assertEqual((self.back / "model.safetensors").read_bytes(), (source / "model.safetensors").read_bytes())

    def test_what_does_not_fit(self):
        for options in (["--engine", "cpu", "--device", "cuda"], ["--engine", "cuda", "--device", "cpu"],
                        ["--engine", "gpu"]):
            done, _, _ = self.run_it("verify", self.out, *options)
            self.assertEqual(done.returncode, 2, options)
            self.assertTrue(support.mentions(done.stderr, "--engine|engine", options[1]), done.stderr)
        for command, device in itertools.product(("verify", "decompress"), ("cuda:x", "cuda:", "gpu", "", "\x1b[31m")):
            done, _, _ = self.run_it(command, self.out, "--device", device)
            self.assertEqual(done.returncode, 2, device)
            self.assertRegex(done.stderr, "--device .*auto, cpu, cuda, cuda:N or cuda:N,M")
            self.assertNotIn("\x1b", done.stderr)
            self.assertIsNone(self.written())


if __name__ == "__main__":
    unittest.main()
