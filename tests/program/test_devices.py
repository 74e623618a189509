"""`weightpress devices`: what is told of drivers that are not there, broken, or too old. GPUs are never needed."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from support import PROGRAM


def devices(*arguments, libraries=None):
    environment = dict(os.environ)
    if libraries is not None:
        environment["LD_LIBRARY_PATH"] = str(libraries)
    return subprocess.run([PROGRAM, "devices", *arguments], capture_output=True, text=True, timeout=120, env=environment)


class Devices(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def assert_no_driver(self, done, *words):
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = json.loads(done.stdout)
        self.assertEqual(report["devices"], [])
        if not report["has_kernels"]:
            self.skipTest("built without CUDA: no driver is looked for")
        for word in words:
            self.assertIn(word, report["driver"]["problem"])

    def test_tells_of_this_machine(self):
        done = devices()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        names = [line.split()[0] for line in done.stdout.splitlines() if line and not line.startswith(" ")]
        self.assertEqual((names[:2], names[-2:]), (["driver", "kernels"], ["cpu", "used"]))
        report = json.loads(devices("--json").stdout)
        self.assertGreaterEqual(report["cpu"]["threads"], 1)
        self.assertEqual(bool(report["driver"]["problem"]), not report["devices"])
        self.assertEqual(report["has_kernels"], "why_no_kernels" not in report)

    def test_a_driver_that_is_no_library(self):
        (self.folder / "libcuda.so.1").write_text("not a library")
        self.assert_no_driver(devices("--json", libraries=self.folder), "cannot be loaded", "libcuda.so.1")

    def test_a_driver_without_the_calls(self):
        shutil.copy(os.environ["WEIGHTPRESS_DRIVER_WITHOUT_CALLS"], self.folder / "libcuda.so.1")
        self.assert_no_driver(devices("--json", libraries=self.folder), "too old", "cuInit", "newer")

    def test_arguments(self):
        self.assertEqual(devices("now").returncode, 2)
        self.assertIn("Example:", devices("--help").stdout)


if __name__ == "__main__":
    unittest.main()
