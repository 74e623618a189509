"""The whole chain from the program to a kernel, through the emulated CUDA driver (tests/cuda_driver): driver, context, module,
streams, pinned memory, our comparison of buffers. With a real GPU the same is what `weightpress devices` does there.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from support import PROGRAM

EMULATOR = os.environ["WEIGHTPRESS_EMULATED_CUDA"]  # the folder of its libcuda.so.1
MIB = 1 << 20


def devices(check_exit=True, **settings):
    """The report, by the emulator's variables without their prefix."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEIGHTPRESS_CUDA_")}
    environment["LD_LIBRARY_PATH"] = EMULATOR
    environment |= {f"WEIGHTPRESS_CUDA_{name}": str(value) for name, value in settings.items()}
    done = subprocess.run([PROGRAM, "devices", "--json"], capture_output=True, text=True, timeout=300, env=environment)
    if check_exit:
        assert done.returncode == 0, (done.returncode, done.stderr)
    return json.loads(done.stdout)


class DeviceChain(unittest.TestCase):
    def trace(self, **settings):
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        report = devices(TRACE=folder / "trace", **settings)
        return report, [json.loads(line) for line in (folder / "trace").read_text().splitlines()]

    def test_the_kernel_runs_and_is_right(self):
        for seed in range(4):
            with self.subTest(seed=seed):
                report, lines = self.trace(SEED=seed, CHECK="all", THREADS=1 + seed % 2)
                (device,) = report["devices"]
                self.assertEqual((device["usable"], device["problem"]), (True, ""))
                self.assertEqual((device["arch"], device["name"]), ("sm_86", "weightpress emulated GPU"))
                self.assertEqual(device["kernels"], "PTX for compute_75")
                self.assertEqual(len(device["notes"]), 1)  # the cubin, which the emulator cannot run
                self.assertIn("CUDA_ERROR_NO_BINARY_FOR_GPU", device["notes"][0])
                self.assertEqual(report["driver"]["cuda"], "13.0")
                self.assertTrue(report["driver"]["path"].startswith(EMULATOR))
                (kernel,) = [line for line in lines if line.get("op") == "kernel"]
                self.assertEqual((kernel["name"], kernel["state"]), ("wp_compare", "done"))
                copied = sum(line["bytes"] for line in lines if line.get("op") == "copy_in")
                self.assertGreaterEqual(copied, 2 * MIB)
                self.assertTrue(all(line["pinned"] for line in lines if line.get("op") == "copy_in"))
                self.assertFalse([line for line in lines if line["op"] == "left_over"])

    def test_several_gpus(self):
        report = devices(DEVICES=3, COMPUTE="7.5", MEMORY="4G")
        self.assertEqual([d["number"] for d in report["devices"] if d["usable"]], [0, 1, 2])
        self.assertEqual({d["arch"] for d in report["devices"]}, {"sm_75"})
        self.assertEqual({d["memory_bytes"] for d in report["devices"]}, {4 << 30})

    def test_a_generation_without_a_cubin(self):
        (device,) = devices(COMPUTE="11.0")["devices"]
        self.assertTrue(device["usable"], device["problem"])
        self.assertIn("no cubin for sm_110", device["notes"][0])

    def test_drivers_that_cannot_be_used(self):
        for settings, words in (({"INIT_RESULT": 100}, "finds no GPU"), ({"DEVICES": 0}, "finds no GPU"),
                                ({"INIT_RESULT": 803}, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")):
            with self.subTest(**settings):
                report = devices(**settings)
                self.assertEqual(report["devices"], [])
                self.assertIn(words, report["driver"]["problem"])

    def test_a_driver_older_than_the_ptx(self):
        (device,) = devices(DRIVER_VERSION=9000)["devices"]  # PTX 6.0
        self.assertFalse(device["usable"])
        self.assertIn("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", device["problem"])
        (device,) = devices(DRIVER_VERSION=9000, COMPUTE="11.0")["devices"]  # no cubin fits: the PTX is tried, once
        self.assertEqual(device["problem"].count("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), 1, device["problem"])

    def test_every_failure_in_turn_is_told(self):
        _, lines = self.trace()
        totals = next(line for line in lines if line["op"] == "totals")
        plans = [{"OOM_AT": k} for k in range(1, totals["allocations"] + 1)]
        plans += [{"FAIL_LAUNCH_AT": k} for k in range(1, totals["launches"] + 1)]
        plans += [{"LOSE_DEVICE_AT": k} for k in range(1, totals["calls"] + 1)]
        self.assertGreater(len(plans), 30)
        silent, told_of = 0, []
        for plan in plans:
            with self.subTest(**plan):
                report = devices(**plan)
                told = report["driver"]["problem"] or report["devices"][0]["problem"]
                told_of.append(told)
                if told:
                    self.assertRegex(told, "CUDA_ERROR_|no kernels of this build run")
                else:
                    silent += 1
                    # Only giving back can fail unnoticed.
                    self.assertGreater(plan.get("LOSE_DEVICE_AT", 0), totals["calls"] // 2)
        self.assertLess(silent, 20)
        # The call, what it was for, and the driver's own words.
        self.assertTrue(any("cuMemAlloc_v2 of 1048576 bytes: CUDA_ERROR_OUT_OF_MEMORY (" in told for told in told_of), told_of)
        self.assertTrue(any("cuLaunchKernel of wp_compare (" in told or "CUDA_ERROR_LAUNCH_FAILED" in told for told in told_of))


if __name__ == "__main__":
    unittest.main()
