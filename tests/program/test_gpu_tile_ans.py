"""Tile-ANS with --device, through the emulated CUDA driver (tests/cuda_driver): compress, estimate, verify, decompress.

The files are those of --device cpu, whatever the order in which GPUs work, the memory that they have and their number. A GPU that
fails in the middle (memory, launches, a lost device, flipped bits) changes nothing but what is said of the device, or with
--device cuda ends the run with exit code 2. A source that changes is told as without a GPU.

WEIGHTPRESS_SEED, WEIGHTPRESS_FLIP_SEEDS: of flipped bits, and how many at each kernel (4). WEIGHTPRESS_STEP: only every so
many-th call is tried (2). Standard library and numpy only.
"""
import collections
import json
import os
import re
import unittest

import numpy as np

import support
import tile_ans_files as files
from broken_runs import SEED, remove
from support import run
from test_gpu_compress import EMULATOR, NAME, TROUBLES
from test_tile_ans import IMPOSSIBLE, TileAnsCase
from tile_ans_files import tensor

FLIP_SEEDS = int(os.environ.get("WEIGHTPRESS_FLIP_SEEDS", "4"))
STEP = int(os.environ.get("WEIGHTPRESS_STEP", "2"))
GAVE_UP = f"note: the GPU failed, and the CPU goes on: {NAME}: "
LAUNCH_RESULTS = {719: "CUDA_ERROR_LAUNCH_FAILED", 701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}
KERNELS = {"wp_tile_ans_histogram", "wp_tile_ans_sizes", "wp_tile_ans_encode"}
OF_THE_RUN = ("seconds", "peak_memory_bytes", "engine", "device", "why_device", "verifier")


def random_bytes(dtype, count, seed):
    """A tensor whose lanes are all raw, and so is kept."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return dtype, [count], generator.bytes(count * files.DTYPE_BITS[dtype] // 8)


def of_every_kind():
    """Every dtype; raw lanes between coded ones; one tile, many tiles, short last tiles; some that stay."""
    tensors = {f"layers.{i}.{dtype.lower()}": tensor(dtype, 5000 + 1111 * i, SEED + i)
               for i, dtype in enumerate(files.DTYPES.values())}
    return tensors | {"long": tensor("BF16", 70_001, SEED + 50), "raw": random_bytes("F32", 3000, SEED + 51),
                      "small": tensor("BF16", 3, SEED + 52), "scalar": ("F32", [], b"\0\0\x80\x3f"), "empty": ("BF16", [0, 7], b"")}


class GpuTileAnsCase(TileAnsCase):
    def setUp(self):
        super().setUp()
        self.out, self.back = self.work / "out.safetensors", self.work / "back.safetensors"
        self.wanted, self.stored = {}, None

    def environment(self, **settings):
        assert not [name for name in os.environ if name.startswith("WEIGHTPRESS_CUDA_")]
        variables = {f"WEIGHTPRESS_CUDA_{name}": str(value) for name, value in settings.items()}
        return {**os.environ, "LD_LIBRARY_PATH": EMULATOR, **variables}

    def run_it(self, command, *options, threads=1, traced=False, **settings):
        """compress, verify or decompress of self.source or self.stored. Returns the process, what it says without what is of the
        run alone, what is, and what it wrote."""
        trace, report = self.work / "trace", self.work / "report.json"
        trace.write_text("")
        for path in (self.out, self.back, report):
            remove(path)
        arguments = {"compress": [self.source, "-o", self.out, "--format", "tile-ans", "--report", report],
                     "estimate": [self.source, "--format", "tile-ans", "--json"], "verify": [self.stored, "--json"],
                     "verify --source": [self.stored, "--json", "--source", self.source],
                     "decompress": [self.stored, "-o", self.back]}[command]
        done = run(command.split()[0], *arguments, "--threads", threads, "--progress", "none", *options, timeout=120,
                   env=self.environment(**({"TRACE": trace} if traced else {}), **settings))
        said = json.loads(report.read_text()) if report.exists() else {}
        if command != "decompress" and done.stdout.startswith("{"):
            said = json.loads(done.stdout)
        of_the_run = {key: said.pop(key) for key in OF_THE_RUN if key in said}
        if command == "estimate":  # which does not say it
            of_the_run = {}
        if command in ("compress", "estimate"):
            said = {key: said.get(key) for key in ("status", "error", "output_bytes", "notes")}
        if traced:
            of_the_run["trace"] = [json.loads(line) for line in trace.read_text().splitlines()]
        written = next((path.read_bytes() for path in (self.out, self.back) if path.exists()), None)
        return done, said, of_the_run, written

    @staticmethod
    def told(done):
        """Lines on stderr, without the emulator's."""
        return [line for line in done.stderr.splitlines() if not line.startswith("emulated CUDA driver: ")]

    def want(self, command, *options):
        """(exit code, what is said, messages, what is written) on the CPU."""
        key = command, options
        if key not in self.wanted:
            done, said, of_the_run, written = self.run_it(command, *options, "--device", "cpu")
            if of_the_run:
                self.assertEqual(of_the_run["device"], "cpu")
            self.wanted[key] = done.returncode, said, self.told(done), written
        return self.wanted[key]

    def store(self):
        self.stored = self.work / "stored.safetensors"
        self.compressed(self.source, self.stored, "--device", "cpu", "--force")

    def assert_as_on_the_cpu(self, command, *options, device="cuda", names=NAME, **settings):
        code, want_said, messages, want_written = self.want(command, *options)
        done, said, of_the_run, written = self.run_it(command, *options, "--device", device, traced=True, **settings)
        self.assertEqual((done.returncode, self.told(done)), (code, messages))
        self.assertEqual(said, want_said)
        self.assertTrue(written == want_written, "other bytes")
        trace = of_the_run["trace"]
        self.assertEqual([line for line in trace if line["op"] in TROUBLES or "failure" in line], [])
        kernels = {line["name"] for line in trace if line["op"] == "kernel"}
        if command == "decompress":
            self.assertIn(f" s on {names} (wp_tile_ans_decode) with ", done.stdout)
        elif command != "estimate":
            self.assertEqual(of_the_run["device"], names)
        if command in ("compress", "estimate"):
            self.assertEqual(kernels, KERNELS if command == "compress" else KERNELS - {"wp_tile_ans_encode"})
        else:
            self.assertEqual(kernels, {"wp_tile_ans_decode"})
        return done, trace


class SameBytes(GpuTileAnsCase):
    def test_every_dtype(self):
        self.source = self.file_of(of_every_kind(), metadata={"format": "pt"})
        self.store()
        for number, (command, options, settings) in enumerate((
                ("compress", [], {"CHECK": "all"}), ("compress", ["--ram", "64M", "--tile-elements", 512], {"EAGER_PERCENT": 100}),
                ("compress", ["--probability-bits", 10, "--raw-lane-threshold", 6], {}),
                ("compress", ["--vram", "400K"], {}), ("compress", ["--fast"], {}), ("estimate", [], {}),
                ("verify", [], {"CHECK": "all"}), ("verify --source", [], {"EAGER_PERCENT": 50}),
                ("verify --source", ["--level", "sample", "--seed", 5], {}), ("decompress", [], {"CHECK": "all"}))):
            for device in ("auto", "cuda") if number in (0, 6, 9) else ("cuda",):
                with self.subTest(command=command, options=options, device=device):
                    self.assert_as_on_the_cpu(command, *options, device=device, SEED=SEED + number, **settings)

    def test_golden_tensors(self):
        for settings, cases in files.golden_groups().items():
            with self.subTest(settings=settings):
                self.source = self.file_of({name: files.golden_source(meta, folder) for name, meta, folder in cases})
                options = files.options_of(json.loads(settings))
                self.wanted.clear()
                code, _, _, _ = self.want("compress", *options)
                self.assertEqual(code, 0)
                done, _, of_the_run, written = self.run_it("compress", *options, "--device", "cuda", SEED=SEED)
                self.assertEqual((done.returncode, of_the_run["device"]), (0, NAME), done.stderr)
                self.assertTrue(written == self.want("compress", *options)[3])

    def test_several_gpus(self):
        """They share the tiles of a tensor."""
        self.source = self.file_of({"long": tensor("BF16", 90_007, SEED), "one": tensor("F32", 2000, SEED + 1),
                                    "eight lanes": tensor("I64", 9001, SEED + 2)})
        self.store()
        names = ", ".join(NAME.replace("cuda:0", f"cuda:{number}") for number in (2, 0, 1))
        for command in ("compress", "estimate", "verify --source", "verify", "decompress"):
            with self.subTest(command=command):
                options = ["--tile-elements", 512] if command in ("compress", "estimate") else []
                _, trace = self.assert_as_on_the_cpu(command, *options, device="cuda:2,0,1", names=names, DEVICES=3, SEED=SEED)
                launches = collections.Counter(line["device"] for line in trace if line["op"] == "kernel")
                self.assertEqual(set(launches), {0, 1, 2})

    def test_memory_of_the_gpu(self):
        """However little there is, no more is taken: --vram, or what the GPU has."""
        self.source = self.file_of({"long": tensor("BF16", 90_007, SEED), "other": tensor("F32", 20_000, SEED + 1),
                                    "bytes": tensor("I8", 100_000, SEED + 2)})
        for vram in (80, 130, 400):
            with self.subTest(vram=vram):  # the GPU has hardly more
                self.assert_as_on_the_cpu("compress", "--vram", f"{vram}K", "--tile-elements", 1024, SEED=SEED,
                                          CONTEXT_MEMORY="256M", MEMORY=f"{vram + 16 + 256 * 1024}K")
        self.assert_as_on_the_cpu("compress", "--tile-elements", 1024, MEMORY="700K", CONTEXT_MEMORY="500K")
        done, _, _, written = self.run_it("compress", "--device", "cuda", "--vram", "20K", "--tile-elements", 8192)
        self.assertEqual((done.returncode, written), (IMPOSSIBLE, None))
        self.assertTrue(support.mentions(done.stderr, "of the GPU's memory"), done.stderr)

    def test_options(self):
        self.source = self.file_of({"a": tensor("BF16", 5000, SEED)})
        self.store()
        for command, options, code, said in (
                ("compress", ["--device", "tpu"], 2, "auto, cpu, cuda"), ("compress", ["--device", "cuda:1"], 2, "one GPU, cuda:0"),
                ("compress", ["--verifier", "official"], 2, "--verifier"), ("verify", ["--engine", "cpu", "--device", "cuda"], 2, "engine cpu"),
                ("verify", ["--engine", "cuda", "--device", "cpu"], 2, "engine cuda"), ("verify", ["--engine", "official"], 2, "official"),
                ("decompress", ["--device", "cuda:9"], 2, "one GPU")):
            with self.subTest(command=command, options=options):
                done, _, _, written = self.run_it(command, *options)
                self.assertEqual((done.returncode, written), (code, None), done.stderr)
                self.assertTrue(support.mentions(done.stderr, said), done.stderr)
        done, _, of_the_run, _ = self.run_it("verify", "--engine", "cuda")
        self.assertEqual((done.returncode, of_the_run["device"], of_the_run["engine"]), (0, NAME, "cuda"), done.stderr)

    def test_a_damaged_output(self):
        """A fault is told as the CPU tells it, and is none of the GPU."""
        self.source = self.file_of({"a": tensor("BF16", 30_000, SEED), "b": tensor("F32", 5000, SEED + 1)})
        self.store()
        stored, metadata = files.read_file(self.stored)
        generator = np.random.Generator(np.random.PCG64(SEED))
        codes = collections.Counter()
        for name in sorted(stored):
            if name.endswith("header") or name.endswith("layout"):
                continue
            for _ in range(3):
                dtype, shape, content = stored[name]
                damaged = bytearray(content)
                damaged[generator.integers(len(damaged))] ^= 1 << int(generator.integers(8))
                self.stored.write_bytes(files.safetensors_bytes({**stored, name: (dtype, shape, bytes(damaged))}, metadata))
                self.wanted.clear()
                for command in ("verify", "verify --source", "decompress"):
                    with self.subTest(buffer=name, command=command):
                        want = self.want(command)
                        done, said, of_the_run, written = self.run_it(command, "--device", "cuda", SEED=SEED)
                        self.assertEqual((done.returncode, said, self.told(done)), want[:3])
                        self.assertTrue(written == want[3])
                        if of_the_run:
                            self.assertEqual(of_the_run["device"], NAME)
                        codes[done.returncode] += 1
        print(dict(codes))
        self.assertGreater(codes[1], 40)

    def test_another_source(self):
        tensors = {"a": tensor("BF16", 30_000, SEED), "b": tensor("F32", 5000, SEED + 1)}
        self.source = self.file_of(tensors)
        self.store()
        dtype, shape, content = tensors["a"]
        changed = bytearray(content)
        changed[41_234] ^= 4
        self.source = self.file_of({**tensors, "a": (dtype, shape, bytes(changed))}, "other.safetensors")
        done, _ = self.assert_as_on_the_cpu("verify --source")
        self.assertEqual(done.returncode, 1)


class Trouble(GpuTileAnsCase):
    """Of the GPU: the same answers, or an error that tells of the GPU."""

    COMMANDS = ("compress", "verify --source", "decompress")

    def setUp(self):
        super().setUp()
        # Coded lanes and raw ones; the first tensor's second pass counts words.
        self.source = self.file_of({"a": tensor("BF16", 14_000, SEED), "b": tensor("F32", 11_000, SEED + 1),
                                    "c": tensor("I8", 12_000, SEED + 2)})
        self.store()

    def totals(self, command):
        done, _, of_the_run, _ = self.run_it(command, "--device", "cuda", traced=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return next(line for line in of_the_run["trace"] if line["op"] == "totals")

    def check(self, command, device, traced=False, **settings):
        """Returns what became of the run, and its trace."""
        code, want_said, messages, want_written = self.want(command)
        done, said, of_the_run, written = self.run_it(command, "--device", device, traced=traced, **settings)
        told = [line for line in self.told(done) if line not in messages]
        trace = of_the_run.get("trace")
        if done.returncode == code:
            self.assertEqual(said, want_said)
            self.assertTrue(written == want_written, "other bytes")
            where = of_the_run.get("device", done.stdout)
            if told:
                self.assertEqual((device, len(told), told[0][:len(GAVE_UP)]), ("auto", 1, GAVE_UP), told)
                self.assertIn("host decoder", of_the_run.get("verifier") or done.stdout)
                self.assertRegex(where, "(?i)cpu")
                return told[0].removeprefix(GAVE_UP), trace
            if NAME in where:
                return "unnoticed", trace
            self.assertEqual(device, "auto")
            return "on the CPU", trace
        self.assertEqual((done.returncode, device, len(told), written), (2, "cuda", 1, None), done.stderr)
        self.assertRegex(told[0], "^weightpress: (--device cuda: |cuda:0 )")
        if command == "compress":
            self.assertEqual((said["status"], said["error"]["code"]), ("failed", "device-failed"))
            again, _, _, written = self.run_after(device="cpu")
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertTrue(written == want_written)
        return told[0], trace

    def run_after(self, device):
        """The same command, over what the one that failed has left."""
        done = run("compress", self.source, "-o", self.out, "--format", "tile-ans", "--threads", 1, "--device", device, "--progress",
                   "none", env=self.environment())
        return done, None, None, self.out.read_bytes() if self.out.exists() else None

    def sweep(self, command, plans):
        found = {}
        for number, settings in enumerate(plans):
            device = ("auto", "cuda")[number % 2]
            with self.subTest(command=command, device=device, **settings):
                found[json.dumps(settings), device], _ = self.check(command, device, **settings)
        return found

    def test_out_of_memory(self):
        for command in self.COMMANDS:
            number = self.totals(command)["allocations"]
            self.assertGreater(number, 12)
            found = self.sweep(command, [{"OOM_AT": k, "OOM_STAYS": stays} for stays in (0, 1) for k in range(1, number + 1, STEP)])
            for (plan, _), ended in found.items():
                if ended not in ("on the CPU", "unnoticed"):
                    self.assertRegex(ended, "CUDA_ERROR_OUT_OF_MEMORY", plan)
            self.assertIn("unnoticed", found.values())  # it went on in parts, or with memory that it held
            self.assertTrue(any("cuMemAlloc" in ended for ended in found.values()), found)

    def test_launches_that_fail(self):
        for command in self.COMMANDS:
            number = self.totals(command)["launches"]
            self.assertGreaterEqual(number, 2)
            plans = [{"FAIL_LAUNCH_AT": k, "LAUNCH_RESULT": result} for k in range(1, number + 1, STEP) for result in (719, 701)]
            for (plan, _), ended in self.sweep(command, plans + plans[1:] + plans[:1]).items():
                self.assertIn(LAUNCH_RESULTS[json.loads(plan)["LAUNCH_RESULT"]], ended)

    def test_a_device_that_is_lost(self):
        for command in self.COMMANDS:
            calls = self.totals(command)["calls"]
            found = self.sweep(command, [{"LOSE_DEVICE_AT": k, "SEED": k % 5} for k in range(1, calls + 1, 5 * STEP)])
            for (plan, _), ended in found.items():
                if ended == "unnoticed":
                    self.assertGreater(json.loads(plan)["LOSE_DEVICE_AT"], calls // 2, "only giving back can fail unnoticed")
                elif ended != "on the CPU":
                    self.assertIn("CUDA_ERROR_DEVICE_UNAVAILABLE", ended)
            self.assertGreater(sum("CUDA_ERROR" in ended for ended in found.values()), len(found) // 2)

    def test_flipped_bits(self):
        """One bit of the GPU's memory after each kernel: it is seen, or has no effect."""
        ends = collections.Counter()
        for command in self.COMMANDS:
            launches = self.totals(command)["launches"]
            for seed in range(100 * SEED, 100 * SEED + FLIP_SEEDS):
                for k in range(1, launches + 1):
                    device = ("auto", "cuda")[(seed + k) % 2]
                    with self.subTest(command=command, device=device, SEED=seed, FLIP_AT=k):
                        ended, trace = self.check(command, device, traced=True, COUNT=0, SEED=seed, FLIP_AT=k)
                        self.assertEqual(sum(line["op"] == "bit_flipped" for line in trace), 1)
                        ends[command, "without effect" if ended == "unnoticed" else
                             re.sub(r"(?s)^.*?(what is in its memory|what it made of|it finds a fault|the GPU returned).*$", r"\1", ended)] += 1
        print(f"seed {SEED}: {dict(ends)}")
        self.assertGreater(sum(count for (_, ended), count in ends.items() if ended != "without effect"), 3)


class ChangingSource(GpuTileAnsCase):
    def test_it_is_told_as_without_a_gpu(self):
        """The file of another model lies in the journal's plans: they do not fit, and are made anew."""
        self.source = self.file_of({"a": tensor("BF16", 9000, SEED), "b": tensor("I8", 9000, SEED + 1)})
        code, _, _, want = self.want("compress")
        self.assertEqual(code, 0)
        for device in ("cpu", "cuda"):
            with self.subTest(device=device):
                done = run("compress", self.source, "-o", self.out, "--format", "tile-ans", "--threads", 1, "--device", device,
                           env=self.environment(FAIL_LAUNCH_AT=6) if device == "cuda" else self.environment())
                if device == "cuda":
                    self.assertEqual(done.returncode, 2, done.stderr)
                    again = run("compress", self.source, "-o", self.out, "--format", "tile-ans", env=self.environment())
                    self.assertEqual(again.returncode, 0, again.stderr)
                self.assertTrue(self.out.read_bytes() == want)
                remove(self.out)


if __name__ == "__main__":
    unittest.main()
