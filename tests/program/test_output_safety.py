"""What must never happen: an input lost, somebody else's files deleted, an OUT that is not complete, a run that blocks the next.

Standard library and numpy only.
"""
import os
import pathlib
import resource
import signal
import subprocess
import threading
import time

import support
from support import bf16, compress, read_tree, reference, words
from test_compress_command import CompressCase, unittest

SHIM = os.environ.get("WEIGHTPRESS_KILL_SHIM", "")


class KilledRuns(CompressCase):
    """SIGKILL at every change of names: the same command then finishes, and OUT is old or new at every moment."""

    def kill_at(self, moment, *options):
        environment = {**os.environ, "LD_PRELOAD": SHIM, "WP_KILL_AT": moment}
        return compress(self.source, self.out, self.definition, *options, env=environment)

    def test_killed_at_every_change_of_names(self):
        if not SHIM:
            self.skipTest("WEIGHTPRESS_KILL_SHIM is not set: run this through ctest")
        self.source = self.model()
        self.assert_done(compress(self.source, self.work / "expected", self.definition))
        expected = read_tree(self.work / "expected")
        killed = 0
        for replaces in (False, True):
            for function in ("unlink", "renameat2"):
                for call in range(1, 12):
                    for side in ("before", "after"):
                        moment = f"{function}:{call}:{side}"
                        with self.subTest(moment=moment, replaces=replaces):
                            subprocess.run(["rm", "-rf", self.out, f"{self.out}.partial"], check=True)
                            options = []
                            if replaces:
                                self.out.mkdir()
                                for name in ("a", "b", "c"):
                                    (self.out / name).write_text("old")
                                options = ["--force"]
                            old = read_tree(self.out) if replaces else None
                            done = self.kill_at(moment, *options)
                            self.assertIn(done.returncode, (0, -signal.SIGKILL), done.stderr)
                            killed += done.returncode != 0
                            now = read_tree(self.out) if self.out.exists() else None
                            self.assertTrue(now in (old, expected), f"OUT is neither old nor new: {list(now or [])}")
                            # The same command again; if OUT is complete already it says so.
                            done = compress(self.source, self.out, self.definition, *options)
                            if now == expected and not replaces:
                                self.assert_fails(done, 2, "--force", out_absent=False)
                                continue
                            self.assert_done(done)
                            self.assertEqual(read_tree(self.out), expected)
                            self.assertFalse(pathlib.Path(f"{self.out}.partial").exists())
        self.assertGreater(killed, 10)

    def test_interrupted_run_is_taken_up(self):
        source = self.model({"embed.weight": bf16(words(1, 20_000_000))})
        command = [support.PROGRAM, "compress", str(source), "-o", str(self.out), "--arch", str(self.definition)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        partial = pathlib.Path(f"{self.out}.partial")
        for _ in range(2000):
            if any(partial.glob("*.safetensors")):
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)
        self.assertFalse(self.out.exists())
        self.assert_done(compress(source, self.out, self.definition))
        self.assertFalse(partial.exists())


class InputsStay(CompressCase):
    def assert_refused(self, source, out, *options):
        before = read_tree(self.work)
        done = compress(source, out, self.definition, "--force", *options)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(read_tree(self.work), before)

    def test_output_named_through_a_link_and_dots(self):
        model = self.model()
        (self.work / "else" / "sub").mkdir(parents=True)
        (self.work / "model" / "link").symlink_to(self.work / "else" / "sub")
        (self.work / "link").symlink_to(self.work / "model")
        self.assert_refused(model, self.work / "link")
        self.assert_refused(model, self.work / "link" / ".." / "model")
        # As the kernel resolves it, this is else/model: another folder.
        done = compress(model, self.work / "model" / "link" / ".." / "model", self.definition, "--force")
        self.assert_done(done)
        self.assertTrue((self.work / "else" / "model" / "config.json").exists())
        self.assertEqual(bytes(reference.load_all(str(model))["norm.weight"][2]), words(6, 50).tobytes())

    def test_snapshot_of_links_is_not_replaced(self):
        """As in the cache of the Hugging Face hub: files are links into another folder."""
        model = self.model(name="blobs")
        snapshot = self.work / "snapshot"
        snapshot.mkdir()
        for name in ("model.safetensors", "config.json"):
            (snapshot / name).symlink_to(model / name)
        (snapshot / "tokenizer.json").write_text("{}")
        self.assert_refused(snapshot / "model.safetensors", snapshot)
        self.assert_refused(snapshot, snapshot)
        self.assert_done(compress(snapshot, self.out, self.definition))
        self.assertEqual(reference.check(str(model), str(self.out)), 0)

    def test_folders_of_somebody_else(self):
        home = self.work / "home"
        (home / "documents").mkdir(parents=True)
        (home / "documents" / "thesis.txt").write_text("years of work")
        self.assert_refused(self.model(), home)

    def test_source_that_is_rewritten_during_the_run(self):
        source = self.model({"embed.weight": bf16(words(1, 20_000_000))})
        partial = pathlib.Path(f"{self.out}.partial")

        def rewrite():
            for _ in range(5000):
                if any(partial.glob("*.safetensors")):
                    with open(source / "model.safetensors", "r+b") as file:
                        file.seek(-1, os.SEEK_END)
                        file.write(b"x")
                    return
                time.sleep(0.001)

        thread = threading.Thread(target=rewrite)
        thread.start()
        done = compress(source, self.out, self.definition)
        thread.join()
        self.assert_fails(done, 2, r"model\.safetensors", "written to while it was read")


class ManyFiles(CompressCase):
    def test_more_shards_than_the_soft_limit_of_descriptors(self):
        folder = self.work / "many"
        folder.mkdir()
        (folder / "config.json").write_bytes(support.CONFIG)
        for i in range(80):
            reference.write_safetensors(folder / f"s{i}.safetensors", {f"layers.{i}.a.weight": bf16(words(i, 300))})
        support.write_definition(self.definition, {r"layers\.\d+": ["a"]})

        def limit(soft, hard):
            return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        self.assert_done(compress(folder, self.out, self.definition, preexec_fn=limit(40, 400)))
        done = compress(folder, self.work / "out2", self.definition, preexec_fn=limit(40, 40))
        self.assert_fails(done, 2, "ulimit -n", out_absent=False)


class OddNames(CompressCase):
    def test_line_breaks_in_paths_do_not_forge_messages(self):
        self.assert_fails(compress(self.model(), self.work / "no\nweightpress: all is well\n" / "x", self.definition), 2,
                          r"\\x0aweightpress")
        self.assert_fails(compress(self.model(), self.work / "no\u009b31m" / "x", self.definition), 2, "cannot be made")

    def test_links_to_nothing_are_not_nothing(self):
        for name in ("config.json", "generation_config.json"):
            with self.subTest(name=name):
                model = self.model(name=f"with_{name}")
                (model / name).unlink(missing_ok=True)
                (model / name).symlink_to(self.work / "gone")
                self.assert_fails(compress(model, self.out, self.definition), 2, name, "link")

    def test_paths_that_the_system_refuses(self):
        self.assert_fails(compress(self.model(), self.work / ("n" * 300), self.definition), 2, "too long")
        (self.work / "loop").symlink_to(self.work / "loop")
        self.assert_fails(compress(self.model(), self.work / "loop" / "out", self.definition), 2, "loop")

    def test_name_with_a_hundred_thousand_dots_ends(self):
        name = "a." * 100_000 + "b"
        start = time.monotonic()
        self.assert_fails(compress(self.model({name: ("U8", [0], b""), "x.weight": bf16(words(1, 5))}), self.out,
                                   self.definition), (1, 2))
        self.assertLess(time.monotonic() - start, 5)


if __name__ == "__main__":
    unittest.main()
