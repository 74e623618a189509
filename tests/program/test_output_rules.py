"""Where a result may be written, and that nothing else is: OUT in the way, OUT and SOURCE in each other, side files.

A folder OUT in the transformers and diffusers layouts; a folder or a .safetensors file in the single-file layouts.
Standard library and numpy only.
"""
import json
import os
import pathlib
import shutil
import unittest

import support
from sources import (IMPOSSIBLE, SourceCase, expected_output, fingerprint, model_tensors, read_output,
                     tensors_file)
from support import bf16, words

TENSORS = model_tensors()
WANT = expected_output(TENSORS)
FOLDER_LAYOUTS, FILE_LAYOUTS = ("transformers", "diffusers"), ("comfyui", "diffusers-single")
MINE = "somebody's"


class OutputCase(SourceCase):
    def setUp(self):
        super().setUp()
        self.layouts = {layout: self.define(layout=layout) for layout in FOLDER_LAYOUTS + FILE_LAYOUTS}
        self.place_of_out = self.place("place")

    def clear(self):
        shutil.rmtree(self.place_of_out)
        self.place_of_out.mkdir()

    def untouched(self, source, out, *says, options=(), layout="transformers", code=IMPOSSIBLE):
        """Refused, and everything in the test's folder is as it was."""
        before = fingerprint(self.work)
        done = self.run_on(source, *options, definition=self.layouts[layout], out=out)
        self.assert_fails(done, code, *says, out_absent=False)
        self.assertEqual(fingerprint(self.work), before)
        return done

    def outs(self):
        """(layout, OUT) of each form there is."""
        return [(layout, self.place_of_out / "out") for layout in FOLDER_LAYOUTS + FILE_LAYOUTS] + [
            (layout, self.place_of_out / "out.safetensors") for layout in FILE_LAYOUTS]


class Forms(OutputCase):
    def test_what_is_written(self):
        """The files of each layout, and no other."""
        source = self.source_folder({"x.safetensors": TENSORS}, config=b'{"model_type": "llama", "a": 1e-5}')
        (source / "generation_config.json").write_text("{}")
        shards = ["embed.safetensors", "layers_0.safetensors", "layers_1.safetensors", "weightpress.json"]
        names = {"transformers": [*shards, "config.json", "generation_config.json", "model.safetensors"],
                 "diffusers": [*shards, "config.json", "diffusion_pytorch_model.safetensors"],
                 "diffusers-single": ["config.json", "diffusion_pytorch_model.safetensors", "weightpress.json"],
                 "comfyui": ["model.safetensors", "weightpress.json"]}
        for layout, out in self.outs():
            with self.subTest(layout=layout, out=out.name):
                self.clear()
                self.compressed(source, WANT, definition=self.layouts[layout], out=out)
                if out.suffix == ".safetensors":
                    left = sorted(path.name for path in self.place_of_out.iterdir())
                    self.assertEqual([name for name in left if not name.endswith("weightpress.json")],
                                     ["config.json", "out.safetensors"] if layout == "diffusers-single" else ["out.safetensors"])
                    self.assertEqual(len(list(self.place_of_out.glob("out*weightpress.json"))), 1)
                else:
                    self.assertEqual(sorted(path.name for path in out.iterdir()), sorted(names[layout]))

    def test_a_file_of_the_definition(self):
        definition = self.define(layout="diffusers-single", file="model.safetensors")
        self.compressed(self.source_folder({"x.safetensors": TENSORS}), WANT, definition=definition)
        self.assertTrue((self.out / "model.safetensors").is_file())

    def test_with_config(self):
        """In any layout the source's own, spliced; nothing where there is none."""
        source = self.source_folder({"x.safetensors": TENSORS}, config=b'{"model_type": "llama", "a": 1e-5}')
        for layout, out in self.outs():
            with self.subTest(layout=layout, out=out.name):
                self.clear()
                self.compressed(source, WANT, ["--with-config"], definition=self.layouts[layout], out=out)
                config = ((out.parent if out.suffix else out) / "config.json").read_text()
                self.assertTrue(config.startswith('{"model_type": "llama", "a": 1e-5'), config)
                self.assertIn("dfloat11_config", json.loads(config))

    def test_the_layout_option_wins(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        self.compressed(source, WANT, ["--layout", "comfyui"], definition=self.layouts["transformers"])
        self.assertEqual(len(list(self.out.glob("*.safetensors"))), 1)
        self.compressed(source, WANT, ["--layout", "transformers"], definition=self.layouts["comfyui"])
        self.assertEqual(len(list(self.out.glob("*.safetensors"))), 4)

    def test_a_folder_layout_needs_a_folder(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        for layout in FOLDER_LAYOUTS:
            for name in ("out.safetensors", "out.safetensors/"):
                with self.subTest(layout=layout, name=name):
                    self.untouched(source, f"{self.place_of_out}/{name}", r"out\.safetensors", "folder", layout=layout)

    def test_slashes_and_dots_at_the_end(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        for number, name in enumerate(("a/", "b//", "./c", "d/../e/", "f/.")):
            with self.subTest(name=name):
                (self.place_of_out / "d").mkdir(exist_ok=True)
                done = support.run("compress", source, "-o", f"{self.place_of_out}/{name}", "--arch", self.definition)
                if name == "f/.":
                    self.assertEqual(done.returncode, IMPOSSIBLE, done.stderr)
                    continue
                self.assert_done(done)
                self.assert_tensors(read_output(self.place_of_out / "abcef"[number]), WANT)

    def test_a_relative_name(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        for layout, name in (("transformers", "out"), ("comfyui", "out.safetensors")):
            with self.subTest(layout=layout):
                done = support.run("compress", os.path.relpath(source, self.place_of_out), "-o", name, "--arch",
                                   self.layouts[layout],
                                   cwd=self.place_of_out)
                self.assert_done(done)
                self.assert_tensors(read_output(self.place_of_out / name), WANT)

    def test_odd_names(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        for name in ("with space", "-o", "--force", "caf\u00e9", "a\nb", "'\"$(x)", "x.partial", "a.b.c"):
            for layout, suffix in (("transformers", ""), ("comfyui", ".safetensors")):
                with self.subTest(name=name, layout=layout):
                    self.compressed(source, WANT, definition=self.layouts[layout], out=self.place_of_out / (name + suffix))


class InTheWay(OutputCase):
    def test_paths_that_are_not_text(self):
        """Bytes that are no UTF-8, in every path: the files are made, and the JSON files are still JSON."""
        folder = self.place(b"m\xffdel".decode("utf-8", "surrogateescape"))
        (folder / os.fsdecode(b"a\xfe.safetensors")).write_bytes(tensors_file(TENSORS))
        (folder / "config.json").write_bytes(support.CONFIG)
        for layout, suffix in (("transformers", ""), ("comfyui", ".safetensors")):
            with self.subTest(layout=layout):
                out, report = (self.place_of_out / os.fsdecode(b"o\xfdt" + end.encode()) for end in (suffix, ".json"))
                self.compressed(folder, WANT, ["--report", report], definition=self.layouts[layout], out=out)
                for path in [report, *self.place_of_out.rglob("*weightpress.json")]:
                    self.assertTrue(json.loads(path.read_bytes().decode()))

    def test_what_is_there_is_not_replaced(self):
        source = self.source_folder({"x.safetensors": TENSORS})

        def link_to(target):
            return lambda out: out.symlink_to(target)

        kinds = {
            "file": (lambda out: out.write_text(MINE), "--force"),
            "empty file": (lambda out: out.write_text(""), "--force"),
            "empty folder": (lambda out: out.mkdir(), "--force"),
            "folder": (lambda out: (out.mkdir(), (out / "thesis.txt").write_text(MINE)), "--force"),
            "link to a file": (link_to(self.definition), "exists|--force"),
            "link to a folder": (link_to(source), "exists|--force|input"),
            "link to nothing": (link_to("nowhere"), "exists|--force"),
            "link to itself": (lambda out: out.symlink_to(out.name), "exists|--force|link"),
            "pipe": (lambda out: os.mkfifo(out), "exists|--force"),
        }
        for layout, out in self.outs():
            for kind, (make, *says) in kinds.items():
                with self.subTest(layout=layout, out=out.name, kind=kind):
                    self.clear()
                    make(out)
                    self.untouched(source, out, out.name.replace(".", r"\."), *says, layout=layout)

    def test_what_force_does_not_replace_either(self):
        """A link, a pipe, a folder with folders in it, a file where a folder goes and the other way round."""
        source = self.source_folder({"x.safetensors": TENSORS})
        for layout, out in self.outs():
            is_file = out.suffix == ".safetensors"
            for kind, make in {
                    "link to nothing": lambda: out.symlink_to("nowhere"), "link to a folder": lambda: out.symlink_to(source),
                    "link to a file": lambda: out.symlink_to(self.definition), "pipe": lambda: os.mkfifo(out),
                    "the other kind": (lambda: out.mkdir()) if is_file else (lambda: out.write_text(MINE)),
                    "folder of folders": lambda: (out / "sub").mkdir(parents=True)}.items():
                with self.subTest(layout=layout, out=out.name, kind=kind):
                    self.clear()
                    make()
                    self.untouched(source, out, out.name.replace(".", r"\."), options=["--force"], layout=layout)

    def test_force_replaces_a_result(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        other = self.source_folder({"x.safetensors": TENSORS | {"more": bf16(words(1, 9))}})
        for layout, out in self.outs():
            with self.subTest(layout=layout, out=out.name):
                self.clear()
                self.assert_done(self.run_on(other, definition=self.layouts[layout], out=out))
                self.untouched(source, out, "--force", layout=layout)
                self.compressed(source, WANT, ["--force"], definition=self.layouts[layout], out=out)
                forced = support.read_tree(self.place_of_out)
                self.clear()
                self.compressed(source, WANT, definition=self.layouts[layout], out=out)
                self.assertEqual(forced, support.read_tree(self.place_of_out))

    def test_force_does_not_replace_other_models(self):
        """A folder of models, as ComfyUI has it, or a source: whoever says --force there has taken the wrong folder."""
        source = self.source_folder({"x.safetensors": TENSORS})
        for kind, name, content in (("safetensors", "flux.safetensors", tensors_file(TENSORS)), ("gguf", "q4.gguf", b"GGUF\3"),
                                    ("torch", "old.ckpt", b"PK\3\4")):
            for is_df11 in (False, True):
                with self.subTest(kind=kind, is_df11=is_df11):
                    self.clear()
                    out = self.place_of_out / "models"
                    if is_df11:
                        self.assert_done(self.run_on(source, definition=self.layouts["transformers"], out=out))
                    out.mkdir(exist_ok=True)
                    (out / name).write_bytes(content)
                    self.untouched(source, out, name.replace(".", r"\."), options=["--force"], layout="transformers")
        self.clear()
        shutil.copytree(source, self.place_of_out / "models")
        (self.place_of_out / "models" / "x.safetensors").rename(self.place_of_out / "models" / "model.safetensors")
        self.untouched(source, self.place_of_out / "models", r"model\.safetensors", options=["--force"], layout="transformers")

    def test_a_refusal_leaves_nothing(self):
        """Found out while units are counted; trouble of the machine keeps OUT.partial and names it."""
        weights = words(1, 600).copy()
        weights[77] = 0x7F80
        source = self.source_folder({"x.safetensors": TENSORS | {"layers.1.a.weight": bf16(weights, [6, 100])}})
        for layout, out in self.outs():
            with self.subTest(layout=layout, out=out.name):
                self.clear()
                self.untouched(source, out, "weight 77", "--keep-unencodable", layout=layout)

    def test_options_are_no_names(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        for name in ("--force", "-"):
            done = support.run("compress", source, "--arch", self.definition, f"--output={name}", cwd=self.place_of_out)
            self.assert_fails(done, IMPOSSIBLE, "looks like an option")
        self.assertEqual(sorted(self.place_of_out.iterdir()), [])

    def test_partial_of_somebody_else(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        for layout, out in self.outs():
            partial = pathlib.Path(f"{out}.partial")
            for kind, make in {"folder": lambda: (partial.mkdir(), (partial / "thesis.txt").write_text(MINE)),
                               "file": lambda: partial.write_text(MINE), "link": lambda: partial.symlink_to(source),
                               "link to nothing": lambda: partial.symlink_to("nowhere"),
                               "pipe": lambda: os.mkfifo(partial)}.items():
                with self.subTest(layout=layout, out=out.name, kind=kind):
                    self.clear()
                    make()
                    for options in ((), ("--force",)):
                        self.untouched(source, out, r"\.partial", options=options, layout=layout)

    def test_side_files_of_somebody_else(self):
        """Beside a file OUT the folder is not ours: config.json there may belong to another model, and so may the record."""
        source = self.source_folder({"x.safetensors": TENSORS})
        cases = [("diffusers-single", (), "config.json"), ("comfyui", ("--with-config",), "config.json"),
                 ("diffusers-single", ("--force",), "config.json"), ("comfyui", (), "out.weightpress.json")]
        for layout, options, name in cases:
            with self.subTest(layout=layout, options=options, name=name):
                self.clear()
                (self.place_of_out / name).write_text('{"model_type": "somebody else\'s"}')
                self.untouched(source, self.place_of_out / "out.safetensors", name.replace(".", r"\."), options=options,
                               layout=layout)

    def test_side_files_that_are_not_written_do_not_matter(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        (self.place_of_out / "config.json").write_text(MINE)
        (self.place_of_out / "other.safetensors").write_text(MINE)
        (self.place_of_out / "other.weightpress.json").write_text(MINE)
        before = fingerprint(self.place_of_out)
        self.compressed(source, WANT, definition=self.layouts["comfyui"], out=self.place_of_out / "out.safetensors")
        after = fingerprint(self.place_of_out)
        self.assertEqual({name: after[name] for name in before if name != "."},
                         {name: before[name] for name in before if name != "."})


class SourceAndOutput(OutputCase):
    def test_the_source_is_never_the_output(self):
        """By its own name, through links and dots, and with --force."""
        source = self.source_folder({"model.safetensors": TENSORS})
        (self.work / "link").symlink_to(source)
        (self.place_of_out / "out.safetensors").symlink_to(source / "model.safetensors")
        for layout in FOLDER_LAYOUTS + FILE_LAYOUTS:
            for out in (source, self.work / "link", source / ".", self.place_of_out / ".." / source.name):
                with self.subTest(layout=layout, out=str(out.relative_to(self.work))):
                    self.untouched(source, out, options=["--force"], layout=layout)
                    self.untouched(source / "model.safetensors", out, options=["--force"], layout=layout)
        for layout in FILE_LAYOUTS:
            for out in (source / "model.safetensors", self.work / "link" / "model.safetensors",
                        self.place_of_out / "out.safetensors"):
                with self.subTest(layout=layout, out=str(out.relative_to(self.work))):
                    self.untouched(source, out, options=["--force"], layout=layout)
                    self.untouched(source / "model.safetensors", out, options=["--force"], layout=layout)

    def test_a_source_in_the_output(self):
        """Replacing OUT would delete it."""
        for layout, out in self.outs():
            if out.suffix == ".safetensors":
                continue
            with self.subTest(layout=layout):
                self.clear()
                out.mkdir()
                shutil.copy(self.source_file(TENSORS), out / "model.safetensors")
                shutil.copy(self.definition, out / "definition.json")
                (out / "config.json").write_bytes(support.CONFIG)
                self.untouched(out / "model.safetensors", out, options=["--force"], layout=layout)
                self.untouched(self.place_of_out, out, options=["--force"], layout=layout)
                model = self.source_folder({"x.safetensors": TENSORS})
                before = fingerprint(self.work)
                done = support.compress(model, out, out / "definition.json", "--force")
                self.assertEqual(done.returncode, IMPOSSIBLE, done.stderr)
                self.assertEqual(fingerprint(self.work), before)

    def test_an_output_in_the_source_folder(self):
        """A folder below it changes nothing about the model: made in full or refused, and the model's files are as they were."""
        source = self.source_folder({"model.safetensors": TENSORS})
        files = {name: value for name, value in fingerprint(source).items() if name != "."}
        for layout in FOLDER_LAYOUTS + FILE_LAYOUTS:
            with self.subTest(layout=layout):
                out = source / f"out-{layout}"
                done = self.run_on(source, definition=self.layouts[layout], out=out)
                self.assertIn(done.returncode, (0, IMPOSSIBLE), done.stderr)
                if done.returncode == 0:
                    self.assert_tensors(read_output(out), WANT)
                    shutil.rmtree(out)
                self.assertEqual({name: value for name, value in fingerprint(source).items() if name != "."}, files)

    def test_a_file_beside_a_source_file(self):
        """As all models of ComfyUI lie in one folder."""
        source = self.source_file(TENSORS, "flux.safetensors")
        before = fingerprint(source)
        out = source.parent / "flux-DF11.safetensors"
        self.assert_done(self.run_on(source, definition=self.layouts["comfyui"], out=out))
        self.assert_tensors(read_output(out), WANT)
        self.assertEqual(fingerprint(source), before)

    def test_a_file_in_a_source_folder(self):
        """It would be a part of the model at the next run."""
        source = self.source_folder({"model.safetensors": TENSORS})
        self.untouched(source, source / "out.safetensors", r"out\.safetensors", layout="comfyui")

    def test_the_config_of_the_source_is_not_overwritten(self):
        """The side file of an OUT beside a source file would have the name of the source's config.json."""
        source = self.source_folder({"model.safetensors": TENSORS})
        for options in ((), ("--force",)):
            for layout in ("diffusers-single",):
                with self.subTest(options=options):
                    self.untouched(source / "model.safetensors", source / "out.safetensors", r"config\.json", options=options,
                                   layout=layout)


if __name__ == "__main__":
    unittest.main()
