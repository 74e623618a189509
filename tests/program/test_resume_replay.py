"""A power cut at any moment of a run, then the same command: OUT is that of an unbroken run.

record_shim.cpp records what a run does to the disk, slowed down so that it also syncs in the middle; the model of a disk is
that of test_crash_replay.py. Every beginning of the record is a moment at which the power may go: all that was not synced is
dropped then, and at some moments (WEIGHTPRESS_REPLAYS, drawn) a part of it. Standard library and numpy only.
"""
import copy
import os
import pathlib
import random
import unittest

import support
from broken_runs import JOURNAL, LAYOUTS, PATTERNS, SEED, WENT_ON, layered_tensors
from test_compress_command import CompressCase
from test_crash_replay import FileSystem, SHIM, read_disk, read_log, write_disk

NUM_LAYERS = 4
DELAY_MS = 25
MAX_MOMENTS = int(os.environ.get("WEIGHTPRESS_REPLAYS", "30"))


class PowerCutsAndResume(CompressCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}")

    def setUp(self):
        if not SHIM:
            self.skipTest("WEIGHTPRESS_RECORD_SHIM is not set: run this through ctest")
        super().setUp()
        self.random = random.Random(SEED)
        self.root = pathlib.Path(os.path.realpath(self.work)) / "root"
        self.root.mkdir()
        self.source = support.write_model(self.work / "model", layered_tensors(NUM_LAYERS, 30_000, SEED))
        support.write_definition(self.definition, PATTERNS)

    def compress(self, layout, *options, **keywords):
        out = self.root / ("x.safetensors" if layout == "comfyui" else "out")
        return support.compress(self.source, out, self.definition, "--layout", layout, "--threads", 2, *options, **keywords)

    def record(self, layout):
        """(the disk before, the records, what an unbroken run leaves)"""
        write_disk(self.root, {}, {})
        before, log = FileSystem(self.root), self.work / "log"
        log.unlink(missing_ok=True)
        self.assert_done(self.compress(layout, env={
            **os.environ, "LD_PRELOAD": SHIM, "WP_RECORD_ROOT": str(self.root), "WP_RECORD_LOG": str(log),
            "WP_RECORD_DELAY_MS": str(DELAY_MS)}))
        return before, read_log(log), read_disk(self.root)[0]

    def moments(self, records):
        """As many as there is time for: those around syncs and renames first."""
        chosen = set()
        for i, (operation, *_) in enumerate(records):
            if operation in ("sync", "rename", "remove"):
                chosen |= {i, i + 1}
        rest = [i for i in range(len(records) + 1) if i not in chosen]
        chosen = sorted(chosen)
        if len(chosen) > MAX_MOMENTS:
            chosen = self.random.sample(chosen, MAX_MOMENTS)
        chosen += self.random.sample(rest, max(0, min(len(rest), MAX_MOMENTS - len(chosen))))
        return set(chosen)

    def test_every_layout(self):
        for layout in LAYOUTS:
            before, records, want = self.record(layout)
            # In the middle too, data before the journal, or a power cut would cost everything.
            journal = next(number for operation, path, number, *_ in
                           (record for record in records if record[0] == "create") if path.endswith(JOURNAL))
            syncs = [i for i, record in enumerate(records) if record == ("sync", journal)]
            self.assertGreater(len(syncs), 2, "the journal is not synced while the run goes on")
            name = "x.safetensors" if layout == "comfyui" else "out"
            moments = self.moments(records)
            files, went_on, done_before = copy.deepcopy(before), 0, 0
            for moment in range(len(records) + 1):
                if moment:
                    files.run(records[moment - 1])
                states = list(files.states(self.random))
                chosen = [min(states, key=lambda state: (len(state.changes), state.fate != "lost"))]  # nothing unsynced
                if moment in moments:
                    chosen.append(self.random.choice(states))
                for state in chosen:
                    tree = state.tree()
                    write_disk(self.root, tree, state.attributes())
                    with self.subTest(layout=layout, moment=moment, of=len(records), state=str(state), seed=SEED):
                        done = self.compress(layout)
                        if name in tree:  # it was done, and is not replaced
                            self.assertEqual(done.returncode, 2, done.stderr)
                            self.assertEqual(*({path: content for path, content in disk.items() if path.split("/")[0] == name}
                                               for disk in (tree, want)))
                            done = self.compress(layout, "--force")
                        self.assertEqual(done.returncode, 0, done.stderr)
                        after = read_disk(self.root)[0]
                        wrong = [path for path in sorted({*after, *want}) if after.get(path, 0) != want.get(path, 0)]
                        self.assertEqual(wrong, [])
                        if found := WENT_ON.search(done.stderr):
                            went_on += 1
                            # What was synced before is not lost.
                            if state is chosen[0]:
                                done_before = max(done_before, int(found[1]))
            self.assertGreater(went_on, 3, "no run went on with anything")
            self.assertGreater(done_before, 1, "what was synced is lost")


if __name__ == "__main__":
    unittest.main()
