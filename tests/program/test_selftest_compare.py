"""`weightpress selftest`, and `--compare`, with DF11 and Tile-ANS: the CPU's paths on any machine, and GPUs through the emulated CUDA driver (tests/cuda_driver):
sound ones, several of them, with a bit that flips while a kernel's results lie there, and with every launch failing in turn.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from support import PROGRAM

EMULATOR = os.environ.get("WEIGHTPRESS_EMULATED_CUDA")  # the folder of its libcuda.so.1; none without the CUDA toolkit
FIRST, SECOND, IN_PIECES = CPU_PATHS = ["cpu, 1 thread: read by the slow decoder", "cpu, 2 threads", "cpu, 1 thread, in pieces"]
TILE_ANS = [f"cpu, {path}" for path in ("1 thread, Tile-ANS without SIMD: read by the slow decoder", "1 thread, Tile-ANS with AVX2",
                                        "2 threads, Tile-ANS with AVX2", "1 thread, Tile-ANS with AVX2, in pieces")]
NO_SIMD = "cpu, Tile-ANS with AVX2: "  # begins the line of a machine without it
KERNELS = ["wp_histogram", "wp_segment_bits", "wp_segment_offsets", "wp_encode", "wp_chunk_starts", "wp_decode"]
TILE_ANS_KERNELS = ["wp_tile_ans_histogram", "wp_tile_ans_sizes", "wp_tile_ans_encode", "wp_tile_ans_decode"]


def selftest(*arguments, libraries=None, **settings):
    """settings: the emulator's variables without their prefix."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEIGHTPRESS_CUDA_")}
    if libraries is not None:
        environment["LD_LIBRARY_PATH"] = str(libraries)
    environment |= {f"WEIGHTPRESS_CUDA_{name}": str(value) for name, value in settings.items()}
    return subprocess.run([PROGRAM, "selftest", *map(str, arguments)], capture_output=True, text=True, timeout=300, env=environment)


def compare(*arguments, **options):
    return selftest("--compare", "--threads", 2, *arguments, **options)


def lines(done, kind):
    """What stands behind "ok", "FAILED" or "not run", but for the line of a processor without AVX2."""
    found = [line[8:] for line in done.stdout.splitlines() if line.startswith(kind.ljust(8))]
    return [line for line in found if not line.startswith(NO_SIMD)]


def cpu_paths(done, num_threads=2):
    """What must be the names of the CPU's paths in this output, without and with Tile-ANS."""
    df11 = CPU_PATHS if num_threads > 1 else [FIRST, IN_PIECES]
    if NO_SIMD in done.stdout:
        slow = [path.replace("with AVX2", "without SIMD") for path in TILE_ANS]
        return df11, [slow[0], *slow[2 if num_threads > 1 else 3:]]
    return df11, TILE_ANS if num_threads > 1 else TILE_ANS[:2] + TILE_ANS[3:]


def on_cpu(done):
    return [line for line in lines(done, "ok") if line.startswith("cpu, ")]


class WithoutGpu(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def test_built_in_units_and_tensors(self):
        done = selftest("--threads", 2)
        self.assertEqual((done.returncode, done.stderr, lines(done, "FAILED")), (0, "", []))
        self.assertEqual(sum(line.startswith("Tile-ANS: ") for line in lines(done, "ok")), 9)
        self.assertTrue(done.stdout.endswith("\n25 passed, 0 failed\n"))

    def test_one_format(self):
        for which, what in (("df11", "11 units"), ("tile-ans", "12 tensors")):
            with self.subTest(format=which):
                done = compare("--units", 3, "--format", which)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual(on_cpu(done), cpu_paths(done)[which == "tile-ans"])
                self.assertRegex(done.stdout, rf" passed, 0 failed: paths, with {what} \(3 random ones of seed 1\)\n$")

    def test_this_machine(self):
        done = compare("--units", 25)
        self.assertEqual((done.returncode, done.stderr, lines(done, "FAILED")), (0, "", []))
        self.assertEqual(on_cpu(done), sum(cpu_paths(done), []))
        # Each GPU on two paths of each format, or a line that says why there is none.
        self.assertTrue(len(lines(done, "ok")) >= len(on_cpu(done)) + 4 or any(line.startswith("cuda") for line in lines(done, "not run")), done.stdout)
        self.assertRegex(done.stdout.splitlines()[-1], r"^\d+ passed, 0 failed: paths, with 33 units and 34 tensors "
                                                          r"\(25 random ones of each, of seed 1\)$")

    def test_a_driver_that_is_no_library(self):
        (self.folder / "libcuda.so.1").write_text("not a library")
        done = compare("--units", 3, "--seed", 18446744073709551615, libraries=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(lines(done, "ok"), sum(cpu_paths(done), []))
        (why,) = lines(done, "not run")
        self.assertRegex(why, "^cuda: (the NVIDIA driver cannot be loaded|the kernels are left out of this build)")
        self.assertTrue(done.stdout.endswith(f"{len(lines(done, 'ok'))} passed, 0 failed: paths, with 11 units and 12 tensors "
                                             "(3 random ones of each, of seed 18446744073709551615)\n"), done.stdout)

    def test_one_thread(self):
        done = selftest("--compare", "--threads", 1, "--units", 2)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(on_cpu(done), sum(cpu_paths(done, 1), []))

    def test_arguments(self):
        for arguments in (["--units", 3], ["--seed", 3], ["--max-weights", 3], ["--format", "df11"], ["--compare", "--format", "x"], ["--compare", "--max-weights", 0],
                          ["--compare", "--units", -1], ["--compare", "--seed", "x"]):
            with self.subTest(arguments=arguments):
                done = selftest(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn("selftest --help", done.stderr)
        self.assertIn("Example:", selftest("--help").stdout)


@unittest.skipUnless(EMULATOR, "built without CUDA")
class EmulatedGpu(unittest.TestCase):
    def emulate(self, *arguments, **settings):
        return compare(*arguments, libraries=EMULATOR, **settings)

    def emulate_quickly(self, *arguments, **settings):
        """For what is tried many times: on one thread, and without counters."""
        return selftest("--compare", "--threads", 1, *arguments, libraries=EMULATOR, COUNT=0, **settings)

    def trace(self, *arguments, **settings):
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        done = self.emulate(*arguments, TRACE=folder / "trace", **settings)
        return done, [json.loads(line) for line in (folder / "trace").read_text().splitlines()]

    def assert_sound(self, done, num_gpus, formats="both"):
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual((lines(done, "FAILED"), lines(done, "not run")), ([], []))
        names = [f"cuda:{number} (weightpress emulated GPU, PTX for compute_75)" for number in range(num_gpus)]
        df11, tile_ans = cpu_paths(done)
        df11 = df11 + [path for name in names for path in (name, name + ", in pieces")]
        tile_ans = tile_ans + [path for name in names for path in (name + ", Tile-ANS", name + ", Tile-ANS, in pieces")]
        self.assertEqual(lines(done, "ok"), {"both": df11 + tile_ans, "df11": df11, "tile-ans": tile_ans}[formats])

    def test_a_gpu_with_all_checks(self):
        for seed, arguments in ((1, ["--units", 6, "--seed", 3, "--max-weights", 12000]),
                                (2, ["--units", 12, "--seed", 4, "--max-weights", 600])):
            with self.subTest(seed=seed):
                done, trace = self.trace(*arguments, CHECK="all", SEED=seed)
                self.assert_sound(done, 1)
                self.assertEqual({line["name"] for line in trace if line["op"] == "kernel"}, {*KERNELS, *TILE_ANS_KERNELS})
                self.assertFalse([line for line in trace if line["op"] == "left_over"])

    def test_two_gpus(self):
        done, trace = self.trace("--units", 4, "--max-weights", 3000, CHECK="all", DEVICES=2)
        self.assert_sound(done, 2)
        self.assertEqual({line["device"] for line in trace if line["op"] == "kernel"}, {0, 1})
        self.assertFalse([line for line in trace if line["op"] == "left_over"])

    def test_a_gpu_without_memory_or_kernels(self):
        for settings, words in (({"MEMORY": "100M", "CONTEXT_MEMORY": "200M"}, "CUDA_ERROR_OUT_OF_MEMORY"),
                                ({"DRIVER_VERSION": 9000}, "no kernels of this build run")):
            with self.subTest(**settings):
                done = self.emulate("--units", 1, "--max-weights", 100, **settings)
                self.assertEqual((done.returncode, lines(done, "ok")), (0, sum(cpu_paths(done), [])))
                (why,) = lines(done, "not run")
                self.assertTrue(why.startswith("cuda:0: ") and words in why, why)

    def kernels_of(self, which, *arguments):
        done, trace = self.trace("--format", which, *arguments)
        self.assert_sound(done, 1, which)
        return [line for line in trace if line["op"] == "kernel"], next(line for line in trace if line["op"] == "totals")

    def assert_only_the_gpu(self, done, which):
        """What failed is the GPU's paths, if anything, and all of the CPU's are as they should be. Returns what failed."""
        self.assertIn(done.returncode, (0, 1), done.stderr)
        failed = lines(done, "FAILED")
        self.assertEqual(done.returncode, 1 if failed else 0)
        self.assertTrue(all(line.startswith("cuda:0 ") for line in failed), failed)
        self.assertEqual(on_cpu(done), cpu_paths(done, 1)[which == "tile-ans"])
        return failed

    def bits_that_flip(self, which, arguments, names, writers, num_wanted):
        arguments = ["--format", which, *arguments]
        kernels, _ = self.kernels_of(*arguments[1:])
        # The seed picks the bit, in all of the memory: most of it holds what nobody reads again. So after all kernels have had
        # their turns, those that write most get more, until so many bits were found.
        tries = [(name, seed) for seed in range(num_wanted) for name in names]
        tries += [(name, seed) for seed in range(num_wanted, 20) for name in writers]
        num_found = 0
        for number, (name, seed) in enumerate(tries):
            if num_found >= num_wanted and number >= num_wanted * len(names):
                break
            # The longest ones of each kernel write most.
            places = [i + 1 for i, kernel in enumerate(kernels) if kernel["name"] == name]
            places.sort(key=lambda place: kernels[place - 1]["start_ns"] - kernels[place - 1]["end_ns"])
            place = places[seed % 4]
            with self.subTest(kernel=name, FLIP_AT=place, SEED=seed):
                num_found += bool(self.assert_only_the_gpu(self.emulate_quickly(*arguments, FLIP_AT=place, SEED=seed), which))
        self.assertGreater(num_found, 0)

    def test_bits_that_flip(self):
        self.bits_that_flip("df11", ["--units", 0, "--max-weights", 8000], KERNELS, ("wp_histogram", "wp_encode", "wp_decode"), 2)

    def test_bits_that_flip_in_tile_ans(self):
        self.bits_that_flip("tile-ans", ["--units", 0, "--max-weights", 4000], TILE_ANS_KERNELS, TILE_ANS_KERNELS[2:], 1)

    def test_launches_that_fail(self):
        # The call fails, or the kernel does, and breaks the context.
        results = {701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", 719: "CUDA_ERROR_LAUNCH_FAILED"}
        for which in ("df11", "tile-ans"):
            arguments = ["--format", which, "--units", 1, "--max-weights", 50]
            kernels, totals = self.kernels_of(*arguments[1:])
            self.assertEqual(totals["launches"], len(kernels))
            for launch in [1, 2, 3, 4, 5, 6, len(kernels) // 2, len(kernels) - 1, len(kernels)]:
                result = 701 + 18 * (launch % 2)
                with self.subTest(format=which, launch=launch, result=result):
                    done = self.emulate_quickly(*arguments, FAIL_LAUNCH_AT=launch, LAUNCH_RESULT=result)
                    failed = self.assert_only_the_gpu(done, which)
                    self.assertEqual(done.returncode, 1)
                    self.assertIn(results[result], failed[0])
                    if launch < len(kernels) // 2:
                        self.assertIn("given up after ", done.stdout)

    def test_a_format_after_one_that_broke_the_gpu(self):
        done = self.emulate_quickly("--units", 1, "--max-weights", 50, FAIL_LAUNCH_AT=3, LAUNCH_RESULT=719)
        self.assertEqual((done.returncode, on_cpu(done)), (1, sum(cpu_paths(done, 1), [])), done.stderr)
        failed = lines(done, "FAILED")
        self.assertTrue(all(line.startswith("cuda:0 ") and "CUDA_ERROR_" in line for line in failed), failed)
        self.assertTrue(any(", Tile-ANS" in line for line in failed), failed)

    def test_a_gpu_that_is_lost_beside_one_that_is_not(self):
        arguments = ["--units", 1, "--max-weights", 50]
        _, trace = self.trace(*arguments, DEVICES=2)
        calls = next(line for line in trace if line["op"] == "totals")["calls"]
        told = 0
        for call in range(calls // 6, calls, calls // 6):
            with self.subTest(call=call):
                done = self.emulate_quickly(*arguments, DEVICES=2, LOSE_DEVICE_AT=call, LOSE_DEVICE=1)
                self.assertIn(done.returncode, (0, 1), done.stderr)
                wrong = lines(done, "FAILED") + lines(done, "not run")
                self.assertTrue(all(line.startswith("cuda:1") for line in wrong), wrong)
                name = "cuda:0 (weightpress emulated GPU, PTX for compute_75)"
                self.assertEqual([line for line in lines(done, "ok") if line.startswith("cuda:0")],
                                 [name, name + ", in pieces", name + ", Tile-ANS", name + ", Tile-ANS, in pieces"])
                told += any("CUDA_ERROR_" in line for line in wrong)
        self.assertGreater(told, 3)


if __name__ == "__main__":
    unittest.main()
