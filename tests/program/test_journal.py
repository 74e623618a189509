"""The journal of OUT.partial: torn, damaged, of another job, or no file at all; and damage to what it tells of.

A run goes on with what is true and does the rest again, or it refuses and touches nothing: OUT is never wrong. Standard
library and numpy only.
"""
import json
import os
import random
import signal
import socket
import struct
import unittest

import numpy as np

import support
from broken_runs import (FOLDER_LAYOUTS, JOURNAL, LAYOUTS, SEED, BrokenRuns, Journals, layered_tensors, out_of,
                         partial_of, put_back, remove, results, unit_names)
from sources import fingerprint
from support import bf16, reference, words

NUM_LAYERS = 6
UNITS = unit_names(NUM_LAYERS)
MAX_CUTS = int(os.environ.get("WEIGHTPRESS_JOURNAL_CUTS", "120"))  # of one layout; of more byte lengths an even choice


class JournalCase(BrokenRuns):
    def setUp(self):
        super().setUp()
        self.need_shim()
        self.random = random.Random(SEED)
        self.source = support.write_model(self.work / "model", layered_tensors(NUM_LAYERS, 3000, SEED))
        self.states = {}

    def interrupted(self, layout, *options, done_units=5):
        """(a copy of OUT.partial that a run left when so many units or more were finished, Journals)."""
        key = (layout, options, done_units)
        if key in self.states:
            return self.states[key]
        whole = self.whole_journal(self.source, layout, *options)
        journals = Journals(whole, UNITS)
        writes = self.work / "writes"
        self.assert_done(self.compress(self.source, out_of(self.place(), layout), layout, "-q", "--threads", 1, *options,
                                       trouble=f"write|{JOURNAL}|1000000|kill", count=writes))
        for write in range(1, int(writes.read_text()) + 1):
            out = out_of(self.place(), layout)
            done = self.compress(self.source, out, layout, "-q", "--threads", 1, *options,
                                 trouble=f"write|{JOURNAL}|{write}|killafter")
            self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
            if done_units <= journals.finished(partial_of(out) / JOURNAL) < len(UNITS):
                self.states[key] = partial_of(out), journals
                return self.states[key]
        self.fail(f"no moment at which {done_units} of {len(UNITS)} units are in the journal, and not all")

    def restored(self, layout, *options, **more):
        """(OUT, OUT.partial, Journals) with OUT.partial as interrupted() has it, and nothing else there."""
        saved, journals = self.interrupted(layout, *options, **more)
        remove(self.place_of_out)
        self.place_of_out.mkdir()
        out = out_of(self.place_of_out, layout)
        put_back(saved, partial_of(out))
        return out, partial_of(out), journals

    def goes_on(self, out, layout, want, *options, finished=None, message=""):
        done = self.compress(self.source, out, layout, "--progress", "none", *options)
        self.assertEqual(done.returncode, 0, f"{message}: {done.stderr}")
        if finished is not None:
            self.assert_went_on(done.stderr, finished, len(UNITS), message)
        self.assert_same(out, want, message)
        return done

    def refused(self, out, layout, *patterns, options=(), source=None, message=""):
        """Exit code 2, nothing touched."""
        before = fingerprint(out.parent)
        done = self.compress(source or self.source, out, layout, *options)
        self.assert_refused_untouched(done, out, before, *patterns, message=message)
        return done

    def goes_on_or_is_refused(self, out, layout, want, *options, message=""):
        """Right, or exit code 2 and nothing touched. Returns the exit code."""
        before = fingerprint(out.parent)
        done = self.compress(self.source, out, layout, "--progress", "none", *options, timeout=30)
        if done.returncode == 0:
            self.assert_same(out, want, message)
        else:
            self.assert_refused_untouched(done, out, before, "partial", message=message)
        return done.returncode


class TornJournals(JournalCase):
    """A line that is not whole or not intact ends the journal."""

    def each(self):
        for layout in ("transformers", "comfyui"):
            want = self.unbroken(self.source, layout)
            saved, journals = self.interrupted(layout)
            yield layout, want, (saved / JOURNAL).read_bytes(), journals

    def with_journal(self, layout, content):
        """(OUT, how many units this journal has as finished) with this journal in OUT.partial."""
        out, partial, journals = self.restored(layout)
        (partial / JOURNAL).write_bytes(content)
        return out, journals.finished(partial / JOURNAL)

    def test_sound(self):
        for layout, want, journal, _ in self.each():
            with self.subTest(layout=layout):
                self.assertTrue(journal.endswith(b"\n"))
                out, finished = self.with_journal(layout, journal)
                self.assertGreaterEqual(finished, 5)
                self.goes_on(out, layout, want, finished=finished)

    def test_what_is_done_is_not_made_again(self):
        """Its files stay the ones that the first run wrote."""
        layout = "transformers"
        want = self.unbroken(self.source, layout)
        out, partial, _ = self.restored(layout)
        before = {path.name: path.stat() for path in partial.glob("*.safetensors")}
        self.goes_on(out, layout, want)
        same = [name for name, status in before.items() if ((out / name).stat().st_ino, (out / name).stat().st_mtime_ns) ==
                (status.st_ino, status.st_mtime_ns)]
        self.assertGreaterEqual(len(same), 4, "finished units were written again")  # the fifth lacks a sibling

    def test_cut_at_every_length(self):
        for layout, want, journal, _ in self.each():
            lines = journal.splitlines(keepends=True)
            tail = sum(map(len, lines[-2:]))
            cuts = set(range(len(journal) - tail, len(journal)))
            ends = {end + near for end in np.cumsum([0, *map(len, lines)]).tolist() for near in (-2, -1, 0, 1)}
            ends |= {len(lines[0]) // 2, 8, 16, 17, 18}
            if len(cuts) > MAX_CUTS:
                cuts = set(self.random.sample(sorted(cuts), MAX_CUTS))
            for cut in sorted(cut for cut in cuts | ends if 0 <= cut < len(journal)):
                out, finished = self.with_journal(layout, journal[:cut])
                # Without its line end alone a line may count or not.
                is_whole_line = journal[cut:cut + 1] == b"\n"
                with self.subTest(layout=layout, cut=cut, length=len(journal), seed=SEED):
                    self.goes_on(out, layout, want, finished=None if is_whole_line else finished)

    def test_something_after_the_end(self):
        for layout, want, journal, journals in self.each():
            lines = journal.splitlines(keepends=True)
            wrong_sum = b"0" * 16 + lines[-1][16:]
            for what, more in {"a letter": b"x", "a line end": b"\n", "zeros": bytes(4096), "half a line": lines[-1][:40],
                               "bytes": self.random.randbytes(1000), "lines": b"\n\n\n" + self.random.randbytes(50) + b"\n",
                               "the last line again": lines[-1], "the first line again": lines[0], "a wrong sum": wrong_sum,
                               "no object": b"0123456789abcdef null\n", "deep": b"0123456789abcdef " + b"[" * 100_000 + b"\n",
                               "long": b"a" * 5_000_000, "text": b"0123456789abcdef {\"unit\": \"\xff\xfe\"}\n"}.items():
                with self.subTest(layout=layout, more=what):
                    out, _ = self.with_journal(layout, journal + more)
                    self.goes_on(out, layout, want, finished=self.finished_in(journals, journal))

    def finished_in(self, journals, content):
        path = self.work / "some_journal"
        path.write_bytes(content)
        return journals.finished(path)

    def test_torn_and_killed_once_more(self):
        """What a run adds behind a torn line counts in the next one."""
        for layout, want, journal, journals in self.each():
            last = journal[:-1].rindex(b"\n") + 1
            for what, torn in {"cut": journal[:-5], "cut early": journal[:last + 3], "garbage": journal[:last] + b"x" * 1000,
                               "a wrong sum": journal[:last] + b"0" * 16 + journal[last + 16:]}.items():
                with self.subTest(layout=layout, torn=what):
                    before = self.finished_in(journals, torn)
                    count = self.work / "count"
                    out, _ = self.with_journal(layout, torn)
                    self.assert_done(self.compress(self.source, out, layout, "--threads", 1, count=count,
                                                   trouble=f"write|{JOURNAL}|1000000|kill"))
                    writes = int(count.read_text())
                    self.assertGreater(writes, 1)
                    out, _ = self.with_journal(layout, torn)
                    done = self.compress(self.source, out, layout, "--threads", 1,
                                         trouble=f"write|{JOURNAL}|{writes - 1}|killafter")
                    self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
                    finished = journals.finished(partial_of(out) / JOURNAL)
                    self.assertGreater(finished, before, "what the run did is not in the journal, or behind what is torn")
                    self.goes_on(out, layout, want, finished=finished)

    def test_a_wrong_bit_in_each_line(self):
        for layout, want, journal, journals in self.each():
            lines = journal.splitlines(keepends=True)
            for number, line in enumerate(lines):
                for place in {0, 15, 16, 17, len(line) - 2, len(line) - 1, self.random.randrange(len(line))}:
                    bit = self.random.randrange(8)
                    wrong = bytearray(line)
                    wrong[place] ^= 1 << bit
                    content = b"".join(lines[:number]) + bytes(wrong) + b"".join(lines[number + 1:])
                    with self.subTest(layout=layout, line=number, byte=place, bit=bit, seed=SEED):
                        out, _ = self.with_journal(layout, content)
                        if number == 0:
                            # Torn, or the beginning of a file that is not ours.
                            self.goes_on_or_is_refused(out, layout, want)
                        else:
                            self.goes_on(out, layout, want, finished=self.finished_in(journals, b"".join(lines[:number])))

    def test_lines_that_are_gone_or_changed_places(self):
        for layout, want, journal, journals in self.each():
            lines = journal.splitlines(keepends=True)
            for number in range(len(lines)):
                with self.subTest(layout=layout, without=number):
                    out, _ = self.with_journal(layout, b"".join(lines[:number] + lines[number + 1:]))
                    if number == 0:
                        self.goes_on_or_is_refused(out, layout, want)
                    else:
                        self.goes_on(out, layout, want, finished=self.finished_in(journals, b"".join(lines[:number])))
            for number in range(1, len(lines) - 1):
                with self.subTest(layout=layout, swapped=number):
                    swapped = lines[:number] + [lines[number + 1], lines[number]] + lines[number + 2:]
                    out, _ = self.with_journal(layout, b"".join(swapped))
                    self.goes_on(out, layout, want, finished=self.finished_in(journals, b"".join(lines[:number])))

    def test_a_line_of_another_runs_journal(self):
        """Right in itself, in the wrong chain: it tells of other bytes."""
        other = support.write_model(self.work / "other", layered_tensors(NUM_LAYERS, 3000, SEED + 100))
        for layout, want, journal, journals in self.each():
            foreign = self.whole_journal(other, layout).read_bytes().splitlines(keepends=True)
            lines = journal.splitlines(keepends=True)
            for number in range(1, min(len(lines), len(foreign))):
                with self.subTest(layout=layout, number=number):
                    out, _ = self.with_journal(layout, b"".join(lines[:number] + foreign[number:]))
                    self.goes_on(out, layout, want, finished=self.finished_in(journals, b"".join(lines[:number])))

    def test_empty_or_gone(self):
        for layout, want, journal, _ in self.each():
            first = journal.index(b"\n")
            # Zeros: of data that did not reach the disk before a power cut the length alone may be there.
            for content in (b"", journal[:1], journal[:20], journal[:first], bytes(first + 1), bytes(4096)):
                with self.subTest(layout=layout, content=content[:40]):
                    out, _ = self.with_journal(layout, content)
                    done = self.goes_on(out, layout, want, finished=None)
                    if content != journal[:first]:
                        self.assertNotIn("went on", done.stderr)

    def test_not_a_journal_of_ours(self):
        """Then the folder is not ours either."""
        for layout, _, _, _ in self.each():
            for content in (b"Dear diary, today\n", b"{\"a\": 1}\n", b"\x7fELF" + bytes(100)):
                with self.subTest(layout=layout, content=content[:20]):
                    out, _ = self.with_journal(layout, content)
                    self.refused(out, layout, "partial")
                    self.refused(out, layout, "partial", options=["--force"])


# {what: (option of one run and not of the other, what the message names)}
CHANGES = {"luts": (["--luts", "safe"], "luts"), "cast": (["--cast-to-bf16"], "cast"),
           "unencodable": (["--keep-unencodable"], "unencodable"), "config": (["--with-config"], "config"),
           "hashes": (["--hashes"], "hashes"), "strict": (["--strict-identity"], "strict"), "fast": (["--fast"], "fast|safe")}


class OtherJobs(JournalCase):
    """What would change bytes, or what was read: refused, and nothing of the earlier run is touched."""

    def test_options_that_change_bytes(self):
        for number, (what, (options, named)) in enumerate(CHANGES.items()):
            layout = LAYOUTS[number % 4]
            for first, second in (((), tuple(options)), (tuple(options), ())):
                with self.subTest(what=what, layout=layout, first=first, second=second):
                    want = self.unbroken(self.source, layout, *second)
                    out, _, _ = self.restored(layout, *first)
                    self.refused(out, layout, named, "--no-resume", options=second)
                    self.refused(out, layout, named, "--no-resume", options=[*second, "--force", "--threads", 1])
                    # The job it was goes on all the same.
                    self.goes_on(out, layout, self.unbroken(self.source, layout, *first), *first)
                    out, _, _ = self.restored(layout, *first)
                    done = self.goes_on(out, layout, want, "--no-resume", *second)
                    self.assertNotIn("went on", done.stderr)

    def test_another_layout(self):
        for first, second in (("transformers", "diffusers"), ("diffusers", "transformers"), ("comfyui", "diffusers-single"),
                              ("diffusers-single", "comfyui")):
            with self.subTest(first=first, second=second):
                out, _, _ = self.restored(first)
                self.refused(out, second, "layout", "--no-resume")
                self.goes_on(out, second, self.unbroken(self.source, second), "--no-resume")

    def test_options_that_change_no_byte(self):
        report = self.work / "report.json"
        for layout in LAYOUTS:
            want = self.unbroken(self.source, layout, "--threads", 1)
            for options in (["--threads", 1], ["--threads", 7], ["--ram", "256M"], ["--ram", "1G"], ["--progress", "plain"],
                            ["--progress", "bar"], ["-q"], ["--force"], ["--report", report], ["-v"]):
                with self.subTest(layout=layout, options=options):
                    out, partial, journals = self.restored(layout)
                    finished = journals.finished(partial / JOURNAL)
                    done = self.compress(self.source, out, layout, *options)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    if options != ["-q"]:
                        self.assert_went_on(done.stderr, finished, len(UNITS))
                    self.assert_same(out, want)
            self.assertEqual(json.loads(report.read_text())["resumed_units"], finished)

    def test_another_source(self):
        other = support.write_model(self.work / "other", layered_tensors(NUM_LAYERS, 3000, SEED + 7))
        same_headers = support.write_model(self.work / "same_headers", {
            name: (dtype, shape, bytes(len(data))) if dtype == "F32" else (dtype, shape, data)
            for name, (dtype, shape, data) in layered_tensors(NUM_LAYERS, 3000, SEED).items()})
        for layout in LAYOUTS:
            for source in (other, same_headers):
                with self.subTest(layout=layout, source=source.name):
                    out, _, _ = self.restored(layout)
                    self.refused(out, layout, r"model\.safetensors|source", "--no-resume", source=source)
                    done = self.compress(source, out, layout, "--no-resume")
                    self.assert_done(done)
                    self.assert_same(out, self.unbroken(source, layout))

    def change_and_run(self, layout, change, *named, undo=None):
        """The source is changed between two runs. Undone, the run goes on; done again, --no-resume starts anew."""
        want = self.unbroken(self.source, layout)
        out, partial, journals = self.restored(layout)
        finished = journals.finished(partial / JOURNAL)
        change()
        self.refused(out, layout, *named, "--no-resume")
        if undo:
            undo()
            self.goes_on(out, layout, want, finished=finished)
            out, _, _ = self.restored(layout)
            change()
        done = self.goes_on(out, layout, self.unbroken(self.source, layout), "--no-resume")
        self.assertNotIn("went on", done.stderr)
        self.states.clear()

    def test_a_file_with_another_time(self):
        path = self.source / "model.safetensors"
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                now = path.stat().st_mtime_ns
                self.change_and_run(layout, lambda then=now + 1_000_000: os.utime(path, ns=(then, then)), r"model\.safetensors",
                                    undo=lambda then=now: os.utime(path, ns=(then, then)))

    def test_a_file_with_another_header(self):
        """Of the same size, and with the time it had."""
        path = self.source / "model.safetensors"
        content, times = path.read_bytes(), path.stat()
        self.assertEqual(content.count(b'"between.3"'), 1)

        def write(text):
            path.write_bytes(text)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                self.change_and_run(layout, lambda: write(content.replace(b'"between.3"', b'"between.x"')), r"model\.safetensors",
                                    undo=lambda: write(content))
                write(content)

    def test_a_file_of_another_size(self):
        path = self.source / "model.safetensors"
        content, times = path.read_bytes(), path.stat()
        tensors = layered_tensors(NUM_LAYERS, 3000, SEED)
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                self.change_and_run(layout, lambda: support.write_model(self.source, tensors | {"more": bf16(words(1, 100))}),
                                    r"model\.safetensors")
                path.write_bytes(content)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def test_one_shard_more(self):
        path = self.source / "more.safetensors"
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                self.change_and_run(layout, lambda: reference.write_safetensors(path, {"more": bf16(words(1, 100))}),
                                    r"more\.safetensors|source", undo=path.unlink)
                remove(path)

    def test_another_config(self):
        path = self.source / "config.json"
        times = path.stat()

        def write(text):
            path.write_bytes(text)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

        for layout in ("transformers", "diffusers", "diffusers-single"):
            with self.subTest(layout=layout):
                self.change_and_run(layout, lambda: write(support.CONFIG.replace(b"1e-12", b"1e-11")),
                                    r"config\.json", undo=lambda: write(support.CONFIG))
                write(support.CONFIG)

    def test_another_definition(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                support.write_definition(self.definition, {r"embed": [], r"layers\.\d+": ["a", "b"], r"head": []})
                self.states.clear()
                out, _, _ = self.restored(layout)
                support.write_definition(self.definition, {r"embed": [], r"layers\.\d+": ["a", "b"]})
                self.refused(out, layout, "definition|arch", "--no-resume")
                done = self.goes_on(out, layout, self.unbroken(self.source, layout), "--no-resume")
                self.assertNotIn("went on", done.stderr)

    def test_no_resume_without_an_earlier_run(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                out = out_of(self.place(), layout)
                self.assert_done(self.compress(self.source, out, layout, "--no-resume"))
                self.assert_same(out, self.unbroken(self.source, layout))

    def test_no_resume_leaves_alone_what_is_not_ours(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                out = out_of(self.place(), layout)
                partial_of(out).mkdir()
                (partial_of(out) / "thesis.txt").write_text("years of work")
                self.refused(out, layout, "partial", options=["--no-resume"])


class DamagedOutput(JournalCase):
    """What the journal tells of is compared with the disk before it counts."""
    OUTSIDE = b"somebody's file, as it was"

    def files(self, partial):
        return sorted(path for path in partial.iterdir() if path.suffix == ".safetensors")

    def places(self, path, is_final):
        """Offsets in every kind of place of a file: header, each tensor's beginning, middle and end."""
        content = path.read_bytes()
        size = len(content)
        places = {0, 7, 8, 9, size // 3, size // 2, size - 1}
        try:
            (length,) = struct.unpack("<Q", content[:8])
            header = json.loads(content[8:8 + length])
        except (struct.error, ValueError):  # not written yet
            self.assertFalse(is_final, path.name)
            return sorted(place for place in places if 0 <= place < size)
        places |= {8 + length // 2, 7 + length}
        for name, tensor in header.items():
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in tensor["data_offsets"])
                if end > begin:
                    places |= {begin, (begin + end) // 2, end - 1}
        places = sorted(place for place in places if 0 <= place < size)
        return places if len(places) <= 25 else self.random.sample(places, 25)

    def goes_on_or_fails(self, out, layout, want, *options, message="", watch="outside"):
        """The right result, or an error and no OUT. Nothing outside of it is changed."""
        outside = self.work / (watch or "nothing")
        before = fingerprint(outside) if outside.exists() else None
        done = self.compress(self.source, out, layout, "--progress", "none", *options, timeout=30)
        self.assertIn(done.returncode, (0, 1, 2), f"{message}: {done.stderr}")
        if done.returncode == 0:
            self.assert_same(out, want, message)
        else:
            self.assertFalse(out.exists(), message)
            self.assertTrue(support.mentions(done.stderr, "partial"), f"{message}: {done.stderr}")
        if before is not None:
            self.assertEqual(fingerprint(outside), before, f"written to outside of OUT.partial {message}")
        return done.returncode

    def test_a_wrong_bit_anywhere(self):
        """With --fast too: what is on the disk is compared by its hash."""
        for layout, options in (("transformers", ()), ("comfyui", ()), ("diffusers", ("--fast",)),
                                ("diffusers-single", ("--fast",)), ("transformers", ("--hashes",)), ("comfyui", ("--hashes",))):
            want = self.unbroken(self.source, layout, *options)
            out, partial, _ = self.restored(layout, *options)
            targets = [(path.name, place) for path in self.files(partial) for place in self.places(path, layout in FOLDER_LAYOUTS)]
            self.assertGreater(len(targets), 5)
            for name, place in sorted(self.random.sample(targets, min(len(targets), 40))):
                bit = self.random.randrange(8)
                with self.subTest(layout=layout, options=options, file=name, byte=place, bit=bit, seed=SEED):
                    out, partial, _ = self.restored(layout, *options)
                    with open(partial / name, "r+b") as file:
                        file.seek(place)
                        byte = file.read(1)[0] ^ 1 << bit
                        file.seek(place)
                        file.write(bytes([byte]))
                    self.assertEqual(self.goes_on_or_fails(out, layout, want, *options), 0)

    def test_files_cut_grown_or_gone(self):
        for layout in LAYOUTS:
            want = self.unbroken(self.source, layout)
            out, partial, _ = self.restored(layout)
            sizes = {path.name: path.stat().st_size for path in self.files(partial)}
            for name in self.random.sample(sorted(sizes), min(len(sizes), 3)):
                size = sizes[name]
                for length in sorted({0, 1, 8, size // 2, size - 1, size + 1, size + 100_000, -1}):
                    with self.subTest(layout=layout, file=name, length=length, size=size, seed=SEED):
                        out, partial, _ = self.restored(layout)
                        if length < 0:
                            (partial / name).unlink()
                        else:
                            os.truncate(partial / name, length)
                        self.assertEqual(self.goes_on_or_fails(out, layout, want), 0)

    def test_something_else_in_a_files_place(self):
        outside = self.work / "outside"
        for layout in ("transformers", "comfyui"):
            want = self.unbroken(self.source, layout)
            out, partial, _ = self.restored(layout)
            names = [self.files(partial)[0].name, self.files(partial)[-1].name]
            names += [path.name for path in partial.iterdir() if path.name not in names and path.name != JOURNAL][:2]
            for name in dict.fromkeys(names):
                for what in ("folder", "full folder", "link", "link to a copy", "link to nothing", "link to a folder", "fifo",
                             "socket", "hard link"):
                    with self.subTest(layout=layout, file=name, what=what):
                        out, partial, _ = self.restored(layout)
                        remove(outside)
                        outside.mkdir()
                        path = partial / name
                        content = path.read_bytes()
                        path.unlink()
                        if what in ("folder", "full folder"):
                            path.mkdir()
                            if what == "full folder":
                                (path / "thesis.txt").write_bytes(self.OUTSIDE)
                        elif what == "fifo":
                            os.mkfifo(path)
                        elif what == "socket":
                            with socket.socket(socket.AF_UNIX) as server:
                                server.bind(str(path))
                        else:
                            target = outside / "target"
                            if what == "link to a folder":
                                target.mkdir()
                                (target / "thesis.txt").write_bytes(self.OUTSIDE)
                            elif what != "link to nothing":
                                target.write_bytes(self.OUTSIDE if what == "link" else content)
                            if what == "hard link":  # the two are one file
                                os.link(target, path)
                                self.goes_on_or_fails(out, layout, want, watch=None)
                                continue
                            path.symlink_to(target)
                        self.goes_on_or_fails(out, layout, want)
                        if out.exists():
                            self.assertFalse(any(found.is_symlink() for found in [out, *out.rglob("*")]), "a link is in OUT")

    def test_files_that_do_not_belong_there(self):
        for layout in LAYOUTS:
            want = self.unbroken(self.source, layout)
            for name in ("thesis.txt", "layers_99.safetensors", "config.json", "weightpress.json", "sub/thesis.txt",
                         "model.safetensors.index.json"):
                with self.subTest(layout=layout, name=name):
                    out, partial, _ = self.restored(layout)
                    (partial / name).parent.mkdir(exist_ok=True)
                    (partial / name).write_text("{}")
                    self.goes_on_or_fails(out, layout, want)

    def test_a_link_in_place_of_the_folder(self):
        outside = self.work / "outside"
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                want = self.unbroken(self.source, layout)
                out, partial, _ = self.restored(layout)
                remove(outside)
                os.rename(partial, outside)
                partial.symlink_to(outside)
                self.goes_on_or_fails(out, layout, want)


class NoJournalFile(JournalCase):
    """Something else has the journal's name."""

    def test_other_kinds_of_files(self):
        outside = self.work / "outside"
        for layout in ("transformers", "comfyui"):
            want = self.unbroken(self.source, layout)
            for what in ("folder", "full folder", "link to a text", "link to a journal", "link to nothing", "fifo", "socket"):
                with self.subTest(layout=layout, what=what):
                    out, partial, _ = self.restored(layout)
                    remove(outside)
                    outside.mkdir()
                    path, target = partial / JOURNAL, outside / "target"
                    journal = path.read_bytes()
                    path.unlink()
                    if what.endswith("folder"):
                        path.mkdir()
                        if what.startswith("full"):
                            (path / "thesis.txt").write_text("years of work")
                    elif what == "fifo":
                        os.mkfifo(path)
                    elif what == "socket":
                        with socket.socket(socket.AF_UNIX) as server:
                            server.bind(str(path))
                    else:
                        if not what.endswith("nothing"):
                            target.write_bytes(journal if what.endswith("journal") else b"years of work\n")
                        path.symlink_to(target)
                    before = fingerprint(outside)
                    code = self.goes_on_or_is_refused(out, layout, want)
                    if what in ("full folder", "link to a text"):
                        self.assertEqual(code, 2)
                    self.assertEqual(fingerprint(outside), before)

    def test_without_permission(self):
        if os.getuid() == 0:
            self.skipTest("root reads everything")
        for layout in ("transformers", "comfyui"):
            with self.subTest(layout=layout):
                want = self.unbroken(self.source, layout)
                out, partial, _ = self.restored(layout)
                (partial / JOURNAL).chmod(0)
                self.goes_on_or_is_refused(out, layout, want)


class TwoRuns(JournalCase):
    """A second run while the first one works."""

    def test_is_kept_out(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                want = self.unbroken(self.source, layout)
                remove(self.place_of_out)
                self.place_of_out.mkdir()
                out = out_of(self.place_of_out, layout)
                first = self.start(self.source, out, layout, "-q", trouble=f"write|{JOURNAL}|4|stop")
                self.assertTrue(self.wait_until_stopped(first))
                for options in ((), ("--no-resume",), ("--force",), ("--hashes",), ("--no-resume", "--force")):
                    self.refused(out, layout, "another run", options=options, message=str(options))
                first.send_signal(signal.SIGCONT)
                _, said = first.communicate(timeout=60)
                self.assertEqual(first.returncode, 0, said)
                self.assert_same(out, want)

    def test_a_run_that_goes_on_keeps_others_out_too(self):
        layout = "transformers"
        want = self.unbroken(self.source, layout)
        out, _, _ = self.restored(layout)
        second = self.start(self.source, out, layout, trouble=f"write|{JOURNAL}|1|stop")
        self.assertTrue(self.wait_until_stopped(second))
        self.refused(out, layout, "another run")
        second.send_signal(signal.SIGCONT)
        _, said = second.communicate(timeout=60)
        self.assertEqual(second.returncode, 0, said)
        self.assert_same(out, want)


class CompletePartial(JournalCase):
    """OUT.partial with weightpress.json and without a journal lacks its name alone."""

    def complete(self, layout, *options):
        """OUT whose partial folder is complete."""
        remove(self.place_of_out)
        self.place_of_out.mkdir()
        out = self.place_of_out / "out"  # a folder in every layout
        done = self.compress(self.source, out, layout, "-q", *options, trouble="rename|/out.partial|1|kill")
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        self.assertTrue((partial_of(out) / "weightpress.json").is_file())
        self.assertFalse((partial_of(out) / JOURNAL).exists())
        return out

    def whole(self, layout, *options):
        out = self.place() / "out"
        self.assert_done(self.compress(self.source, out, layout, "-q", *options))
        return results(out)

    def test_is_only_renamed(self):
        for layout in LAYOUTS:
            for options in ((), ("--threads", 1, "--ram", "256M"), ("--force",)):
                with self.subTest(layout=layout, options=options):
                    want = self.whole(layout)
                    out = self.complete(layout)
                    numbers = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in partial_of(out).iterdir()}
                    self.assert_done(self.compress(self.source, out, layout, *options))
                    self.assert_same(out, want)
                    self.assertEqual({path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in out.iterdir()},
                                     {name: numbers[name] for name in want})

    def test_no_resume_makes_it_again(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                want = self.whole(layout)
                out = self.complete(layout)
                for path in partial_of(out).glob("*.safetensors"):
                    path.write_bytes(b"damaged")
                self.assert_done(self.compress(self.source, out, layout, "--no-resume"))
                self.assert_same(out, want)

    def test_of_another_job(self):
        """It is never taken for the result of this one."""
        other = support.write_model(self.work / "other", layered_tensors(NUM_LAYERS, 3000, SEED + 7))
        same_headers = support.write_model(self.work / "same_headers", {
            name: (dtype, shape, bytes(len(data)) if dtype == "F32" else data)
            for name, (dtype, shape, data) in layered_tensors(NUM_LAYERS, 3000, SEED).items()})
        for layout in LAYOUTS:
            for source, options in ((self.source, ("--hashes",)), (self.source, ("--luts", "safe")), (self.source, ("--fast",)),
                                    (self.source, ("--cast-to-bf16",)), (other, ()), (same_headers, ())):
                with self.subTest(layout=layout, source=source.name, options=options):
                    out = self.complete(layout)
                    before = fingerprint(out.parent)
                    done = self.compress(source, out, layout, *options)
                    if done.returncode != 0:
                        self.assert_refused_untouched(done, out, before, "--no-resume")
                        self.assert_done(self.compress(source, out, layout, "--no-resume", *options))
                    folder = self.place()
                    self.assert_done(self.compress(source, folder / "out", layout, "-q", *options))
                    self.assert_same(out, results(folder / "out"))

    def test_tied_duplicate(self):
        """What of the tensors is dropped is known only once units are planned."""
        tensors = layered_tensors(NUM_LAYERS, 3000, SEED)
        tensors |= {"model.embed_tokens.weight": tensors["between.0"], "lm_head.weight": tensors["between.0"]}
        self.source = support.write_model(self.work / "tied", tensors, config=b'{"model_type": "bert", "tie_word_embeddings": true}')
        want = self.whole("transformers")
        out = self.complete("transformers")
        self.assert_done(self.compress(self.source, out, "transformers"))
        self.assert_same(out, want)

    def test_files_that_do_not_belong_there(self):
        """They never become a part of OUT."""
        for layout in ("transformers", "diffusers-single"):
            for what in ("another", "link", "missing", "shorter"):
                with self.subTest(layout=layout, what=what):
                    want = self.whole(layout)
                    out = self.complete(layout)
                    victim = next(partial_of(out).glob("*.safetensors"))
                    if what == "another":
                        (partial_of(out) / "notes.txt").write_text("mine")
                    elif what == "shorter":
                        victim.write_bytes(victim.read_bytes()[:-1])
                    else:
                        content = victim.read_bytes()
                        victim.unlink()
                        if what == "link":
                            (self.work / "elsewhere").write_bytes(content)
                            victim.symlink_to(self.work / "elsewhere")
                    before = fingerprint(out.parent)
                    self.assert_refused_untouched(self.compress(self.source, out, layout), out, before, "--no-resume")
                    self.assert_done(self.compress(self.source, out, layout, "--no-resume"))
                    self.assert_same(out, want)

    def test_without_what_the_file_system_remembers(self):
        """Then it is compared with the source: right ones are renamed, others are not."""
        for layout in ("transformers", "comfyui"):
            want = self.whole(layout)
            for damaged in (False, True):
                with self.subTest(layout=layout, damaged=damaged):
                    out = self.complete(layout)
                    for name in os.listxattr(partial_of(out)):
                        os.removexattr(partial_of(out), name)
                    if damaged:
                        path = max(partial_of(out).glob("*.safetensors"), key=lambda path: path.stat().st_size)
                        data = bytearray(path.read_bytes())
                        data[len(data) // 2] ^= 1
                        path.write_bytes(data)
                    before = fingerprint(out.parent)
                    done = self.compress(self.source, out, layout)
                    if damaged:
                        self.assert_refused_untouched(done, out, before, "--no-resume")
                    else:
                        self.assert_done(done)
                        self.assert_same(out, want)

    def test_killed_while_it_is_removed(self):
        """Half of it must not look complete."""
        want = self.whole("transformers")
        for call in range(1, 6):
            with self.subTest(call=call):
                out = self.complete("transformers")
                self.compress(self.source, out, "transformers", "--no-resume", trouble=f"unlink|.partial|{call}|kill")
                self.assert_done(self.compress(self.source, out, "transformers"))
                self.assert_same(out, want)

    def test_of_a_file_alone(self):
        """Side files are renamed first and OUT last: killed at each, the next run ends it."""
        for layout in ("comfyui", "diffusers-single"):
            want = self.unbroken(self.source, layout)
            for call in range(1, 5):
                for action in ("kill", "killafter"):
                    with self.subTest(layout=layout, call=call, action=action):
                        remove(self.place_of_out)
                        self.place_of_out.mkdir()
                        out = out_of(self.place_of_out, layout)
                        done = self.compress(self.source, out, layout, "-q", trouble=f"rename|.partial|{call}|{action}")
                        if done.returncode == 0 or out.exists():
                            continue  # fewer renames than that, or OUT has its name
                        self.assert_done(self.compress(self.source, out, layout))
                        self.assert_same(out, want)


if __name__ == "__main__":
    unittest.main()
