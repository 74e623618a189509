"""Inputs that made readers of safetensors files fail in public (tests/cases): exit code, message, memory, output, source.

Standard library and numpy only.
"""
import hashlib
import json
import shutil
import unittest

import support
from sources import SourceCase, fingerprint, read_output, run_measured
from support import reference, run

CASES = support.ROOT / "tests" / "cases"


class ReportedCases(SourceCase):
    def try_case(self, folder):
        case = json.loads((folder / "case.json").read_text())
        work = self.place(folder.name)
        shutil.copytree(folder / "source", work / "source")
        before = fingerprint(work / "source")
        self.out = work / "out"
        done, peak_mb = run_measured("compress", work / case["source"], "-o", self.out, "--arch", case["definition"],
                                     "--device", "cpu")
        self.assertEqual(fingerprint(work / "source"), before, "the source was changed")
        self.assertGreater(peak_mb, 0)
        self.assertLess(peak_mb, case.get("max_memory_mb", 300))
        if case["exit_code"] != 0:
            self.assert_fails(done, case["exit_code"], *case["says"])
            self.assertEqual(sorted(path.name for path in work.iterdir()), ["source"], "something was left behind")
            return
        self.assert_done(done)
        got = {name: [dtype, shape, hashlib.sha256(content).hexdigest()]
               for name, (dtype, shape, content) in read_output(self.out).items()}
        self.assertEqual(got, json.loads((folder / "expected.json").read_text()))
        self.assertEqual(sorted(path.name for path in work.iterdir()), ["out", "source"])
        self.try_way_back(work / case["source"], work / "back")

    def try_way_back(self, source, back):
        """The output is verified against the source, and decompressed to it."""
        for options in ((), ("--source", source), ("--source", source, "--level", "sample")):
            done = run("verify", self.out, *options)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = run("decompress", self.out, "-o", back)
        self.assertEqual(done.returncode, 0, done.stderr)
        files = sorted(source.glob("*.safetensors")) if source.is_dir() else [source]
        self.assertEqual(sorted(path.name for path in back.glob("*.safetensors")), [path.name for path in files])
        for path in files:
            expected, _ = reference.read_safetensors(path)
            restored, _ = reference.read_safetensors(back / path.name)
            self.assertEqual({name: (dtype, list(shape), bytes(data)) for name, (dtype, shape, data) in restored.items()},
                             {name: (dtype, list(shape), bytes(data)) for name, (dtype, shape, data) in expected.items()})

    def test_reported_cases(self):
        folders = sorted(path.parent for path in CASES.glob("*/case.json"))
        self.assertGreaterEqual(len(folders), 13)
        for folder in folders:
            with self.subTest(case=folder.name):
                self.try_case(folder)


if __name__ == "__main__":
    unittest.main()
