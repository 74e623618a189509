"""How many times as fast as entropack's eager code we code BF16 on one core: the figures of docs/benchmarking.md, kept from below.

Processor time, the same tensor of 512 KiB, in turn, best of two. Needs numpy, safetensors, entropack 0.1.0, and bench_tile_ans
built with optimisation (WEIGHTPRESS_BENCH_TILE_ANS).
"""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench"))

import tile_ans_speed  # noqa: E402  (found through the line above)

BENCH = os.environ.get("WEIGHTPRESS_BENCH_TILE_ANS")
LEAST = 20  # measured: more than 100, on a busy machine too
SKIPPED = 77


class OneCore(unittest.TestCase):
    def test_times_the_reference(self):
        speed = tile_ans_speed.measure(BENCH, tile_ans_speed.normal_weights(1 << 19), repeat=2, min_time=0.02)
        self.assertEqual(*speed.stored)
        told = tile_ans_speed.factors(speed)
        print({" ".join(key): round(factor) for key, factor in told.items()})
        self.assertLessEqual({("encode", "portable"), ("decode", "portable")}, told.keys())
        for key, factor in told.items():
            self.assertGreaterEqual(factor, LEAST, key)


if __name__ == "__main__":
    if not BENCH:
        print("skipped: there is no bench_tile_ans that was built with optimisation")
        sys.exit(SKIPPED)
    unittest.main()
