"""A run that is killed at any moment, and killed again while it goes on, ends with the bytes of one that nothing interrupted.

WEIGHTPRESS_SEED, WEIGHTPRESS_KILLS: the moments, and how many in all (20). A killed run loses at most the units in flight, as
the next one tells. Standard library and numpy only.
"""
import json
import os
import random
import signal
import time
import unittest

import support
from broken_runs import (FOLDER_LAYOUTS, JOURNAL, LAYOUTS, SEED, BrokenRuns, Journals, layered_tensors, out_of, partial_of,
                         remove, results, unit_names)

KILLS = int(os.environ.get("WEIGHTPRESS_KILLS", "20"))
NUM_LAYERS, NUM_THREADS = 40, 2
JOBS = ([], ["--hashes"], ["--fast"], ["--force"])
OLD = {"old.bin": b"what was there before", "config.json": b"{}"}


class RandomKills(BrokenRuns):
    """SIGKILL from outside: after a time, when the journal has so many lines, when so many files are there."""

    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.source = support.write_model(self.work / "model", layered_tensors(NUM_LAYERS, 400_000, SEED))
        self.units = unit_names(NUM_LAYERS)
        self.known = {}

    def job(self, layout, options):
        """(results, seconds, Journals) of an unbroken run."""
        key = (layout, *(option for option in options if option != "--force"))
        if key not in self.known:
            folder = self.place()
            start = time.monotonic()
            self.assert_done(self.compress(self.source, out_of(folder, layout), layout, "--threads", NUM_THREADS, *key[1:]))
            seconds = time.monotonic() - start
            want = results(out_of(folder, layout))
            remove(folder)
            whole = self.whole_journal(self.source, layout, *key[1:])
            self.known[key] = want, seconds, Journals(whole, self.units)
            remove(whole.parent)
        return self.known[key]

    def options_that_change_no_byte(self):
        """Threads stay few, so that what is in flight stays little."""
        options = ["--threads", self.random.choice((1, 2, 3))]
        if self.random.random() < 0.5:
            options += ["--ram", self.random.choice(("256M", "1G"))]
        if self.random.random() < 0.2:
            options.append("--force")
        return options + self.random.choice(([], ["-q"], ["--progress", "plain"], ["--progress", "bar"], ["--progress", "none"]))

    def wait_for_the_moment(self, process, out, seconds, total_lines, total_bytes):
        """Returns what was waited for: a time, lines of the journal, files, or in a file alone the space it takes."""
        partial = partial_of(out)
        way = self.random.choice(("time", "time", "journal", "files"))
        if way == "time":
            delay = self.random.uniform(0, seconds)
            time.sleep(delay)
            return f"{delay:.3f} s"

        def reached():
            try:
                if way == "journal":
                    return (partial / JOURNAL).read_bytes().count(b"\n")
                files = list(partial.glob("*.safetensors"))
                return sum(path.stat().st_blocks * 512 for path in files) if out.suffix else len(files)
            except OSError:
                return 0

        total = total_lines if way == "journal" else total_bytes if out.suffix else len(self.units)
        wanted = self.random.randint(1, max(1, total))
        if partial.exists() and wanted <= reached():  # in a run that goes on: what comes next
            wanted = reached() + 1
        deadline = time.monotonic() + 3 * seconds
        while process.poll() is None and reached() < wanted and time.monotonic() < deadline:
            time.sleep(0.0003)
        return f"{wanted} {'lines' if way == 'journal' else 'bytes' if out.suffix else 'files'}"

    def chain(self, layout, options, num_kills):
        """Kills one job up to so many times. Returns how many kills there were, and how many hit it."""
        want, seconds, journals = self.job(layout, options)
        replaces = "--force" in options
        remove(self.place_of_out)
        self.place_of_out.mkdir()
        out = out_of(self.place_of_out, layout)
        old = None
        if replaces and out.suffix:
            # An earlier output: its side files are ours to replace.
            old = b"old"
            out.write_bytes(old)
        elif replaces:
            out.mkdir()
            for name, content in OLD.items():
                (out / name).write_bytes(content)
            old = OLD
        partial, told, kills, hits, finished = partial_of(out), [], 0, 0, 0
        for kills in range(1, num_kills + 1):
            more = self.options_that_change_no_byte()
            process = self.start(self.source, out, layout, *options, *more)
            moment = self.wait_for_the_moment(process, out, seconds * (1 - finished / len(self.units)) + 0.01, journals.num_lines,
                                              sum(len(content) for name, content in want.items() if name.endswith("tensors")))
            process.kill()
            _, said = process.communicate()
            told.append(f"{' '.join(map(str, more))}, killed after {moment}, {finished} units done before: {process.returncode}")
            message = f"[seed {SEED}, {layout} {options}: {'; '.join(told)}]"
            if "went on" in said:
                self.assert_went_on(said, finished, len(self.units), message)
            if process.returncode == 0:
                break
            self.assertEqual(process.returncode, -signal.SIGKILL, f"{message}: {said}")
            hits += 1
            now = (out.read_bytes() if out.suffix else support.read_tree(out)) if out.exists() else None
            if now != old:
                # Killed after the rename, when OUT is new already.
                self.assertIsNotNone(now, f"OUT is gone {message}")
                self.assertEqual(now, want["out.safetensors"] if out.suffix else want, message)
                break
            if (partial / "weightpress.json").exists() and not (partial / JOURNAL).exists() or not partial.exists():
                finished = 0  # complete, and only to be renamed; or nothing was done yet
                continue
            before, finished = finished, journals.finished(partial / JOURNAL)
            self.assertGreaterEqual(finished, before, f"finished units were forgotten {message}")
            if layout in FOLDER_LAYOUTS:
                # Files that are whole and not in the journal: their units were in flight.
                whole = sum(1 for unit in self.units if self.is_whole(partial, unit, want))
                self.assertLessEqual(whole - finished, 2 * 3 + 2, f"more is lost than units in flight {message}")
                # Siblings are copied after the unit: those of the last one may be missing.
                self.assertGreaterEqual(whole, finished - 1, f"the journal has units that are not on the disk {message}")
        self.finish(layout, options, out, want, finished, f"[seed {SEED}, {layout} {options}: {'; '.join(told)}]")
        return kills, hits

    @staticmethod
    def is_whole(partial, unit, want):
        """But for its header: hashes in it come later."""
        path = support.shard_path(partial, unit)
        if not path.is_file():
            return False
        whole = want[path.name]
        data = 8 + int.from_bytes(whole[:8], "little")
        return path.read_bytes()[data:] == whole[data:]

    def finish(self, layout, options, out, want, finished, message):
        """The same command until it ends: OUT is that of an unbroken run."""
        new = out.exists() and (out.read_bytes() == want["out.safetensors"] if out.suffix else results(out) == want)
        if new and "--force" not in options:
            self.assertFalse(partial_of(out).exists() and any(partial_of(out).glob("*.safetensors")), message)
            if partial_of(out).exists():  # a file alone: OUT is renamed last, then the folder is removed
                self.assertNotEqual(out.suffix, "", message)
                remove(partial_of(out))
            self.assert_same(out, want, message)
            return
        if new:
            finished = 0
        report = self.work / "report.json"
        done = self.compress(self.source, out, layout, *options, "--threads", NUM_THREADS, "--report", report)
        self.assertEqual(done.returncode, 0, f"{message}: {done.stderr}")
        if finished:
            self.assert_went_on(done.stderr, finished, len(self.units), message)
            self.assertEqual(json.loads(report.read_text())["resumed_units"], finished, message)
        self.assert_same(out, want, message)

    def test_killed_at_random_moments(self):
        self.need_shim()
        kills, hits, number = 0, 0, 0
        while kills < KILLS:
            layout, options = LAYOUTS[number % 4], JOBS[(number + number // 4) % 4]
            wanted = min(self.random.choice((1, 2, 3, 4)), KILLS - kills)
            done = (wanted, 0)
            with self.subTest(layout=layout, options=options):
                done = self.chain(layout, options, wanted)
            kills, hits, number = kills + done[0], hits + done[1], number + 1
        print(f"{hits} of {kills} kills hit a running program, {number} jobs")
        self.assertGreaterEqual(2 * hits, kills, "most kills came too late: the model is too small for this machine")


class KillsAtEveryStep(BrokenRuns):
    """SIGKILL before, in the middle of, and after what the program does to the disk; in a run that goes on too."""
    MOMENTS = (("write", ("kill", "half", "killafter")), ("sync", ("kill",)), ("rename", ("kill", "killafter")),
               ("unlink", ("kill", "killafter")))
    MAX_CALLS = 30  # of one function; of more an even choice

    def setUp(self):
        super().setUp()
        self.need_shim()
        self.random = random.Random(SEED)
        self.source = support.write_model(self.work / "model", layered_tensors(3, 3000, SEED))

    def count_calls(self, layout, *options):
        """How often a whole run calls each function on files of OUT.partial."""
        count = self.work / "count"
        out = out_of(self.place(), layout)
        self.assert_done(self.compress(self.source, out, layout, "-q", "--threads", 1, *options, count=count,
                                       trouble=[f"{function}|{self.out_name(out)}|1000000|kill" for function, _ in self.MOMENTS]))
        return dict(zip((function for function, _ in self.MOMENTS), map(int, count.read_text().split())))

    @staticmethod
    def out_name(out):
        return f"/{partial_of(out).name}"

    def check(self, layout, *options):
        want = self.unbroken(self.source, layout, *options)
        counts = self.count_calls(layout, *options)
        self.assertTrue(all(counts.values()), counts)
        killed = 0
        for function, actions in self.MOMENTS:
            calls = range(1, counts[function] + 1)
            if len(calls) > self.MAX_CALLS:
                calls = sorted(self.random.sample(calls, self.MAX_CALLS))
            for call in calls:
                action = self.random.choice(actions)
                remove(self.place_of_out)
                self.place_of_out.mkdir()
                out = out_of(self.place_of_out, layout)
                moments = [f"{function}|{self.out_name(out)}|{call}|{action}"]
                if call % 3 == 0:  # and once more, early in the run that goes on
                    moments.append(f"{self.random.choice(('write', 'sync', 'unlink'))}|{self.out_name(out)}|"
                                   f"{self.random.randint(1, 6)}|kill")
                with self.subTest(layout=layout, options=options, moments=moments, seed=SEED):
                    for moment in moments:
                        done = self.compress(self.source, out, layout, "-q", "--threads", 1, *options, trouble=moment)
                        self.assertIn(done.returncode, (0, -signal.SIGKILL), done.stderr)
                        killed += done.returncode != 0
                        if out.exists():
                            break
                    if not out.exists():
                        self.assertNotEqual(done.returncode, 0)
                        done = self.compress(self.source, out, layout, *options)
                        self.assertEqual(done.returncode, 0, done.stderr)
                        self.assert_same(out, want)
                        continue
                    if partial_of(out).exists():  # a file alone has its name before the folder goes
                        remove(partial_of(out))
                    self.assert_same(out, want)
        return killed

    def test_of_every_layout(self):
        killed = sum(self.check(layout) for layout in LAYOUTS)
        self.assertGreater(killed, 100)

    def test_with_hashes(self):
        """The header is written again at the end."""
        for layout in ("transformers", "comfyui"):
            self.check(layout, "--hashes")

    def test_nothing_is_said_of_a_run_that_had_done_nothing(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                out = out_of(self.place(), layout)
                done = self.compress(self.source, out, layout, trouble=f"write|{JOURNAL}|1|kill")
                self.assertEqual(done.returncode, -signal.SIGKILL)
                done = self.compress(self.source, out, layout)
                self.assert_done(done)
                self.assertNotIn("went on", done.stderr)


if __name__ == "__main__":
    unittest.main()
