"""What the tests of interrupted runs share: a model of many units, a run that is stopped, and what must come of the next one.

The journal (OUT.partial/weightpress.journal) is read here as lines of 16 hex digits, a space, a JSON object. Which of its records
say that a unit is finished is learned from the journal of a whole run: the last one that names the unit. Standard library and numpy only.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import numpy as np

import support
from sources import SourceCase, fingerprint
from support import bf16, words

SHIM = os.environ.get("WEIGHTPRESS_TROUBLE_SHIM", "")
SEED = int(os.environ.get("WEIGHTPRESS_SEED", "1"))
JOURNAL = "weightpress.journal"
FOLDER_LAYOUTS, FILE_LAYOUTS = ("transformers", "diffusers"), ("diffusers-single", "comfyui")
LAYOUTS = FOLDER_LAYOUTS + FILE_LAYOUTS
PATTERNS = {r"embed": [], r"layers\.\d+": ["a", "b"], r"head": []}
INTERRUPTED = 130
GOES_ON = r"same command|run .*again|go(es)? on"
WENT_ON = re.compile(r"went on with an earlier run: (\d+) of (\d+) units? (?:were|was) done")
IS_SANITIZED = os.path.exists(support.PROGRAM) and re.search(b"__[at]san_init", pathlib.Path(support.PROGRAM).read_bytes()) is not None


def layered_tensors(layers, weights, seed=1):
    """Units embed, layers.N (a, b) and head of about so many weights, siblings and kept tensors between, some F32."""
    pool = words(seed, max(2 * weights, 4096))
    random = np.random.Generator(np.random.PCG64(seed))

    def piece(count):
        begin = int(random.integers(0, len(pool) - count + 1))
        return bf16(pool[begin:begin + count])

    def values(count):
        return "F32", [count], random.standard_normal(count).astype("<f4").tobytes()

    tensors = {"embed.weight": piece(weights), "head.weight": piece(weights // 2), "norm.weight": piece(64),
               "table": values(weights // 16 + 1), "step": ("I64", [], bytes(8))}
    for layer in range(layers):
        size = int(random.integers(weights // 2, weights + 1))
        tensors |= {f"layers.{layer}.a.weight": piece(size - size // 3), f"layers.{layer}.b.weight": piece(size // 3),
                    f"layers.{layer}.norm.weight": piece(32), f"layers.{layer}.scale": values(5),
                    f"between.{layer}": piece(100)}
    return tensors


def unit_names(layers):
    return ["embed", "head", *(f"layers.{layer}" for layer in range(layers))]


def out_of(folder, layout):
    """A single file in the layouts that have one."""
    return pathlib.Path(folder) / ("out.safetensors" if layout in FILE_LAYOUTS else "out")


def partial_of(out):
    return pathlib.Path(f"{out}.partial")


def results(out):
    """{name: bytes} of OUT and of what was written beside it, without OUT.partial."""
    out = pathlib.Path(out)
    if out.is_dir():
        return support.read_tree(out)
    return {path.name: path.read_bytes() for path in sorted(out.parent.iterdir()) if path.is_file()}


def journal_lines(path):
    """[JSON object] of the lines that are whole; whether they are intact is the program's business."""
    found = []
    try:
        content = pathlib.Path(path).read_bytes()
    except OSError:
        return found
    for line in content.split(b"\n")[:-1]:
        if not re.fullmatch(rb"[0-9a-f]{16} \{.*\}", line):
            break
        try:
            found.append(json.loads(line[17:]))
        except ValueError:
            break
    return found


class Journals:
    """Tells finished units of a journal, with what the journal of a whole run taught."""

    def __init__(self, whole_journal, units):
        self.units = set(units)
        last, records = {}, journal_lines(whole_journal)
        self.num_lines = len(records)
        for record in records[1:]:
            for unit in self.named_by(record):
                last[unit] = self.kind(record)
        assert set(last) == self.units, f"units that the journal of a whole run does not name: {sorted(self.units - set(last))}"
        self.kinds = set(last.values())

    def named_by(self, record):
        """Units that a value directly in the record names, or in one object below it."""
        values = [*record.values(), *(inner for value in record.values() if isinstance(value, dict) for inner in value.values())]
        return self.units.intersection(value for value in values if isinstance(value, str))

    @staticmethod
    def kind(record):
        """The members, and the value of the one that tells kinds apart, if there is one."""
        return tuple(record), next((record[key] for key in ("record", "type", "kind", "what") if key in record), None)

    def finished(self, path):
        """How many units the journal has as finished."""
        records = [record for record in journal_lines(path)[1:] if self.kind(record) in self.kinds]
        return len({unit for record in records for unit in self.named_by(record)})


def scratch_folder():
    """A folder in memory where there is room: thousands of short runs would wait for the disk most of their time."""
    place = "/dev/shm"
    if "TMPDIR" not in os.environ and os.access(place, os.W_OK) and shutil.disk_usage(place).free > 1 << 30:
        return tempfile.TemporaryDirectory(dir=place)
    return tempfile.TemporaryDirectory()


def put_back(saved, folder):
    """Makes folder hold exactly what saved holds, attributes and times too. Sockets and the like are not copied."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(saved, folder, symlinks=True)


def remove(path):
    path = pathlib.Path(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class BrokenRuns(SourceCase):
    """Each test has a folder of its own, self.place_of_out, for OUT."""
    in_memory = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        print(f"{cls.__name__}: seed {SEED}")

    def setUp(self):
        super().setUp()
        if self.in_memory:
            folder = scratch_folder()
            self.addCleanup(folder.cleanup)
            self.work = pathlib.Path(folder.name)
            self.definition = support.write_definition(self.work / "arch.json", PATTERNS)
        else:
            support.write_definition(self.definition, PATTERNS)
        self.place_of_out = self.place("place")

    def need_shim(self):
        if not SHIM:
            self.skipTest("WEIGHTPRESS_TROUBLE_SHIM is not set: run this through ctest")

    def command(self, source, out, layout, *options):
        return [support.PROGRAM, "compress", str(source), "-o", str(out), "--arch", str(self.definition), "--layout", layout,
                *map(str, options)]

    def compress(self, source, out, layout, *options, trouble=None, when=None, count=None, **keywords):
        """Runs the program, with the shim if there is trouble (rules of trouble_shim.cpp)."""
        environment = {**os.environ, **keywords.pop("env", {})}
        if trouble:
            environment |= self.trouble(trouble, when, count)
        return subprocess.run(self.command(source, out, layout, *options), text=True, errors="surrogateescape",
                              stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environment,
                              **{"timeout": 120, **keywords})

    @staticmethod
    def trouble(rules, when=None, count=None):
        environment = {"LD_PRELOAD": SHIM, "WP_TROUBLE": rules if isinstance(rules, str) else "\n".join(rules)}
        if when:
            environment["WP_TROUBLE_WHEN"] = str(when)
        if count:
            environment["WP_TROUBLE_COUNT"] = str(count)
        return environment

    def start(self, source, out, layout, *options, trouble=None, **keywords):
        """The program as a process that the test ends, at the latest when it is over."""
        environment = {**os.environ, **(self.trouble(trouble) if trouble else {})}
        process = subprocess.Popen(self.command(source, out, layout, *options), stdin=subprocess.DEVNULL, env=environment,
                                   **{"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True,
                                      "errors": "surrogateescape", **keywords})
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def wait_until_stopped(self, process, timeout=60):
        """The shim has stopped it. False: it ended instead."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                return found.si_code == os.CLD_STOPPED
            time.sleep(0.002)
        self.fail("the program neither came to the moment at which it is stopped nor ended")

    def unbroken(self, source, layout, *options):
        """The results of a run that nothing interrupts, elsewhere."""
        folder = self.place()
        out = out_of(folder, layout)
        self.assert_done(self.compress(source, out, layout, "-q", *options))
        return results(out)

    def whole_journal(self, source, layout, *options):
        """The journal of a whole run: of one that is killed when it is about to remove it."""
        folder = self.place()
        out = out_of(folder, layout)
        done = self.compress(source, out, layout, "-q", *options, trouble=f"unlink|{JOURNAL}|1|kill")
        path = partial_of(out) / JOURNAL
        self.assertEqual(done.returncode, -signal.SIGKILL, f"the journal is not removed at the end? {done.stderr}")
        self.assertTrue(path.is_file(), "no journal")
        return path

    def assert_same(self, out, want, message=""):
        """OUT is that of an unbroken run, and OUT.partial is gone."""
        got = results(out) if os.path.lexists(out) else None
        self.assertIsNotNone(got, f"OUT is absent {message}")
        self.assertEqual(sorted(got), sorted(want), message)
        for name in want:
            if got[name] != want[name]:
                both = min(len(got[name]), len(want[name]))
                a, b = (np.frombuffer(content[:both], np.uint8) for content in (got[name], want[name]))
                wrong = np.flatnonzero(a != b)
                self.fail(f"{name}: {len(got[name])} bytes, expected {len(want[name])}; {len(wrong)} differ, the first at "
                          f"{wrong[0] if len(wrong) else both} {message}")
        self.assertFalse(os.path.lexists(partial_of(out)), f"OUT.partial is left {message}")

    def assert_went_on(self, said, finished, num_units, message=""):
        """What the run said of an earlier one: so many units of it were done."""
        found = WENT_ON.search(said)
        told = (int(found[1]), int(found[2])) if found else (0, num_units)
        self.assertFalse(found and told[0] == 0, f"it went on with nothing {message}: {said}")
        self.assertEqual(told, (finished, num_units), f"{message}: {said}")

    def assert_refused_untouched(self, done, out, before, *patterns, message=""):
        """Exit code 2, and OUT.partial, OUT and what is beside it are as they were."""
        self.assertEqual(done.returncode, 2, f"{message}: {done.stderr}")
        for pattern in patterns:
            self.assertRegex(done.stderr, f"(?i){pattern}", message)
        self.assertEqual(fingerprint(out.parent), before, f"something was changed {message}")

