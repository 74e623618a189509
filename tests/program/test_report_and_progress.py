"""--report: what a run did, or why not, as JSON that agrees with the output. --progress: what reaches a terminal and what a pipe.

Standard library and numpy only.
"""
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import time

import numpy as np

import support
from support import bf16, compress, run, words
from test_compress_command import CompressCase, small_tensors, unittest

OPTIONS = ["source", "output", "format", "arch", "layout", "device", "threads", "fast", "luts", "strict-identity", "keep-unencodable",
           "cast-to-bf16", "with-config", "hashes", "force", "resume", "ram", "vram", "verifier"]


class Report(CompressCase):
    def report(self, source, *options, definition=None):
        path = self.work / "report.json"
        done = compress(source, self.out, definition or self.definition, "--report", path, *options)
        return done, json.loads(path.read_text())

    def test_of_a_run(self):
        done, report = self.report(self.model(), "--threads", 2, "--fast")
        self.assert_done(done)
        tensors = small_tensors()
        files = support.read_tree(self.out)
        units = [support.read_unit(self.out, unit) for unit in ("embed", "layers.0")]
        self.assertEqual((report["command"], report["status"], report["definition"], report["layout"], report["device"]),
                         ("compress", "done", "test", "transformers", "cpu"))
        self.assertEqual(list(report["options"]), OPTIONS)
        self.assertEqual((report["options"]["threads"], report["options"]["fast"], report["options"]["luts"]),
                         (2, True, "compat"))
        self.assertEqual((report["threads"], report["units"], report["kept_tensors"]), (2, 2, len(tensors) - 3))
        self.assertEqual(report["source_bytes"], sum(len(data) for _, _, data in tensors.values()))
        self.assertEqual(report["output_bytes"], sum(map(len, files.values())))
        self.assertEqual(report["unit_source_bytes"], 2 * (6000 + 3000 + 2000))
        self.assertEqual(report["unit_output_bytes"], sum(len(data) for unit in units for data in unit.values()))
        self.assertGreater(report["seconds"], 0)
        self.assertTrue(1e6 < report["peak_memory_bytes"] < 1e9, report["peak_memory_bytes"])
        for empty in ("remarks", "kept_units", "dropped", "notes", "also_fits"):
            self.assertEqual(report[empty], [], empty)
        self.assertEqual(report["cast"], {"tensors": 0, "changed": 0, "overflowed": 0, "flushed_to_zero": 0})
        self.assertEqual(report["verification"], "none")

    def test_what_has_to_be_said(self):
        """Kept and rescued units, casts with their counts, dropped tensors."""
        values = np.array([1.0, 1.0 + 2**-9, 3.4e38, 1e-45, -0.0, np.inf] + [0.5] * 94, np.float32)
        inf = words(4, 2000)
        inf[7] = 0x7F80
        model = self.model({"layers.0.b.weight": bf16(inf, [20, 100]), "embed.weight": bf16(np.zeros(60_000, np.uint16)),
                            "f.weight": ("F32", [100], values.tobytes()), "gone.1": bf16(words(8, 5)), "norm.weight": None})
        definition = support.write_definition(self.work / "rules.json", {r"embed": [], r"layers\.\d+": ["a", "b"]}, drop=["^gone"])
        done, report = self.report(model, "--cast-to-bf16", "--keep-unencodable", definition=definition)
        self.assert_done(done)
        self.assertEqual([kept["unit"] for kept in report["kept_units"]], ["layers.0"])
        self.assertRegex(report["kept_units"][0]["reason"], r"weight 7 of tensor layers\.0\.b\.weight")
        self.assertEqual([remark["unit"] for remark in report["remarks"]], ["embed"])
        self.assertEqual([dropped["tensor"] for dropped in report["dropped"]], ["gone.1"])
        self.assertEqual(report["cast"], {"tensors": 2, "changed": 3, "overflowed": 1, "flushed_to_zero": 1})
        record = json.loads((self.out / "weightpress.json").read_text())
        self.assertEqual(record["kept_units"], report["kept_units"])
        self.assertEqual([own["unit"] for own in record["own_coding"]], ["embed"])

    def test_casts_of_kept_units_count_once(self):
        values = np.array([1.0001] * 63 + [3.4e38], np.float32)
        model = self.model({"layers.0.a.weight": ("F32", [64], values.tobytes())})
        for layout in ("transformers", "comfyui"):
            with self.subTest(layout=layout):
                done, report = self.report(model, "--cast-to-bf16", "--keep-unencodable", "--force", "--layout", layout)
                self.assert_done(done)
                self.assertEqual([kept["unit"] for kept in report["kept_units"]], ["layers.0"])
                before = np.frombuffer(small_tensors()["norm.weight"][2], "<f4")  # another F32 tensor; the third is empty
                changed = int(sum((before.view("<u4") & 0xFFFF) != 0))
                self.assertEqual(report["cast"], {"tensors": 3, "changed": 64 + changed, "overflowed": 1, "flushed_to_zero": 0})

    def test_of_a_failure(self):
        model = self.model({"layers.0.b.weight": ("F32", [20, 100], words(4, 4000).tobytes())})
        done, report = self.report(model)
        self.assert_fails(done, 2, "F32")
        self.assertEqual((report["status"], report["error"]["code"], report["error"]["unit"], report["error"]["tensor"]),
                         ("failed", "unsupported-dtype", "layers.0", "layers.0.b.weight"))
        self.assertIn(report["error"]["message"], done.stderr)
        self.assertEqual(list(report["options"]), OPTIONS)

    def test_what_is_really_wrong_is_said_if_the_report_fails_too(self):
        """A folder that goes away during the run; also: no old report stays that could be taken for this run's."""
        reports = self.work / "reports"
        reports.mkdir()
        (reports / "report.json").write_text('{"status": "done"}')
        model = self.model({"layers.0.b.weight": ("F32", [20, 100], words(4, 4000).tobytes())})
        shutil.rmtree(reports)
        reports.symlink_to("/proc/self/fd")  # nothing can be made there
        done = compress(model, self.out, self.definition, "--report", reports / "report.json")
        self.assert_fails(done, 2, r"report")
        reports.unlink()
        reports.mkdir()
        (reports / "report.json").write_text('{"status": "done"}')
        done = compress(model, self.out, self.definition, "--report", reports / "report.json")
        self.assert_fails(done, 2, "F32")
        self.assertEqual(json.loads((reports / "report.json").read_text())["status"], "failed")

    def test_the_report_is_no_file_of_the_output(self):
        for name in ("report.json", "weightpress.json", "config.json"):
            with self.subTest(name=name):
                self.assert_fails(compress(self.model(), self.out, self.definition, "--report", self.out / name), 2, "output")
                done = compress(self.model(), f"{self.out}/", self.definition, "--report", f"{self.out}.partial/{name}")
                self.assert_fails(done, 2, "output")
        done = compress(self.model(), self.work / "x.safetensors", self.definition, "--layout", "comfyui", "--report",
                        self.work / "x.weightpress.json")
        self.assert_fails(done, 2, "beside the output")

    def test_an_interrupted_run_leaves_no_earlier_report_and_deletes_nothing_else(self):
        """Told by a run that a signal ends: it cannot write its own."""
        model = self.model({"embed.weight": bf16(words(1, 20_000_000))}, name="large")
        self.report(self.model())
        shutil.rmtree(self.out)
        (self.work / "notes.json").write_text('{"mine": 1}')
        for name, is_left in (("report.json", False), ("notes.json", True)):
            with self.subTest(name=name):
                partial = pathlib.Path(f"{self.out}.partial")
                shutil.rmtree(partial, ignore_errors=True)
                process = subprocess.Popen([support.PROGRAM, "compress", str(model), "-o", f"{self.out}/", "--arch",
                                            str(self.definition), "--report", str(self.work / name)],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                for _ in range(5000):
                    if any(partial.glob("*.safetensors")):
                        break
                    time.sleep(0.001)
                process.send_signal(signal.SIGINT)
                _, said = process.communicate()
                self.assertEqual(process.returncode, 130, said)
                self.assertIn(f"{self.out}.partial: run the same command again to go on", said)
                self.assertEqual((self.work / name).exists(), is_left)
        self.assertEqual((self.work / "notes.json").read_text(), '{"mine": 1}')

    def test_the_old_report_is_replaced_whole(self):
        (self.work / "report.json").write_text("x" * 100_000)
        done, report = self.report(self.model())
        self.assert_done(done)
        self.assertEqual(report["status"], "done")
        self.assertEqual(sorted(path.name for path in self.work.glob("report*")), ["report.json"])

    def test_to_a_pipe(self):
        done = compress(self.model(), self.out, self.definition, "--report", "/dev/stdout", "-q")
        self.assert_done(done)
        self.assertEqual(json.loads(done.stdout)["status"], "done")


class Progress(CompressCase):
    def on_a_terminal(self, *options, terminal_type="xterm"):
        """What the program wrote to a terminal as standard error."""
        try:
            main, terminal = pty.openpty()
        except OSError as error:  # a container without /dev/pts
            self.skipTest(f"no terminal can be made here: {error}")
        command = [support.PROGRAM, "compress", self.model({"embed.weight": bf16(words(1, 3_000_000))}), "-o", self.out,
                   "--arch", self.definition, "--force", *options]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=terminal, stdin=subprocess.DEVNULL,
                                   env={**os.environ, "TERM": terminal_type})
        os.close(terminal)
        text = b""
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:  # the terminal was closed
                break
            if not piece:
                break
            text += piece
        os.close(main)
        self.assertEqual(process.wait(), 0, text)
        return text.decode()

    def test_a_live_line_on_a_terminal(self):
        for options in ((), ("--progress", "bar")):
            text = self.on_a_terminal(*options)
            self.assertRegex(text, r"\r\x1b\[Kcompressing, 0 of 2 units, 0% of 6\.01 MB: embed")
            lines = re.split(r"\r\x1b\[K", text)
            self.assertTrue(all(len(line.split("\r\n")[0]) < 80 for line in lines[:-1]), lines)
            self.assertRegex(lines[-1], r"^(note: .*\r\n)*$")  # the line is taken away before other text

    def test_none_where_it_is_not_wanted(self):
        for options in (("--progress", "none"), ("-q",), ("--progress", "plain")):
            self.assertNotIn("\x1b", self.on_a_terminal(*options), options)

    def test_a_dumb_terminal_gets_no_live_line(self):
        self.assertNotIn("\x1b", self.on_a_terminal(terminal_type="dumb"))

    def test_the_plan_is_told_before_the_work(self):
        definition = support.write_definition(self.work / "drops.json", {r"embed": []}, drop=["^layers"])
        self.definition = definition
        text = self.on_a_terminal()
        self.assertLess(text.find("5 tensors of the source are not in the output"), text.find("compressing"))

    def test_no_live_line_in_a_pipe(self):
        done = compress(self.model(), self.out, self.definition)
        self.assert_done(done)
        self.assertNotRegex(done.stderr, r"[\r\x1b]")
        done = run("compress", self.model(), "-o", self.out, "--arch", self.definition, "--force", "--progress", "bar")
        self.assertIn("\x1b[K", done.stderr)  # asked for

    def test_other_modes_are_refused(self):
        self.assert_fails(compress(self.model(), self.out, self.definition, "--progress", "loud"), 2, "loud")


if __name__ == "__main__":
    unittest.main()
