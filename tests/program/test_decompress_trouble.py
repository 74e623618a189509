"""decompress of what is broken, wrong or in the way: exit code, message, and that nothing is lost or left.

Standard library and numpy only.
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import time
import unittest

import numpy as np

import support
from sources import CORRUPT, IMPOSSIBLE, LFS_POINTER, compact, filled, fingerprint, model_tensors, read_strictly, tensors_file
from support import bf16, mentions, words
from test_decompress import RECORD, DecompressCase, as_saved
from test_decompress_foreign import stored

TENSORS = model_tensors()
BIG = {**TENSORS, "embed.weight": bf16(words(7, 400_000), [400, 1000])}


class BrokenRecords(DecompressCase):
    """The record of a sound output, changed."""

    def setUp(self):
        super().setUp()
        embedded = bf16(words(1, 600), [30, 20])
        tensors = {"lm_head.weight": embedded, "model.embed_tokens.weight": embedded, "norm.weight": bf16(words(2, 20)),
                   "inv_freq": filled("F32", [4]), "model.layers.0.a.weight": bf16(words(3, 300), [3, 100]),
                   "model.layers.0.b.weight": bf16(words(4, 200))}
        self.source = self.source_folder({"x.safetensors": as_saved(tensors, {"format": "pt"})}, config={"model_type": "gemma"})
        self.definition = self.define({r"model\.layers\.\d+": ["a", "b"]}, drop=["inv_freq"])
        self.output = self.compressed_output(self.source)
        self.path = self.output / RECORD
        self.sound = self.path.read_text()

    def refuses(self, record, *says, code=CORRUPT):
        content = record if isinstance(record, (str, bytes)) else compact(record)
        self.path.write_bytes(content.encode() if isinstance(content, str) else content)
        return self.not_restored(self.output, code, r"weightpress\.json", *says)

    def changed(self, change):
        record = json.loads(self.sound)
        tensors = {tensor["name"]: tensor for tensor in record["source_files"][0]["tensors"]}
        change(record, record["source_files"][0], tensors)
        return record

    def test_the_sound_one(self):
        self.restored(self.output)
        want = self.source / "x.safetensors"
        self.assertEqual(sorted(read_strictly(self.back / "x.safetensors")[0]),
                         sorted(set(read_strictly(want)[0]) - {"inv_freq"}))

    def test_not_json(self):
        for text in ("", "{", "[]", "7", "null", '"weightpress"', self.sound[:-3], self.sound + "}", self.sound + "\0",
                     self.sound.encode("utf-16"), b"\xef\xbb\xbf" + self.sound.encode()[:-9], self.sound.encode() + b"\xff", "{}",
                     '{"weightpress": "0.3.0"}', "[" * 100_000, '{"a":' * 100_000, '{"source_files":' + "[" * 60_000):
            with self.subTest(text=text[:40]):
                self.refuses(text)

    def test_every_prefix(self):
        for size in range(0, len(self.sound.rstrip()), 97):
            with self.subTest(size=size):
                self.refuses(self.sound[:size])

    def test_every_value_of_another_type(self):
        """A value that is read must be of its type; the others may be anything."""
        others = [None, True, -1, 7, "text", [{}], {"a": []}]

        def places(value, path=()):
            yield path
            for key in (value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()):
                yield from places(value[key], (*path, key))

        whole = json.loads(self.sound)
        num_refused = 0
        for path in places(whole):
            for other in others:
                if not path:
                    continue
                record = json.loads(self.sound)
                parent = record
                for key in path[:-1]:
                    parent = parent[key]
                parent[path[-1]] = other
                self.path.write_text(compact(record))
                done = self.decompress(self.output, back=self.work / "typed")
                with self.subTest(path=path, other=other):
                    self.assertIn(done.returncode, (0, CORRUPT, IMPOSSIBLE), done.stderr)
                    self.assertFalse(mentions(done.stderr, "terminate called|std::|json.exception"), done.stderr)
                    if done.returncode:
                        self.assertTrue(mentions(done.stderr, r"weightpress\.json|would be"), done.stderr)
                    self.assertEqual((self.work / "typed").exists(), done.returncode == 0)
                    self.assertFalse(os.path.lexists(self.work / "typed.partial"))
                num_refused += done.returncode != 0
                shutil.rmtree(self.work / "typed", ignore_errors=True)
        self.assertGreater(num_refused, 150)

    def test_names_of_files(self):
        for name in ("/tmp/x.safetensors", "../x.safetensors", "a/x.safetensors", "..", ".", "", "x", "x.bin", "/", "\0.safetensors",
                     "x.safetensors/", "x.safetensors\0", "config.json", "x" * 300 + ".safetensors", "./x.safetensors",
                     "a\0/../x.safetensors"):
            with self.subTest(name=name[:40]):
                self.refuses(self.changed(lambda record, file, tensors, name=name: file.update(name=name)))
        for name in (".safetensors", "..safetensors", "a\\..\\x.safetensors", "-x.safetensors", "\x1b[31m.safetensors"):
            with self.subTest(name=name):  # odd, but they stay in their folder
                self.path.write_text(compact(self.changed(lambda record, file, tensors, name=name: file.update(name=name))))
                done = self.decompress(self.output)
                self.assert_done(done)
                self.assertTrue((self.back / name).is_file())
                self.assertNotIn("\x1b", done.stdout + done.stderr)

    def test_duplicates(self):
        def twice(record, file, tensors):
            file["tensors"].append(tensors["norm.weight"])
        self.refuses(self.changed(twice), "norm.weight", "twice")
        self.refuses(self.changed(lambda record, file, tensors: record["source_files"].append(dict(file))), r"x\.safetensors", "twice")
        self.refuses(self.changed(lambda record, file, tensors: record["source_files"].append({**file, "name": "y.safetensors"})),
                     "twice")
        self.refuses(self.changed(lambda record, file, tensors: tensors["norm.weight"].update(renamed="model.embed_tokens.weight")),
                     "norm", "embed")
        # Keys may stand twice; tensors may not.
        files = compact(json.loads(self.sound)["source_files"])
        self.refuses(self.sound.replace('"tied_units"', f'"source_files": {files}, "tied_units"'), "twice")

    def test_what_does_not_fit_the_output(self):
        cases = {
            "a unit that is not there": (lambda r, f, t: t["norm.weight"].update(unit="nowhere"), "norm"),
            "a unit without pattern": (lambda r, f, t: r["definition"].update(pattern_dict={"x": []}), "pattern_dict|layers"),
            "no pattern": (lambda r, f, t: r["definition"].update(pattern_dict={}), "pattern_dict"),
            "a pattern that is none": (lambda r, f, t: r["definition"].update(pattern_dict={"a(": []}), "pattern_dict"),
            "a pattern that takes for ever": (lambda r, f, t: r["definition"].update(pattern_dict={"(.*)*(.*)*(.*)*(.*)*x": ["a"]}), ""),
            "another order of a unit": (lambda r, f, t: r["definition"]["pattern_dict"].update({r"model\.layers\.\d+": ["b", "a"]}),
                                        r"layers\.0"),
            "a tensor more in a unit": (lambda r, f, t: r["definition"]["pattern_dict"].update(
                {r"model\.layers\.\d+": ["a", "b", "c"]}), "pattern_dict|layers"),
            "another shape of a unit's tensor": (lambda r, f, t: t["model.layers.0.a.weight"].update(shape=[3, 99]), r"layers\.0\.a"),
            "no shape": (lambda r, f, t: t["model.layers.0.a.weight"].pop("shape"), "shape"),
            "another shape of a kept tensor": (lambda r, f, t: t["norm.weight"].update(shape=[4, 5]), r"norm\.weight"),
            "another type of a kept tensor": (lambda r, f, t: t["norm.weight"].update(dtype="F16"), r"norm\.weight"),
            "a type that is none": (lambda r, f, t: t["norm.weight"].update(dtype="BF17"), "BF17"),
            "a cast to another type": (lambda r, f, t: t["norm.weight"].update(cast="F16"), r"norm\.weight"),
            "a type of a unit's tensor": (lambda r, f, t: t["model.layers.0.a.weight"].update(dtype="F16"), "BF16|layers"),
            "a huge shape": (lambda r, f, t: t["norm.weight"].update(shape=[1 << 40]), r"norm\.weight"),
            "a huge shape of a dropped one": (lambda r, f, t: t["inv_freq"].update(shape=[1 << 40, 1 << 40]), "inv_freq"),
            "a shape that overflows": (lambda r, f, t: t["norm.weight"].update(shape=[1 << 63, 2]), r"norm\.weight"),
            "a shape that no number holds": (lambda r, f, t: t["norm.weight"].update(shape=[1 << 70]), "shape"),
            "many dimensions": (lambda r, f, t: t["norm.weight"].update(shape=[1] * 100 + [20]), "dimensions"),
            "a tied one of another shape": (lambda r, f, t: t["lm_head.weight"].update(shape=[20, 30]), "lm_head"),
            "tied to itself": (lambda r, f, t: t["lm_head.weight"].update(tied_to="lm_head.weight"), "lm_head"),
            "tied to nothing": (lambda r, f, t: t["lm_head.weight"].update(tied_to="none"), "lm_head"),
            "tied to a dropped one": (lambda r, f, t: t["lm_head.weight"].update(tied_to="inv_freq"), "lm_head"),
            "tied and dropped": (lambda r, f, t: t["lm_head.weight"].update(dropped="why"), "lm_head"),
            "dropped and in a unit": (lambda r, f, t: t["model.layers.0.a.weight"].update(dropped="why"), r"layers\.0\.a"),
            "dropped, though it is there": (lambda r, f, t: t["norm.weight"].update(dropped="why"), r"norm\.weight"),
            "a unit's tensor that is dropped": (lambda r, f, t: (t["model.layers.0.a.weight"].pop("unit"),
                                                                 t["model.layers.0.a.weight"].update(dropped="why")), "layers"),
            "a unit's tensor that is kept": (lambda r, f, t: t["model.layers.0.a.weight"].pop("unit"), r"layers\.0\.a"),
            "a tensor of another unit": (lambda r, f, t: t["model.layers.0.a.weight"].update(unit="model.layers.1"), "layers"),
            "a name that nobody stored": (lambda r, f, t: t["norm.weight"].update(renamed="other"), "norm|other"),
            "a tensor that is not listed": (lambda r, f, t: f["tensors"].remove(t["norm.weight"]), r"norm\.weight"),
            "no tensors": (lambda r, f, t: f.update(tensors=[]), ""),
            "no files": (lambda r, f, t: r.update(source_files=[]), "source_files"),
            "a made unit that is not there": (lambda r, f, t: r["tied_units"].append({"unit": "lm_head", "made_from": "norm.weight"}),
                                              "lm_head|units"),
            "a made unit with tensors": (lambda r, f, t: r["tied_units"].append(
                {"unit": "model.layers.0.a", "made_from": "norm.weight"}), r"layers\.0\.a"),
            "made from nothing": (lambda r, f, t: r["tied_units"].append({"unit": "u", "made_from": "none"}), "none"),
            "another format": (lambda r, f, t: r.update(format="tile-ans"), "tile-ans"),
            "metadata that is no text": (lambda r, f, t: f.update(metadata={"a": 1}), "metadata"),
        }
        for kind, (change, says) in cases.items():
            with self.subTest(kind=kind):
                self.path.write_text(compact(self.changed(change)))
                done = self.not_restored(self.output, code_of(kind), says, timeout=30)
                self.assertTrue(mentions(done.stderr, r"weightpress\.json"), done.stderr)

    def test_cycles_of_ties(self):
        def cycle(record, file, tensors):
            tensors["lm_head.weight"]["tied_to"] = "model.embed_tokens.weight"
            tensors["model.embed_tokens.weight"]["tied_to"] = "lm_head.weight"
        self.refuses(self.changed(cycle), "tied")

        def chain(record, file, tensors):
            file["tensors"] += [{**tensors["lm_head.weight"], "name": f"t{n}", "tied_to": f"t{n + 1}"} for n in range(1000)]
        self.refuses(self.changed(chain), "tied")

    def test_what_makes_no_readable_file(self):
        """Names and metadata that no header can hold."""
        self.path.write_text(compact(self.changed(lambda r, f, t: t["norm.weight"].update(name="__metadata__",
                                                                                            renamed="norm.weight"))))
        done = self.decompress(self.output)
        self.assertIn(done.returncode, (CORRUPT, IMPOSSIBLE), done.stderr)
        self.assertFalse(self.back.exists() or os.path.lexists(f"{self.back}.partial"))

    def test_metadata_of_any_kind(self):
        metadata = {"": "", "a\0b": "\x1b[31m", "日本": "\u2028", "long": "x" * 100_000, "__metadata__": "1", "0": "1", "z": "2", "y": "3"}
        self.path.write_text(compact(self.changed(lambda r, f, t: f.update(metadata=metadata))))
        self.restored(self.output)
        self.assertEqual(list(read_strictly(self.back / "x.safetensors")[1].items()), list(metadata.items()))

    def test_a_tie_to_many(self):
        """One tensor, in a thousand places."""
        def change(record, file, tensors):
            file["tensors"] += [{**tensors["lm_head.weight"], "name": f"t{n}"} for n in range(1000)]
            record["source_files"].append({"name": "y.safetensors", "metadata": None, "tensors": [
                {"name": "a2", "dtype": "BF16", "shape": [300, 1], "tied_to": "model.layers.0.a.weight"}]})
        record = self.changed(change)
        self.refuses(record, "a2", "shape")
        record["source_files"][1]["tensors"][0]["shape"] = [3, 100]
        self.path.write_text(compact(record))
        self.restored(self.output)
        tensors, _ = read_strictly(self.back / "x.safetensors")
        self.assertTrue(all(tensors[f"t{n}"] == tensors["model.embed_tokens.weight"] for n in range(1000)))
        self.assertEqual(read_strictly(self.back / "y.safetensors")[0]["a2"], tensors["model.layers.0.a.weight"])

    def test_a_missing_file(self):
        for name, lost in (("layers_1.safetensors", r"layers\.1"), ("model.safetensors", r"'norm\.weight'")):
            output = self.compressed_output(self.source_folder({"x.safetensors": as_saved(TENSORS)}), definition=self.define())
            (output / name).unlink()
            self.not_restored(output, IMPOSSIBLE, r"weightpress\.json", lost, "is a file missing")
        (self.output / "model_layers_0.safetensors").unlink()
        self.not_restored(self.output, IMPOSSIBLE, "no DF11 unit")

    def test_the_record_of_another_output(self):
        other = self.compressed_output(self.source_folder({"x.safetensors": as_saved(TENSORS)}),
                                       definition=support.write_definition(self.work / "o.json", {"embed": []}))
        shutil.copy(other / RECORD, self.output / RECORD)
        done = self.decompress(self.output)
        self.assertIn(done.returncode, (CORRUPT, IMPOSSIBLE))
        self.assertTrue(mentions(done.stderr, r"weightpress\.json", "of another", "move it away"), done.stderr)
        (self.output / RECORD).unlink()
        self.restored(self.output)

    def test_a_record_that_is_no_file(self):
        for make in (self.path.mkdir, lambda: os.mkfifo(self.path), lambda: self.path.symlink_to("/dev/zero")):
            self.path.unlink(missing_ok=True)
            make()
            done = self.decompress(self.output, timeout=20)
            self.assert_fails(done, IMPOSSIBLE, r"weightpress\.json", out_absent=False)
            self.assertFalse(self.back.exists())
            if self.path.is_dir():
                self.path.rmdir()
        # A link to nothing is no record, which is said.
        self.path.unlink()
        self.path.symlink_to("/nowhere")
        done = self.decompress(self.output)
        self.assert_done(done)
        self.assertTrue(mentions(done.stderr, r"no weightpress\.json"), done.stderr)


def code_of(kind):
    """What the output lacks cannot be done; all else is corrupt."""
    return IMPOSSIBLE if kind in ("a made unit that is not there", "a unit's tensor that is kept") else CORRUPT


class WrongInputs(DecompressCase):
    def test_not_df11(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        for path in (source, source / "x.safetensors"):
            with self.subTest(path=path.name):
                self.not_restored(path, IMPOSSIBLE, "no DF11 unit", "compress|inspect")

    def test_missing(self):
        self.not_restored(self.work / "nowhere", IMPOSSIBLE, "nowhere")
        self.not_restored(self.work / "nowhere.safetensors", IMPOSSIBLE, "nowhere")
        self.not_restored(self.place("bare"), IMPOSSIBLE, "bare")
        self.not_restored("", IMPOSSIBLE)

    def test_no_safetensors(self):
        for name, content in {"text": b"hello, this is no model at all\n" * 50, "empty": b"", "pointer": LFS_POINTER,
                              "cut": tensors_file(stored(TENSORS))[:-1], "html": b"<!DOCTYPE html><html>" * 9}.items():
            with self.subTest(content=name):
                path = self.source_file(content)
                done = self.decompress(path)
                self.assert_fails(done, IMPOSSIBLE if name in ("pointer", "html") else (CORRUPT, IMPOSSIBLE), r"model\.safetensors")
                self.assertFalse(self.back.exists())

    def test_a_unit_that_lacks_a_buffer(self):
        for buffer in support.BUFFERS:
            with self.subTest(buffer=buffer):
                content = stored(TENSORS)
                del content[f"layers.0.{buffer}"]
                self.not_restored(self.source_file(content), CORRUPT, r"layers\.0", buffer)


class DamagedUnits(DecompressCase):
    def setUp(self):
        super().setUp()
        self.source = self.source_folder({"x.safetensors": as_saved(TENSORS)})
        self.output = self.compressed_output(self.source)
        self.shard = self.output / "layers_1.safetensors"

    def damage(self, buffer, byte, bits):
        content = bytearray(self.shard.read_bytes())
        (length,) = np.frombuffer(content[:8], "<u8")
        begin, end = json.loads(content[8:8 + int(length)])[f"layers.1.{buffer}"]["data_offsets"]
        content[8 + int(length) + range(begin, end)[byte]] ^= bits
        self.shard.write_bytes(content)

    def test_one_flipped_bit(self):
        """Nothing at OUT; with --force the older OUT stays."""
        self.restored(self.output, back=self.work / "older")
        sound = self.shard.read_bytes()
        # The place of the fault, where the stream does not simply go on with other codes.
        for buffer, byte, bits in (("gaps", 0, 0x80), ("gaps", 2, 1), ("output_positions", 4, 1), ("output_positions", -4, 4),
                                   ("luts", -256 + 119, 1), ("luts", -256 + 120, 3), ("luts", -1, 1)):
            with self.subTest(buffer=buffer, byte=byte):
                self.shard.write_bytes(sound)
                self.damage(buffer, byte, bits)
                for out, options in ((self.work / "new", ()), (self.work / "older", ("--force",))):
                    self.not_restored(self.output, CORRUPT, r"layers_1\.safetensors", r"layers\.1", options=options, back=out)
        self.shard.write_bytes(sound)
        self.restored(self.output, "--force", back=self.work / "older")

    def test_flipped_bits_of_the_stream(self):
        """Either a fault is found, or only weights from that place on differ: DF11 itself holds no checksum."""
        sound = self.shard.read_bytes()
        stream = support.read_unit(self.output, "layers.1")["encoded_exponent"]
        num_found = 0
        for byte in range(0, len(stream), 7):
            with self.subTest(byte=byte):
                self.shard.write_bytes(sound)
                self.damage("encoded_exponent", byte, 0x10)
                done = self.decompress(self.output)
                self.assertIn(done.returncode, (0, CORRUPT), done.stderr)
                num_found += done.returncode == CORRUPT
                if done.returncode == CORRUPT:
                    self.assertTrue(mentions(done.stderr, r"layers\.1", r"weight|window|chunk"), done.stderr)
                    self.assertFalse(self.back.exists() or os.path.lexists(f"{self.back}.partial"))
        self.assertGreater(num_found, 0)

    def test_the_place_is_named(self):
        self.damage("gaps", 2, 1)
        done = self.not_restored(self.output, CORRUPT, r"layers\.1", "chunk 0|window [0-9]")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


class OutputInTheWay(DecompressCase):
    def setUp(self):
        super().setUp()
        self.source = self.source_folder({"x.safetensors": as_saved(TENSORS)})
        (self.source / "generation_config.json").write_text("{}")
        self.output = self.compressed_output(self.source)
        self.fresh = {name: (self.source / name).read_bytes() for name in ("x.safetensors", "config.json", "generation_config.json")}

    def test_existing_output_needs_force(self):
        for make in (lambda path: path.mkdir(), lambda path: path.write_text("mine"), lambda path: path.symlink_to("/nowhere"),
                     lambda path: (path.mkdir(), (path / "x").write_text("mine"))):
            out = self.place() / "out"
            make(out)
            with self.subTest(out=fingerprint(out)):
                self.not_restored(self.output, IMPOSSIBLE, r"\bout\b", back=out)

    def test_force_over_an_earlier_run(self):
        self.restored(self.output)
        (self.back / "x.safetensors").write_bytes(b"older")
        self.restored(self.output, "--force", back=self.back)
        self.assertEqual(support.read_tree(self.back), self.fresh)
        self.assertEqual([path.name for path in self.back.parent.glob("back_*")], [self.back.name])

    def test_force_never_over_what_is_not_ours(self):
        for name, content in (("thesis.txt", b"years of work"), ("tokenizer.json", b"{}"), ("other.safetensors", tensors_file(TENSORS))):
            with self.subTest(name=name):
                out = self.place() / "out"
                out.mkdir()
                (out / name).write_bytes(content)
                self.not_restored(self.output, IMPOSSIBLE, r"\bout\b", options=["--force"], back=out)
        out = self.place() / "out"
        (out / "sub").mkdir(parents=True)
        self.not_restored(self.output, IMPOSSIBLE, r"\bout\b", options=["--force"], back=out)

    def test_inputs_are_never_the_output(self):
        link = self.work / "link"
        link.symlink_to(self.output)
        for out in (self.output, self.output / ".." / self.output.name, link, self.work, self.output.parent,
                    self.output / "model.safetensors", self.output / "embed.safetensors"):
            for options in ((), ("--force",)):
                with self.subTest(out=str(out), options=options):
                    self.not_restored(self.output, IMPOSSIBLE, options=options, back=out)

    def test_a_file_in_the_input_is_refused_and_a_folder_is_not(self):
        self.not_restored(self.output, IMPOSSIBLE, "source folder", back=self.output / "y.safetensors")
        self.assert_done(self.decompress(self.output, back=self.output / "back"))
        self.assertEqual(support.read_tree(self.output / "back"), self.fresh)

    def test_the_shapes_and_the_definition_are_inputs(self):
        (self.output / RECORD).unlink()
        shapes = self.place() / "shapes"
        shutil.copytree(self.source, shapes)
        for out in (shapes, shapes / "x.safetensors"):
            with self.subTest(out=out.name):
                self.not_restored(self.output, IMPOSSIBLE, "input|replace", options=["--source-shapes", shapes, "--force"], back=out)

    def test_files(self):
        file = self.place() / "y.safetensors"
        self.restored(self.output, back=file)
        self.assertEqual(file.read_bytes(), self.fresh["x.safetensors"])
        self.not_restored(self.output, IMPOSSIBLE, r"y\.safetensors", "--force", back=file)
        file.write_bytes(tensors_file({"older": filled("U8", [3])}))
        self.restored(self.output, "--force", back=file)
        self.assertEqual(file.read_bytes(), self.fresh["x.safetensors"])
        folder = self.place() / "folder.safetensors"
        folder.mkdir()
        self.not_restored(self.output, IMPOSSIBLE, r"folder\.safetensors", options=["--force"], back=folder)

    def test_one_file_for_several(self):
        files = {"a.safetensors": dict(list(TENSORS.items())[::2]), "b.safetensors": dict(list(TENSORS.items())[1::2])}
        output = self.compressed_output(self.source_folder(files))
        self.not_restored(output, IMPOSSIBLE, "2", "folder", back=self.place() / "one.safetensors")

    def test_a_partial_folder_of_somebody_else(self):
        partial = self.work / "mine.partial"
        partial.mkdir()
        (partial / "thesis.txt").write_bytes(b"years of work")
        for options in ((), ("--force",)):
            self.not_restored(self.output, IMPOSSIBLE, r"\.partial", options=options, back=self.work / "mine")

    def test_places_that_cannot_be_written(self):
        (self.work / "file").write_text("")
        for out in (self.work / "file" / "out", "/proc/out", "/dev/null/out", self.work / "none" / "such" / "out"):
            with self.subTest(out=str(out)):
                self.not_restored(self.output, IMPOSSIBLE, back=out)


class TroubleOfTheMachine(DecompressCase):
    def setUp(self):
        super().setUp()
        self.source = self.source_folder({"x.safetensors": as_saved(BIG)})
        self.output = self.compressed_output(self.source)
        self.place_of_out = self.place("place")

    def run_on_a_small_disk(self, out, then):
        script = ('place=$1; then=$2; shift 2; mount -t tmpfs -o size=96k weightpress "$place" && echo mine > "$place/mine" && '
                  'mount -o "remount,$then" "$place" || exit 77; "$@"; code=$?; ls -A "$place"; exit $code')
        done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", self.place_of_out, then,
                               support.PROGRAM, "decompress", self.output, "-o", out, "--quiet"],
                              text=True, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
        if done.returncode == 77 or "unshare:" in done.stderr:
            self.skipTest("no mount name spaces here")
        return done

    def test_full_disk(self):
        """All sizes are known, so it is found before anything is written."""
        for name in ("out", "out.safetensors"):
            with self.subTest(out=name):
                done = self.run_on_a_small_disk(self.place_of_out / name, "rw")
                self.assertEqual(done.returncode, IMPOSSIBLE, done.stderr)
                self.assertTrue(mentions(done.stderr, r"\bfree\b", "make room"), done.stderr)
                self.assertEqual(done.stdout.split(), ["mine"])

    def test_read_only_disk(self):
        for name in ("out", "out.safetensors"):
            with self.subTest(out=name):
                done = self.run_on_a_small_disk(self.place_of_out / name, "ro")
                self.assertEqual(done.returncode, IMPOSSIBLE, done.stderr)
                self.assertTrue(mentions(done.stderr, "read-only"), done.stderr)
                self.assertEqual(done.stdout.split(), ["mine"])

    def test_limit_of_a_files_size(self):
        """What was written is left in OUT.partial, and the same command finishes when there is room."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        for name in ("out", "out.safetensors"):
            with self.subTest(out=name):
                out = self.place_of_out / name
                done = self.decompress(self.output, back=out, preexec_fn=limit)
                self.assertEqual(done.returncode, IMPOSSIBLE, done.stderr)
                self.assertTrue(mentions(done.stderr, "too large|limit|space", name, "next run removes"), done.stderr)
                self.assertEqual([path.name for path in self.place_of_out.iterdir()], [f"{name}.partial"])
                done = self.decompress(self.output, back=out)
                self.assert_done(done)
                self.assertTrue(mentions(done.stderr, "remains"), done.stderr)
                self.assertEqual([path.name for path in self.place_of_out.iterdir()], [name])
                shutil.rmtree(out) if out.is_dir() else out.unlink()

    def test_interruption(self):
        """Ctrl-C and SIGTERM at any moment: 130, OUT absent or complete, and the next run removes what is left."""
        source = self.source_folder({"x.safetensors": as_saved({"embed.weight": bf16(words(7, 12_000_000), [12_000, 1000])})})
        output = self.compressed_output(source, definition=self.define({"embed": []}))
        num_interrupted = 0
        for number, wait in enumerate((0.002, 0.01, 0.03, 0.05, 0.1)):
            out = self.place_of_out / "out"
            # A signal before the program has looked at OUT.partial may come before it can answer.
            shutil.rmtree(f"{out}.partial", ignore_errors=True)
            process = subprocess.Popen([support.PROGRAM, "decompress", output, "-o", out, "--threads", "1", "-q"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            deadline = time.monotonic() + 20
            while not os.path.lexists(f"{out}.partial") and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.0005)
            time.sleep(wait)
            process.send_signal(signal.SIGTERM if number % 2 else signal.SIGINT)
            _, errors = process.communicate(timeout=60)
            with self.subTest(wait=wait):
                self.assertIn(process.returncode, (0, 130), errors)
                self.assertEqual(out.exists(), process.returncode == 0)
                if process.returncode == 130:
                    num_interrupted += 1
                    self.assertTrue(mentions(errors, "interrupted", r"out\.partial"), errors)
            shutil.rmtree(out, ignore_errors=True)
        self.assertGreater(num_interrupted, 0)
        self.assert_done(self.decompress(output, back=out))
        self.assertEqual((out / "x.safetensors").read_bytes(), (source / "x.safetensors").read_bytes())
        self.assertEqual([path.name for path in self.place_of_out.iterdir()], ["out"])

    def test_standard_output_that_cannot_be_written(self):
        out = self.place_of_out / "closed"
        done = self.decompress(self.output, back=out, stdout=None, preexec_fn=lambda: os.close(1))
        self.assertIn(done.returncode, (0, IMPOSSIBLE), done.stderr)
        self.assertEqual((out / "x.safetensors").read_bytes(), (self.source / "x.safetensors").read_bytes())
        out = self.place_of_out / "full"
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = self.decompress(self.output, back=out, stdout=full)
        self.assertIn(done.returncode, (0, IMPOSSIBLE), done.stderr)
        self.assertEqual((out / "x.safetensors").read_bytes(), (self.source / "x.safetensors").read_bytes())


if __name__ == "__main__":
    unittest.main()
