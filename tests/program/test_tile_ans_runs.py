"""compress --format tile-ans: runs that are killed, trouble of the machine, and --ram. Every run ends with the same bytes.

Needs numpy; WEIGHTPRESS_TROUBLE_SHIM, which ctest sets.
"""
import os
import pathlib
import re
import signal
import subprocess
import unittest

import numpy as np

import support
import tile_ans_files as files
from broken_runs import IS_SANITIZED, JOURNAL, SHIM
from sources import run_measured
from support import run
from test_tile_ans import CORRUPT, IMPOSSIBLE, TileAnsCase
from tile_ans_files import tensor

WENT_ON = re.compile(r"went on with an earlier run: (\d+) of (\d+) units")


class Runs(TileAnsCase):
    def setUp(self):
        super().setUp()
        shards = {f"model-0000{n}-of-00002.safetensors": {
            f"layers.{n}.{letter}": tensor(dtype, 60_000, 10 * n + i)
            for i, (letter, dtype) in enumerate((("a", "BF16"), ("b", "F32"), ("c", "I8"), ("d", "F16")))} | {
                f"layers.{n}.norm": tensor("F32", 3000, n)} for n in (1, 2)}
        self.source = files.write_folder(self.work / "model", shards, {"format": "pt"}, side_files={"config.json": support.CONFIG})
        self.partial = pathlib.Path(f"{self.out}.partial")

    def broken(self, rule, *options, out=None, source=None):
        if not SHIM:
            self.skipTest("WEIGHTPRESS_TROUBLE_SHIM is not set: run this through ctest")
        environment = {**os.environ, "LD_PRELOAD": SHIM, "WP_TROUBLE": rule}
        return subprocess.run([support.PROGRAM, "compress", str(source or self.source), "-o", str(out or self.out), "--format",
                               "tile-ans", *map(str, options)], text=True, stdin=subprocess.DEVNULL, capture_output=True,
                              check=False, env=environment, timeout=120)

    def unbroken(self, *options):
        out = self.work / "unbroken"
        self.compressed(self.source, out, "--force", *options)
        return support.read_tree(out)

    def test_killed_at_every_kind_of_moment(self):
        for options in ([], ["--fast"]):
            want = self.unbroken(*options)
            goes_on = 0
            moments = [*(f"write|{JOURNAL}|{n}|{action}" for n in range(1, 21, 4) for action in ("kill", "killafter", "half")),
                       *(f"write|00001-of-00002.safetensors|{n}|{action}" for n in (1, 2, 5, 11, 30) for action in ("kill", "half")),
                       *(f"write|00002-of-00002.safetensors|{n}|killafter" for n in (1, 7, 20)),
                       "write|weightpress.json|1|half", "write|index.json|1|half", "write|config.json|1|kill",
                       f"unlink|{JOURNAL}|1|kill", f"unlink|{JOURNAL}|1|killafter", "rename|.partial|1|kill",
                       "rename|.partial|1|killafter", "read|00002-of-00002.safetensors|9|kill"]
            for number, moment in enumerate(moments if not options else moments[::5]):
                with self.subTest(options=options, moment=moment):
                    done = self.broken(moment, *options)
                    if done.returncode == -signal.SIGKILL:
                        goes_on += 1
                        if not self.out.exists():
                            again = self.compressed(self.source, self.out, *options, *(["--threads", 1] if number % 2 else []))
                            if found := WENT_ON.search(again.stderr):
                                self.assertLessEqual(int(found[1]), int(found[2]))
                    else:
                        self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(support.read_tree(self.out), want)
                    self.assertFalse(self.partial.exists())
                    self.remove_out()
            self.assertGreater(goes_on, 3)

    def remove_out(self):
        for path in self.out.iterdir():
            path.unlink()
        self.out.rmdir()

    def test_what_is_done_is_not_done_again(self):
        want = self.unbroken()
        # All of the first file, two tensors of the second.
        done = self.broken('write|00002-of-00002.safetensors|14|kill', "--threads", 1)
        self.assertEqual(done.returncode, -signal.SIGKILL)
        written = sum(1 for line in (self.partial / JOURNAL).read_bytes().splitlines() if b"tile_ans_written" in line)
        self.assertGreaterEqual(written, 4)
        again = self.compressed(self.source, self.out)
        self.assertEqual(WENT_ON.search(again.stderr)[1], str(written))
        self.assertEqual(support.read_tree(self.out), want)

    def test_what_an_earlier_run_wrote_is_checked(self):
        want = self.unbroken()
        self.assertEqual(self.broken('write|00002-of-00002.safetensors|14|kill', "--threads", 1).returncode, -signal.SIGKILL)
        path = self.partial / "model-00001-of-00002.safetensors"
        content = bytearray(path.read_bytes())
        for place in (len(content) - 5000, len(content) // 2, 9000, 100):
            content[place] ^= 0x10
        path.write_bytes(content)
        self.compressed(self.source, self.out)
        self.assertEqual(support.read_tree(self.out), want)

    def test_all_but_the_rename_was_done(self):
        """Also where the file system does not remember of what job it is: then it is compared with the source."""
        want = self.unbroken()
        for forgets, spoil in ((False, None), (True, None), (True, "tensor"), (True, "file")):
            with self.subTest(forgets=forgets, spoil=spoil):
                self.assertEqual(self.broken(f"unlink|{JOURNAL}|1|killafter").returncode, -signal.SIGKILL)
                if forgets:
                    os.removexattr(self.partial, "user.weightpress.complete")
                path = self.partial / "model-00002-of-00002.safetensors"
                if spoil == "tensor":
                    content = bytearray(path.read_bytes())
                    content[len(content) // 2] ^= 1
                    path.write_bytes(content)
                elif spoil == "file":
                    (self.partial / "more.txt").write_text("x")
                done = self.compress(self.source, self.out)
                if spoil:
                    self.assert_fails(done, IMPOSSIBLE, "not as in the source" if spoil == "tensor" else "more.txt", "--no-resume")
                    self.compressed(self.source, self.out, "--no-resume")
                else:
                    self.assert_done(done)
                    self.assertIn("everything but the last step", done.stderr)
                self.assertEqual(support.read_tree(self.out), want)
                self.remove_out()

    def test_another_job_is_refused(self):
        self.assertEqual(self.broken('write|00002-of-00002.safetensors|14|kill').returncode, -signal.SIGKILL)
        before = support.read_tree(self.partial)
        for options, said in ((["--probability-bits", 11], "--probability-bits"), (["--include", ".*a"], "--include"),
                              (["--fast"], "--fast")):
            self.assert_fails(self.compress(self.source, self.out, *options), IMPOSSIBLE, "another job", said, "--no-resume")
        done = run("compress", self.source, "-o", self.out)
        self.assertEqual(done.returncode, IMPOSSIBLE)
        self.assertEqual(support.read_tree(self.partial), before)
        self.compressed(self.source, self.out, "--probability-bits", 11, "--no-resume")
        self.assertEqual(support.read_tree(self.out), self.unbroken("--probability-bits", 11))

    def test_a_source_that_changes(self):
        self.assertEqual(self.broken('write|00002-of-00002.safetensors|14|kill').returncode, -signal.SIGKILL)
        path = self.source / "model-00002-of-00002.safetensors"
        os.utime(path, ns=(1, 1))
        self.assert_fails(self.compress(self.source, self.out), IMPOSSIBLE, "modified")

    def test_interrupt_and_a_full_disk(self):
        done = self.broken('write|00002-of-00002.safetensors|14|int')
        self.assertEqual(done.returncode, 130)
        self.assertRegex(done.stderr, "run the same command again")
        want = self.unbroken()
        done = self.broken('write|00002-of-00002.safetensors|20+|enospc')
        self.assertEqual(done.returncode, IMPOSSIBLE, done.stderr)
        self.assertTrue(self.partial.exists())
        self.compressed(self.source, self.out)
        self.assertEqual(support.read_tree(self.out), want)

    def test_a_file_alone(self):
        source = self.source / "model-00001-of-00002.safetensors"
        alone = self.work / "alone.safetensors"
        alone.write_bytes(source.read_bytes())
        out = self.work / "out.safetensors"
        self.compressed(alone, self.work / "want.safetensors")
        for moment in ("write|out.safetensors|9|kill", "rename|out.safetensors|1|kill", "rename|weightpress.json|1|killafter",
                       f"unlink|{JOURNAL}|1|kill"):
            with self.subTest(moment=moment):
                self.assertEqual(self.broken(moment, "--force", out=out, source=alone).returncode, -signal.SIGKILL)
                self.compressed(alone, out, "--force")
                self.assert_same_file(out, (self.work / "want.safetensors").read_bytes())
                self.assertFalse(pathlib.Path(f"{out}.partial").exists())

    def test_decompress_that_is_killed(self):
        self.compressed(self.source, self.out)
        back = self.work / "back"
        if not SHIM:
            self.skipTest("WEIGHTPRESS_TROUBLE_SHIM is not set: run this through ctest")
        for moment in ("write|00001-of-00002.safetensors|3|kill", "write|config.json|1|half", "rename|back.partial|1|killafter"):
            with self.subTest(moment=moment):
                subprocess.run([support.PROGRAM, "decompress", str(self.out), "-o", str(back)], capture_output=True, check=False,
                               env={**os.environ, "LD_PRELOAD": SHIM, "WP_TROUBLE": moment})
                self.assert_comes_back(self.out, self.source)

    def test_a_disk_that_stores_other_bits(self):
        """With --safe it is found; nothing of the output appears."""
        flip = os.environ.get("WEIGHTPRESS_FLIP_SHIM")
        if not flip:
            self.skipTest("WEIGHTPRESS_FLIP_SHIM is not set: run this through ctest")
        def compress(at, count="count"):
            environment = {**os.environ, "LD_PRELOAD": flip, "WP_FLIP_AT": at, "WP_FLIP_COUNT": str(self.work / count)}
            return subprocess.run([support.PROGRAM, "compress", str(self.source), "-o", str(self.out), "--format", "tile-ans",
                                   "--threads", "1", "--force"], text=True, capture_output=True, check=False, env=environment)

        self.assertEqual(compress("1000000:0").returncode, 0)
        num_writes = int((self.work / "count").read_text())
        self.remove_out()
        self.assertGreater(num_writes, 80)
        for call in range(1, num_writes + 1, 3):
            with self.subTest(call=call):
                done = compress(f"{call}:{1_000_003 * call}")
                self.assertEqual(done.returncode, CORRUPT, done.stderr)
                self.assertRegex(done.stderr, "read back")
                self.assertFalse(self.out.exists())
                self.assertFalse(self.partial.exists())


class Memory(TileAnsCase):
    def test_ram_bounds_the_process(self):
        """A tensor of 96 MiB, below 64 MB, in one tile size and another."""
        if IS_SANITIZED:
            self.skipTest("a sanitizer's memory is its own")
        pool = np.frombuffer(tensor("BF16", 1 << 20, 1)[2], "<u2")
        big = ("BF16", [48, 1 << 20], np.concatenate([np.roll(pool, 7919 * n) for n in range(48)]).tobytes())
        source = self.file_of({"big": big, "small": tensor("F32", 30_000, 2)})
        want = None
        for ram, tile in (("48M", 0), ("64M", 0), ("64M", 1 << 20), ("1G", 1 << 20)):
            with self.subTest(ram=ram, tile=tile):
                out = self.work / "out.safetensors"
                done, peak = run_measured("compress", source, "-o", out, "--format", "tile-ans", "--ram", ram, "--tile-elements", tile,
                                          "--force", "--threads", 2)
                self.assert_done(done)
                self.assertLess(peak, {"48M": 48, "64M": 64, "1G": 1024}[ram] * 1e6 / 2**20)
                content = out.read_bytes()
                if want is not None and want[0] == tile:
                    self.assertEqual(content == want[1], True)
                want = tile, content
        self.assert_done(run("verify", out, "--source", source))
        done = self.compress(source, self.work / "x.safetensors", "--ram", "64M", "--tile-elements", 1 << 24)
        self.assert_fails(done, IMPOSSIBLE, "smallest value that works")
        smallest = re.search(r"--ram (\d+[KMG]?)", done.stderr)[1]
        done, peak = run_measured("compress", source, "-o", self.work / "x.safetensors", "--format", "tile-ans", "--ram", smallest,
                                  "--tile-elements", 1 << 24)
        self.assert_done(done)
        self.assertLess(peak, int(smallest[:-1]))


if __name__ == "__main__":
    unittest.main()
