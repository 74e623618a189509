"""When writing fails: no permission, a full disk, a report that cannot be written. OUT is absent, what was there is as it was.

Standard library and numpy only.
"""
import json
import os
import resource
import subprocess
import unittest

import support
from sources import IMPOSSIBLE
from support import bf16, words
from test_output_rules import TENSORS, OutputCase


class TroubleOfTheMachine(OutputCase):
    def test_folders_that_cannot_be_written(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        for place in ("/proc", "/proc/self/fd", "/dev/null", "/dev/full/x", str(self.work / "none" / "such")):
            for layout, name in (("transformers", "out"), ("comfyui", "out.safetensors")):
                with self.subTest(place=place, layout=layout):
                    self.untouched(source, f"{place}/{name}", "out|" + place, layout=layout)

    def test_folder_without_permission(self):
        if os.getuid() == 0:
            self.skipTest("root writes everywhere")
        source = self.source_folder({"x.safetensors": TENSORS})
        self.place_of_out.chmod(0o555)
        self.addCleanup(self.place_of_out.chmod, 0o755)
        for layout, out in self.outs():
            with self.subTest(layout=layout, out=out.name):
                self.untouched(source, out, "permission", layout=layout)

    def run_on_a_small_disk(self, source, out, layout, then):
        """With a file system of 96 KB at place_of_out, in a mount name space of its own. Prints what is on it at the end."""
        script = ('place=$1; then=$2; shift 2; mount -t tmpfs -o size=96k weightpress "$place" && echo mine > "$place/mine" && '
                  'mount -o "remount,$then" "$place" || exit 77; "$@"; code=$?; ls -A "$place"; exit $code')
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", self.place_of_out, then,
             support.PROGRAM, "compress", source, "-o", out, "--arch", self.layouts[layout], "--quiet"],
            text=True, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
        if done.returncode == 77 or "unshare:" in done.stderr:
            self.skipTest("no mount name spaces here")
        return done

    def test_full_disk(self):
        """OUT is absent after it, what was there before is as it was."""
        source = self.source_folder({"x.safetensors": TENSORS | {"large": bf16(words(1, 200_000))}})
        for layout, out in self.outs():
            with self.subTest(layout=layout, out=out.name):
                done = self.run_on_a_small_disk(source, out, layout, "rw")
                self.assertEqual(done.returncode, IMPOSSIBLE, done.stderr)
                self.assertRegex(done.stderr, "(?i)no space|free")
                left = done.stdout.split()
                self.assertIn("mine", left)
                self.assertNotIn(out.name, left)
                # With what is done so far: files, or at least the plan of every unit.
                self.assertIn(f"{out.name}.partial", left)
                self.assertRegex(done.stderr, "same command")

    def test_read_only_disk(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        for layout, out in self.outs():
            with self.subTest(layout=layout, out=out.name):
                done = self.run_on_a_small_disk(source, out, layout, "ro")
                self.assertEqual(done.returncode, IMPOSSIBLE, done.stderr)
                self.assertRegex(done.stderr, "(?i)read-only")
                self.assertEqual(done.stdout.split(), ["mine"])

    def test_limit_of_a_files_size(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        source = self.source_folder({"x.safetensors": TENSORS | {"large": bf16(words(1, 20_000))}})
        for layout, out in self.outs():
            with self.subTest(layout=layout, out=out.name):
                self.clear()
                done = self.run_on(source, definition=self.layouts[layout], out=out, preexec_fn=limit)
                self.assert_fails(done, IMPOSSIBLE, "too large|space|limit")
                # Nothing but the partial folder is there, and the same command finishes when there is room.
                self.assertTrue(all(path.name == f"{out.name}.partial" for path in self.place_of_out.iterdir()))
                self.assert_done(self.run_on(source, definition=self.layouts[layout], out=out))
                self.assertFalse(os.path.lexists(f"{out}.partial"))


class Reports(OutputCase):
    """--report FILE.json: never over a file that matters."""

    def test_of_a_success_and_of_a_failure(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        report = self.place_of_out / "report.json"
        self.assert_done(self.run_on(source, "--report", report))
        written = json.loads(report.read_text())
        self.assertEqual((written["command"], written["status"], written["units"], written["layout"]),
                         ("compress", "done", 3, "transformers"))
        rest = {name: tensor for name, tensor in TENSORS.items() if name != "layers.1.b.weight"}
        bad = self.source_folder({"x.safetensors": rest})
        report = self.place_of_out / "failed.json"
        done = self.run_on(bad, "--report", report)
        self.assert_fails(done, IMPOSSIBLE, r"layers\.1\.b\.weight")
        written = json.loads(report.read_text())
        self.assertEqual(written["status"], "failed")
        self.assertIn("layers.1.b.weight", written["error"]["message"])
        self.assertIn(written["error"]["message"], done.stderr)

    def test_over_an_input_or_an_output(self):
        source = self.source_folder({"model.safetensors": TENSORS})
        (source / "generation_config.json").write_text("{}")
        for layout, out in self.outs():
            inputs = [source / "model.safetensors", source / "config.json", source / "generation_config.json", source,
                      self.layouts[layout], self.place_of_out / "link.json", out, f"{out}.partial", f"{out}.partial/report.json"]
            for report in inputs:
                with self.subTest(layout=layout, out=out.name, report=str(report)[len(str(self.work)):]):
                    self.clear()
                    (self.place_of_out / "link.json").symlink_to(source / "config.json")
                    self.untouched(source, out, options=["--report", report], layout=layout)

    def test_that_cannot_be_written(self):
        """Found before the work, not after an hour of it."""
        source = self.source_folder({"model.safetensors": TENSORS})
        for report in (self.place_of_out / "none" / "report.json", self.place_of_out, "/proc/report.json",
                       "/dev/null/report.json"):
            with self.subTest(report=str(report)):
                self.clear()
                self.untouched(source, self.place_of_out / "out", options=["--report", report])

    def test_an_older_report_is_replaced(self):
        source = self.source_folder({"model.safetensors": TENSORS})
        report = self.place_of_out / "report.json"
        self.assert_done(self.run_on(source, "--report", report))
        first = report.read_text()
        report.write_text(first + " " * 10_000)
        self.assert_done(self.run_on(source, "--report", report))
        self.assertEqual(json.loads(report.read_text())["status"], "done")
        self.assertLess(len(report.read_text()), len(first) + 1000)

    def test_to_a_device(self):
        source = self.source_folder({"model.safetensors": TENSORS})
        self.assert_done(self.run_on(source, "--report", "/dev/null"))
        self.assertTrue(os.path.exists("/dev/null"))


if __name__ == "__main__":
    unittest.main()
