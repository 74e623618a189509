"""A GPU that fails in the middle of `weightpress compress`: out of memory, failed launches, a lost device, flipped bits.

With --device auto the CPU takes over with one warning, and the files are right. With --device cuda the run ends with exit code
2, and the CPU goes on with the same command. Through the emulated CUDA driver (tests/cuda_driver), at every call in turn.

WEIGHTPRESS_SEED, WEIGHTPRESS_FLIP_SEEDS: of flipped bits, and how many at each kernel (2). WEIGHTPRESS_SLAB_STEP: with units in
slabs only every so many-th call is tried (15). Standard library and numpy only.
"""
import collections
import json
import os
import re
import unittest

import support
from broken_runs import SEED, layered_tensors, out_of, partial_of, results
from support import bf16, words
from test_gpu_compress import IN_SLABS, NAME, SEGMENT, GpuCase

FLIP_SEEDS = int(os.environ.get("WEIGHTPRESS_FLIP_SEEDS", "2"))
GAVE_UP = f"note: the GPU failed, and the CPU goes on: {NAME}: "
LAUNCH_RESULTS = {719: "CUDA_ERROR_LAUNCH_FAILED", 701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}
SLAB_STEP = int(os.environ.get("WEIGHTPRESS_SLAB_STEP", "15"))
LESS_MEMORY = "note: the GPU goes on with "
IN_SLABS_TOO = ("--vram", "1060K")  # two at once
WAYS = (("transformers", ()), ("comfyui", ()), ("transformers", IN_SLABS_TOO))
LARGER = "note: the output is larger than the source"


class TroubleCase(GpuCase):
    WEIGHTS = 3000

    def setUp(self):
        super().setUp()
        self.small = support.write_model(self.work / "model", layered_tensors(1, self.WEIGHTS, SEED))
        # Three units, the longest one of several slabs.
        self.long = support.write_model(self.work / "long", {
            "embed.weight": bf16(words(SEED, 10 * SEGMENT + 5)), "head.weight": bf16(words(SEED + 1, 300)),
            "layers.0.a.weight": bf16(words(SEED + 2, 70)), "layers.0.b.weight": bf16(words(SEED + 3, 9))})
        self.source = self.small

    def choose(self, options):
        """The model for these options."""
        self.source = self.long if options == IN_SLABS_TOO else self.small

    def run_with(self, layout, device, *options, traced=False, **settings):
        return self.run_on_gpu(self.source, layout, "-q", "--threads", 1, "--device", device, *options, settings=settings,
                               traced=traced)

    def totals(self, layout, *options):
        """Numbers of calls, allocations and launches of a sound run."""
        self.choose(options)
        done, _, trace = self.run_with(layout, "cuda", *options, traced=True)
        self.assert_done(done)
        return next(line for line in trace if line["op"] == "totals")

    @staticmethod
    def told(done):
        """Lines on stderr, without the emulator's and the one that has nothing to do with it."""
        return [line for line in done.stderr.splitlines() if not line.startswith("emulated CUDA driver: ") and line != LARGER]


class Trouble(TroubleCase):
    def check(self, layout, device, *options, **settings):
        """Right files, or an error that tells of the GPU, after which the CPU goes on. Returns what became of the run."""
        done, report, _ = self.run_with(layout, device, *options, **settings)
        out, want, told = out_of(self.place_of_out, layout), self.want(self.source, layout), self.told(done)
        in_slabs = [line for line in told if re.search(IN_SLABS, line)]
        less = [line for line in told if line.startswith(LESS_MEMORY)]
        for line in less:
            self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", line)
        told = [line for line in told if line not in in_slabs + less]
        if done.returncode == 0:
            self.assert_same(out, want)
            self.assertLessEqual(len(told), 1, told)
            self.assertEqual(report["status"], "done")
            if not told and report["device"] == "cpu":
                self.assertIn("CUDA_ERROR_", report["why_device"])
                return "on the CPU"
            if not told:  # or it failed after all was done
                self.assertEqual(report["device"], NAME)
                return "with less memory" if less else "unnoticed"
            self.assertEqual(device, "auto")
            self.assertTrue(told[0].startswith(GAVE_UP), told)
            self.assertEqual((report["device"], report["verifier"]), ("cpu", "host decoder"))
            self.assertIn(report["why_device"], told[0])
            return told[0].removeprefix(GAVE_UP)
        self.assertEqual((done.returncode, device), (2, "cuda"), done.stderr)
        self.assertEqual(len(told), 1, told)
        self.assertRegex(told[0], "^weightpress: (--device cuda: |cuda:0 )")
        self.assertEqual((report["status"], report["error"]["code"]), ("failed", "device-failed"))
        self.assertFalse(out.exists(), "OUT is there after a failure")
        again = self.compress(self.source, out, layout, "-q", "--device", "cpu", env=self.settings())
        self.assert_done(again)
        self.assert_same(out, want)
        return told[0]

    def sweep(self, plans, layout, *options):
        """Every plan with both devices, or with the one that it names. Returns {(plan as text, device): what became of it}."""
        found = {}
        for plan in plans:
            for device in (plan["device"],) if "device" in plan else ("auto", "cuda"):
                settings = {name: value for name, value in plan.items() if name != "device"}
                with self.subTest(layout=layout, options=options, device=device, **settings):
                    found[json.dumps(settings), device] = self.check(layout, device, *options, **settings)
        return found

    def test_out_of_memory(self):
        for layout, options in WAYS:
            number = self.totals(layout, *options)["allocations"]
            self.assertGreater(number, 15)
            step = SLAB_STEP if options else 1
            plans = [{"OOM_AT": k, "OOM_STAYS": stays} for k in range(1, number + 1, step) for stays in (0, 1)]
            found = self.sweep(plans, layout, *options)
            for (plan, _), ended in found.items():
                plan = json.loads(plan)
                if plan["OOM_STAYS"]:
                    self.assertNotIn(ended, ("unnoticed", "with less memory") if not options else ("unnoticed",), plan)
                if ended not in ("on the CPU", "with less memory", "unnoticed"):
                    self.assertRegex(ended, "CUDA_ERROR_OUT_OF_MEMORY|too little even for slabs")
            self.assertIn("unnoticed", found.values())  # of a pipeline that is being made
            if step == 1:
                self.assertIn("with less memory", found.values())
            self.assertTrue(any("cuMemAlloc" in ended or "too little" in ended for ended in found.values()))

    def test_launches_that_fail(self):
        for layout, options in WAYS:
            number = self.totals(layout, *options)["launches"]
            self.assertGreater(number, 10)
            results = list(LAUNCH_RESULTS)
            plans = [{"FAIL_LAUNCH_AT": k, "LAUNCH_RESULT": result} for k in range(1, number + 1, SLAB_STEP if options else 1) for result in results]
            for (plan, _), ended in self.sweep(plans, layout, *options).items():
                self.assertIn(LAUNCH_RESULTS[json.loads(plan)["LAUNCH_RESULT"]], ended)
                self.assertRegex(ended, r"cu[A-Z]\w+")

    def test_a_device_that_is_lost(self):
        for step, (layout, options) in zip((2, 7, 5 * SLAB_STEP), WAYS):
            calls = self.totals(layout, *options)["calls"]
            plans = [{"LOSE_DEVICE_AT": k, "SEED": k % 5, "device": ("auto", "cuda")[k // step % 2]}
                     for k in range(1, calls + 1, step)]
            found = self.sweep(plans, layout, *options)
            for (plan, _), ended in found.items():
                lost_at = json.loads(plan)["LOSE_DEVICE_AT"]
                if ended == "unnoticed":
                    self.assertGreater(lost_at, calls // 2, "only giving back can fail unnoticed")
                elif ended != "on the CPU":
                    self.assertIn("CUDA_ERROR_DEVICE_UNAVAILABLE", ended)
                    self.assertRegex(ended, r"cu[A-Z]\w+")
            self.assertGreater(sum("CUDA_ERROR" in ended for ended in found.values()), len(found) // 2)


class OtherTrouble(TroubleCase):
    """Of the disk, the source or the user, while a GPU is at work: as on the CPU, and no fault of the GPU."""

    def check(self, function, path, call, action, layout, codes):
        """Returns whether it happened: the run has fewer calls otherwise."""
        out, want = self.fresh_out(layout), self.want(self.source, layout)
        with self.subTest(layout=layout, trouble=(function, call, action)):
            done = self.compress(self.source, out, layout, "-q", "--threads", 1, "--device", "auto",
                                 env=self.settings(SEED=call), trouble=f"{function}|{path(out)}|{call}|{action}")
            if done.returncode == 0:
                self.assert_same(out, want)
                return False
            self.assertIn(done.returncode, codes, done.stderr)
            self.assertFalse(support.mentions(done.stderr, "GPU|cuda"), done.stderr)
            self.assertFalse(out.exists())
            done = self.compress(self.source, out, layout, "-q", "--device", "auto", env=self.settings(SEED=call))
            self.assert_done(done)
            self.assert_same(out, want)
        return True

    def test_it(self):
        self.need_shim()
        seen = collections.Counter()
        for layout in ("transformers", "comfyui"):
            for function, path, action, codes in (("write", lambda out: f"/{partial_of(out).name}", "enospc", (2,)),
                                                  ("write", lambda out: f"/{partial_of(out).name}", "int", (130,)),
                                                  ("read", lambda out: "/model/model.safetensors", "eio", (2,)),
                                                  ("sync", lambda out: f"/{partial_of(out).name}", "eio", (2,))):
                for call in range(1, 100, 2):
                    if not self.check(function, path, call, action, layout, codes):
                        break
                    seen[function, action] += 1
        print(dict(seen))
        self.assertEqual(len(seen), 4)
        self.assertGreater(min(seen.values()), 3)


class FlippedBits(TroubleCase):
    """One bit of the GPU's memory after each kernel: it is seen, or has no effect."""

    def flip(self, layout, device, *options, **settings):
        """Returns what became of a run in which a bit flips."""
        want = self.want(self.source, layout)
        done, report, trace = self.run_with(layout, device, *options, COUNT=0, traced=True, **settings)
        (flip,) = [line["message"] for line in trace if line["op"] == "bit_flipped"]
        told, out = [line for line in self.told(done) if not re.search(IN_SLABS, line)], out_of(self.place_of_out, layout)
        if done.returncode != 0:
            self.assertEqual((done.returncode, device, len(told)), (2, "cuda", 1), f"{flip}: {done.stderr}")
            self.assertTrue(told[0].startswith(f"weightpress: {NAME}: "), told)
            self.assertFalse(out.exists())
            self.assert_done(self.compress(self.source, out, layout, "-q", "--device", "cpu", env=self.settings()))
        elif told:
            self.assertEqual((device, len(told), told[0][:len(GAVE_UP)]), ("auto", 1, GAVE_UP), told)
            self.assertEqual((report["device"], report["verifier"]), ("cpu", "host decoder"))
        self.assert_same(out, want)
        if not told:
            return "without effect"
        return "found by wp_decode" if "does not read back" in told[0] else "found"

    def test_never_a_wrong_file(self):
        found = collections.Counter()
        for layout, options in WAYS:
            ends = collections.Counter()
            for seed in range(100 * SEED, 100 * SEED + FLIP_SEEDS):
                step = SLAB_STEP if options else 1
                for k in range(1 + seed % step, self.totals(layout, *options)["launches"] + 1, step):
                    device = ("auto", "cuda")[(seed + k) % 2]
                    with self.subTest(layout=layout, options=options, device=device, SEED=seed, FLIP_AT=k):
                        ends[self.flip(layout, device, *options, SEED=seed, FLIP_AT=k)] += 1
            print(f"seed {SEED}, {' '.join((layout, *options))}: {dict(ends)}")
            found += ends
        self.assertGreater(found["found by wp_decode"], 0)
        self.assertGreater(found["found"], 0)


if __name__ == "__main__":
    unittest.main()
