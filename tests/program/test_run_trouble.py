"""Trouble in the middle of a run: a full disk, a source that cannot be read or is cut short, OUT.partial gone, a signal.

The run ends with a message that says how to go on, and the same command then ends with the bytes of a run without trouble.
Standard library and numpy only.
"""
import os
import pty
import random
import re
import signal
import subprocess
import threading
import time
import unittest

import support
from broken_runs import (FOLDER_LAYOUTS, GOES_ON, INTERRUPTED, IS_SANITIZED, JOURNAL, LAYOUTS, SEED, SHIM, WENT_ON, BrokenRuns,
                         Journals, journal_lines, layered_tensors, out_of, partial_of, remove, unit_names)
from sources import fingerprint
from support import bf16, words

NUM_LAYERS = 8
LARGE_UNITS = unit_names(6)
MAX_SECONDS_TO_STOP = 2 if not IS_SANITIZED else 10


class TroubleCase(BrokenRuns):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.source = support.write_model(self.work / "model", layered_tensors(NUM_LAYERS, 20_000, SEED))
        self.file = self.source / "model.safetensors"

    def fresh(self, layout):
        remove(self.place_of_out)
        self.place_of_out.mkdir()
        return out_of(self.place_of_out, layout)

    def assert_stopped(self, done, out, *patterns, code=2, message=""):
        """A run that met trouble: exit code, what it says, OUT absent, OUT.partial there."""
        self.assertEqual(done.returncode, code, f"{message}: {done.stderr}")
        for pattern in (*patterns, GOES_ON):
            self.assertRegex(done.stderr, f"(?i){pattern}", message)
        self.assertNotRegex(done.stderr, "terminate called|std::|what\\(\\)", message)
        self.assertFalse(out.exists(), message)
        self.assertTrue(partial_of(out).exists(), message)

    def ends_well(self, out, layout, want, *options, went_on=None, message=""):
        done = self.compress(self.source, out, layout, *options)
        self.assertEqual(done.returncode, 0, f"{message}: {done.stderr}")
        if went_on is not None:
            self.assertEqual(bool(WENT_ON.search(done.stderr)), went_on, f"{message}: {done.stderr}")
        self.assert_same(out, want, message)

    def stopped(self, layout, out, *options):
        """A run that stands still when more than half of the journal is written."""
        count = self.work / "journal_writes"
        scratch = out_of(self.place(), layout)
        self.assert_done(self.compress(self.source, scratch, layout, "--threads", 1, "-q", count=count,
                                       trouble=f"write|{JOURNAL}|1000000|stop"))
        moment = int(int(count.read_text()) * 0.65)
        self.assertGreater(moment, 1, "no journal is written")
        process = self.start(self.source, out, layout, "--threads", 1, *options, trouble=f"write|{JOURNAL}|{moment}|stop")
        self.assertTrue(self.wait_until_stopped(process), "it ended before")
        return process

    @staticmethod
    def go_on(process):
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, "", said)


class FullDisks(TroubleCase):
    # place, first size, second size, where the result goes to, command. Runs the command on a disk that is too small, makes
    # room, and runs it again.
    SCRIPT = ('place=$1; small=$2; large=$3; copy=$4; shift 4; mount -t tmpfs -o "size=$small" weightpress "$place" || exit 77; '
              '"$@"; echo "first $?"; ls -A "$place"; mount -o "remount,size=$large" "$place" || exit 77; echo ==== >&2; '
              '"$@"; echo "second $?"; cp -a "$place/." "$copy"')

    def test_room_is_made(self):
        for layout in LAYOUTS:
            want = self.unbroken(self.source, layout)
            total = sum(map(len, want.values()))
            for share in (0.3, 0.6, 0.9):
                with self.subTest(layout=layout, share=share):
                    out = self.fresh(layout)
                    copy = self.place()
                    done = subprocess.run(
                        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", self.SCRIPT, "sh", self.place_of_out,
                         str(int(total * share)), "64m", copy, *self.command(self.source, out, layout, "--progress", "none")],
                        text=True, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
                    if done.returncode == 77 or "unshare:" in done.stderr:
                        self.skipTest(f"no mount name spaces here: {done.stderr}")
                    left = done.stdout[:done.stdout.index("second")].split()
                    first, _, second = done.stderr.partition("====\n")
                    self.assertIn("first 2\n", done.stdout, first)
                    self.assertRegex(first, "(?i)no space|free|full")
                    self.assertNotIn(out.name, left)
                    if layout in FOLDER_LAYOUTS:  # a file alone is known to be too large before anything is written
                        self.assertIn(f"{out.name}.partial", left)
                        self.assertRegex(first, f"(?i){GOES_ON}")
                        if share > 0.5:
                            self.assertRegex(second, WENT_ON)
                    self.assertIn("second 0\n", done.stdout, second)
                    self.assert_same(copy / out.name, want)

    def test_any_write_that_finds_no_room(self):
        """And one that fails for another reason: the results themselves, the journal, and what makes them durable."""
        self.need_shim()
        for layout in LAYOUTS:
            want = self.unbroken(self.source, layout)
            for function, path, action in (("write", ".safetensors", "enospc"), ("write", ".safetensors", "eio"),
                                           ("write", JOURNAL, "enospc"), ("write", JOURNAL, "eio"), ("write", ".partial/", "erofs"),
                                           ("sync", ".safetensors", "eio"), ("sync", JOURNAL, "eio"),
                                           ("sync", ".partial", "enospc")):
                counts = self.work / "counts"
                out = self.fresh(layout)
                self.assert_done(self.compress(self.source, out, layout, "--threads", 1, trouble=f"{function}|{path}|1000000|kill",
                                               count=counts))
                calls = int(counts.read_text())
                if function == "write":
                    self.assertGreater(calls, 3 if path == JOURNAL else 8)
                for call in sorted({1, self.random.randint(1, max(calls, 1)), calls}) if calls else ():
                    with self.subTest(layout=layout, function=function, path=path, action=action, call=call, seed=SEED):
                        out = self.fresh(layout)
                        done = self.compress(self.source, out, layout, "--threads", 1,
                                             trouble=f"{function}|{path}|{call}+|{action}")
                        if done.returncode == 0:
                            # A side file that need not be there, or nothing that counts any more.
                            self.assertGreater(call, 1, done.stderr)
                            self.assert_same(out, want)
                            continue
                        self.assertEqual(done.returncode, 2, done.stderr)
                        self.assertRegex(done.stderr, {"enospc": "(?i)no space|full", "eio": "(?i)input/output|failed",
                                                       "erofs": "(?i)read-only"}[action])
                        self.assertFalse(out.exists())
                        if journal_lines(partial_of(out) / JOURNAL):
                            self.assertRegex(done.stderr, f"(?i){GOES_ON}")
                        self.ends_well(out, layout, want)


class SourcesThatFail(TroubleCase):
    def setUp(self):
        super().setUp()
        self.need_shim()

    def assert_cannot_be_read(self, done, out, layout, *patterns):
        """In a file alone that may be found when units are counted, before there is anything to go on with."""
        if layout in FOLDER_LAYOUTS or partial_of(out).exists():
            self.assert_stopped(done, out, r"model\.safetensors", *patterns)
            return
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"model\.safetensors")
        self.assertFalse(out.exists())

    def test_a_disk_that_cannot_be_read(self):
        size = self.file.stat().st_size
        for layout in LAYOUTS:
            want = self.unbroken(self.source, layout)
            for share in (0.2, 0.5, 0.8, 0.99):
                offset = int(size * share) + self.random.randrange(1000)
                with self.subTest(layout=layout, offset=offset, seed=SEED):
                    out = self.fresh(layout)
                    done = self.compress(self.source, out, layout, "--threads", 2,
                                         trouble=f"read|model/model.safetensors|1+@{offset}|eio")
                    self.assert_cannot_be_read(done, out, layout, "(?i:input/output error|cannot be read)")
                    self.ends_well(out, layout, want)

    def count_reads(self, layout):
        count = self.work / "reads"
        self.assert_done(self.compress(self.source, self.fresh(layout), layout, "--threads", 1, count=count,
                                       trouble="read|model/model.safetensors|1000000|eio"))
        return int(count.read_text())

    def test_a_disk_that_fails_once_and_again_later(self):
        """Each time the run gets further."""
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                want, reads = self.unbroken(self.source, layout), self.count_reads(layout)
                self.assertGreater(reads, 8)
                out, told = self.fresh(layout), []
                for share in (0.4, 0.4, 0.4):
                    done = self.compress(self.source, out, layout, "--threads", 1,
                                         trouble=f"read|model/model.safetensors|{int(reads * share)}|eio")
                    if done.returncode == 0:
                        break
                    self.assert_cannot_be_read(done, out, layout)
                    found = WENT_ON.search(done.stderr)
                    told.append(int(found[1]) if found else 0)
                self.assertGreater(len(told), 0)
                self.assertEqual(told, sorted(told))
                if layout in FOLDER_LAYOUTS and len(told) > 1:
                    self.assertGreater(told[1], 0)
                if not out.exists():
                    self.ends_well(out, layout, want)
                self.assert_same(out, want)

    def test_a_file_that_ends_before_its_time(self):
        """As a network share may do."""
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                want, reads = self.unbroken(self.source, layout), self.count_reads(layout)
                out = self.fresh(layout)
                done = self.compress(self.source, out, layout, "--threads", 1,
                                     trouble=f"read|model/model.safetensors|{reads // 2}+|eof")
                self.assert_cannot_be_read(done, out, layout, "ends|short|cut|end of")
                self.ends_well(out, layout, want)

    def test_a_shard_that_is_cut_short_in_the_middle(self):
        content, times = self.file.read_bytes(), self.file.stat()
        for layout in LAYOUTS:
            want = self.unbroken(self.source, layout)
            for share in (0, 0.1, 0.5, 0.95):
                with self.subTest(layout=layout, share=share):
                    out = self.fresh(layout)
                    process = self.stopped(layout, out)
                    os.truncate(self.file, int(len(content) * share))
                    done = self.go_on(process)
                    try:
                        self.assert_stopped(done, out, r"model\.safetensors")
                        # As long as it is short the same command says so, and keeps what is done.
                        before = fingerprint(out.parent)
                        done = self.compress(self.source, out, layout)
                        self.assertIn(done.returncode, (1, 2), done.stderr)
                        self.assertRegex(done.stderr, r"model\.safetensors")
                        self.assertEqual(fingerprint(out.parent), before)
                    finally:
                        self.file.write_bytes(content)
                        os.utime(self.file, ns=(times.st_atime_ns, times.st_mtime_ns))
                    self.ends_well(out, layout, want)

    def test_a_shard_that_is_written_to_in_the_middle(self):
        content, times = self.file.read_bytes(), self.file.stat()
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                out = self.fresh(layout)
                process = self.stopped(layout, out)
                with open(self.file, "r+b") as file:
                    file.seek(-9, os.SEEK_END)
                    file.write(b"another..")
                os.utime(self.file, ns=(times.st_atime_ns, times.st_mtime_ns + 5_000_000_000))
                done = self.go_on(process)
                try:
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertRegex(done.stderr, r"model\.safetensors")
                    self.assertFalse(out.exists())
                    done = self.compress(self.source, out, layout)
                    if done.returncode != 0:
                        self.assertRegex(done.stderr, "--no-resume")
                        self.assert_done(self.compress(self.source, out, layout, "--no-resume"))
                    self.assert_same(out, self.unbroken(self.source, layout))
                finally:
                    self.file.write_bytes(content)
                    os.utime(self.file, ns=(times.st_atime_ns, times.st_mtime_ns))


class PartialThatGoesAway(TroubleCase):
    """OUT.partial is removed, moved or made read-only while the run stands still."""

    def setUp(self):
        super().setUp()
        self.need_shim()

    def test_removed(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                want = self.unbroken(self.source, layout)
                out = self.fresh(layout)
                process = self.stopped(layout, out)
                remove(partial_of(out))
                done = self.go_on(process)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, r"partial")
                self.assertNotIn("terminate called", done.stderr)
                self.assertEqual(list(out.parent.iterdir()), [])
                self.ends_well(out, layout, want, went_on=False)

    def test_moved_away(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                want = self.unbroken(self.source, layout)
                out = self.fresh(layout)
                process = self.stopped(layout, out)
                elsewhere = out.parent / "elsewhere"
                os.rename(partial_of(out), elsewhere)
                done = self.go_on(process)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, r"partial")
                self.assertEqual(list(out.parent.iterdir()), [elsewhere])
                # Moved back it goes on.
                if (elsewhere / JOURNAL).exists():
                    os.rename(elsewhere, partial_of(out))
                else:
                    remove(elsewhere)
                self.ends_well(out, layout, want)

    def test_another_folder_in_its_place(self):
        """Nothing of it is lost."""
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                out = self.fresh(layout)
                process = self.stopped(layout, out)
                os.rename(partial_of(out), out.parent / "elsewhere")
                partial_of(out).mkdir()
                (partial_of(out) / "thesis.txt").write_text("years of work")
                before = fingerprint(partial_of(out) / "thesis.txt")
                done = self.go_on(process)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(fingerprint(partial_of(out) / "thesis.txt"), before)
                self.assertFalse(out.exists())

    def test_the_journal_removed(self):
        """The run may end well or not; the next one is right."""
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                want = self.unbroken(self.source, layout)
                out = self.fresh(layout)
                process = self.stopped(layout, out)
                (partial_of(out) / JOURNAL).unlink()
                done = self.go_on(process)
                self.assertIn(done.returncode, (0, 2), done.stderr)
                if done.returncode != 0:
                    self.assertFalse(out.exists())
                    self.ends_well(out, layout, want)
                self.assert_same(out, want)

    def test_out_appears_in_between(self):
        """Somebody else's OUT is not replaced without --force."""
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                want = self.unbroken(self.source, layout)
                out = self.fresh(layout)
                process = self.stopped(layout, out)
                if out.suffix:
                    out.write_text("somebody's")
                else:
                    out.mkdir()
                    (out / "thesis.txt").write_text("somebody's")
                before = fingerprint(out)
                done = self.go_on(process)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(fingerprint(out), before)
                remove(out)
                self.ends_well(out, layout, want)

    def test_a_folder_that_turns_read_only(self):
        if os.getuid() == 0:
            self.skipTest("root writes everywhere; writes that fail are in FullDisks")
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                want = self.unbroken(self.source, layout)
                out = self.fresh(layout)
                process = self.stopped(layout, out)
                partial_of(out).chmod(0o555)
                out.parent.chmod(0o555)
                done = self.go_on(process)
                out.parent.chmod(0o755)
                partial_of(out).chmod(0o755)
                self.assert_stopped(done, out, "permission")
                self.ends_well(out, layout, want)


class ErrorsOfTheData(TroubleCase):
    """They would come again: nothing is left, as ever."""

    def test_a_unit_that_cannot_be_stored(self):
        tensors = layered_tensors(NUM_LAYERS, 20_000, SEED)
        inf = words(3, 5000)
        inf[77] = 0x7F80
        source = support.write_model(self.work / "inf", tensors | {"layers.6.b.weight": bf16(inf)})
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                out = self.fresh(layout)
                done = self.compress(source, out, layout)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, r"layers\.6\.b\.weight")
                self.assertEqual(list(out.parent.iterdir()), [])


class Signals(TroubleCase):
    """Ctrl-C and SIGTERM: exit code 130 within two seconds, a message, and nothing lost but units in flight."""

    def setUp(self):
        super().setUp()
        # One unit is large: stopping must not wait for its end.
        self.large = support.write_model(self.work / "large", layered_tensors(6, 200_000, SEED) | {
            "embed.weight": bf16(words(5, 4_000_000).repeat(8))})

        self.journals = {}

    def finished(self, layout, path):
        """How many units the journal has as finished; nothing where that cannot be learned."""
        if not SHIM:
            return None
        if layout not in self.journals:
            self.journals[layout] = [Journals(self.whole_journal(self.large, layout, *mode), LARGE_UNITS)
                                     for mode in ((), ("--fast",))]
        return max(journals.finished(path) for journals in self.journals[layout])

    def stop(self, layout, out, number, ready, options, terminal=False):
        """Sends the signal when ready(process) returns. (exit code, seconds, what was said)"""
        main = None
        if terminal:
            try:
                main, stderr = pty.openpty()
            except OSError as error:
                self.skipTest(f"no terminal can be made here: {error}")
        else:
            stderr = subprocess.PIPE
        process = self.start(self.large, out, layout, *options, stderr=stderr, text=False, errors=None)
        said = bytearray()
        source = main if terminal else process.stderr.fileno()

        def read():
            while True:
                try:
                    piece = os.read(source, 65536)
                except OSError:
                    return
                if not piece:
                    return
                said.extend(piece)

        reader = threading.Thread(target=read)
        reader.start()
        if terminal:
            os.close(stderr)
        ready(process)
        start = time.monotonic()
        process.send_signal(number)
        try:
            process.wait(timeout=30)
        finally:
            process.kill()
            process.wait()
            seconds = time.monotonic() - start
            reader.join(timeout=10)
            if terminal:
                os.close(main)
        return process.returncode, seconds, said.decode(errors="replace").replace("\r\n", "\n")

    def check(self, layout, number, ready, options=(), terminal=False, message=""):
        """Returns whether the signal came in time."""
        out = self.fresh(layout)
        partial = partial_of(out)
        code, seconds, said = self.stop(layout, out, number, ready, options, terminal)
        if code == 0:
            self.assert_same(out, self.want[layout], message)
            return False
        if code == -number and not said and not partial.exists():
            return False  # it had hardly begun
        self.assertEqual(code, INTERRUPTED, f"{message}: {said}")
        self.assertLess(seconds, MAX_SECONDS_TO_STOP, message)
        self.assertRegex(said, "interrupted", message)
        self.assertNotRegex(said, "terminate called|std::", message)
        if out.exists():  # the last rename was done
            self.assert_same(out, self.want[layout], message)
            return True
        if partial.exists():
            self.assertRegex(said, rf"interrupted; .* is in {re.escape(str(partial))}: run the same command again to go on", message)
            # On a line of its own.
            self.assertRegex(said, r"(^|\n|\r|\x1b\[K)weightpress: interrupted", message)
        finished = self.finished(layout, partial / JOURNAL) if (partial / JOURNAL).exists() else None
        done = self.compress(self.large, out, layout)
        self.assertEqual(done.returncode, 0, f"{message}: {done.stderr}")
        if finished is not None:
            self.assert_went_on(done.stderr, finished, len(LARGE_UNITS), message)
        self.assert_same(out, self.want[layout], message)
        return True

    def test_at_several_moments(self):
        wants, seconds = {}, {}
        moments = [(layout, number, options, terminal) for layout in ("transformers", "comfyui")
                   for number in (signal.SIGINT, signal.SIGTERM)
                   for options, terminal in (((), False), (("--progress", "bar"), True), (("--fast", "-q"), False))]
        for layout in ("transformers", "comfyui"):
            for mode in ((), ("--fast",)):
                self.unbroken(self.large, layout, *mode)  # the first one is slower
                start = time.monotonic()
                wants[layout, mode] = self.unbroken(self.large, layout, *mode)
                seconds[layout, mode] = time.monotonic() - start
        came = 0
        for index, (layout, number, options, terminal) in enumerate(moments):
            key = layout, ("--fast",) if "--fast" in options else ()
            delay = (index % 6 + self.random.random()) / 6 * 0.9 * seconds[key]
            message = f"[{layout} {options} {signal.Signals(number).name} after {delay:.3f} s of {seconds[key]:.3f}, seed {SEED}]"
            with self.subTest(message):
                self.want = {layout: wants[key]}
                came += self.check_with_options(layout, number, delay, options, terminal, message)
        print(f"{came} of {len(moments)} signals came in time")
        self.assertGreaterEqual(came, len(moments) // 3)

    def check_with_options(self, layout, number, delay, options, terminal, message):
        plain = self.compress
        if "--fast" in options:  # the run after it is of the same job
            self.compress = lambda source, out, layout, *more, **keywords: plain(source, out, layout, "--fast", *more, **keywords)
        try:
            return self.check(layout, number, lambda _: time.sleep(delay), options, terminal, message)
        finally:
            self.compress = plain

    def test_while_the_large_unit_is_in_work(self):
        """Which is most of the time; what was done before is told by the next run."""
        self.want = {}
        for layout in ("transformers", "comfyui"):
            self.want[layout] = self.unbroken(self.large, layout)
            for number in (signal.SIGINT, signal.SIGTERM):
                for options in ((), ("--ram", "128M", "--threads", 1)):

                    def ready(process, layout=layout):
                        path = partial_of(out_of(self.place_of_out, layout)) / JOURNAL
                        deadline = time.monotonic() + 20
                        while process.poll() is None and not path.exists() and time.monotonic() < deadline:
                            time.sleep(0.001)
                        self.assertTrue(path.exists() or process.poll() is not None, "there is no journal")
                        time.sleep(0.05)

                    with self.subTest(layout=layout, number=number, options=options):
                        self.check(layout, number, ready, options)

    def test_before_anything_is_written(self):
        self.want = {"transformers": self.unbroken(self.large, "transformers")}
        with self.subTest("at once"):
            self.check("transformers", signal.SIGTERM, lambda _: time.sleep(0.015))

    def test_twice(self):
        """An impatient user: the second one may not do harm."""
        layout = "transformers"
        self.want = {layout: self.unbroken(self.large, layout)}

        def ready(process):
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            time.sleep(0.005)

        self.check(layout, signal.SIGINT, ready)


if __name__ == "__main__":
    unittest.main()
