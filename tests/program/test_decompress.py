"""compress, then decompress by weightpress.json: every tensor, file, header and side file is the source's again.

Sources are compared as the bytes of their tensors (SHA-256) and as whole files. Standard library and numpy only.
"""
import hashlib
import json
import os
import pathlib
import re
import unittest

import numpy as np

import support
from sources import (DTYPE_RANK, IMPOSSIBLE, SourceCase, compact, file_bytes, filled, fingerprint, floats, index_of,
                     model_tensors, pack, read_output, read_strictly, rounded_to_bf16)
from support import bf16, mentions, words
from test_compress_command import CONTROL_CHARACTERS

LAYOUTS = ("transformers", "diffusers", "diffusers-single", "comfyui")
RECORD = "weightpress.json"
FLAT_NOTE = "flat|one dimension"

# What a header can hold: every dtype that numpy-free readers know, no dimension, no element, names of any kind.
ODD_TENSORS = {
    "empty": filled("F32", [0, 3]), "scalar": filled("I64", []), "bits": filled("BOOL", [7]), "f8": filled("F8_E4M3", [3, 5]),
    "layers.0.empty": filled("BF16", [4, 0]), "layers.1.scalar": filled("F32", []), "many": filled("U8", [1] * 20),
    "Grüße 日本😀": filled("F16", [5]), 'q"u\\o/t\n\x01': filled("I32", [2]), "": filled("F64", [1]), "half": filled("F4", [6])}


def hashes(path):
    """{tensor: (dtype, shape, SHA-256)} of a file or folder."""
    return {name: (dtype, shape, hashlib.sha256(content).hexdigest())
            for name, (dtype, shape, content) in read_output(path).items()}


def as_saved(tensors, metadata=None):
    """The file that save_file writes for these tensors."""
    order = sorted(tensors, key=lambda name: (-DTYPE_RANK[tensors[name][0]], name.encode()))
    header, data = pack(tensors, order)
    return file_bytes({**({"__metadata__": metadata} if metadata else {}), **header}, data)


class DecompressCase(SourceCase):
    """self.back: where the last run of decompress wrote, or did not."""

    def setUp(self):
        super().setUp()
        self.back = self.work / "back"

    def decompress(self, output, *options, back=None, **kwargs):
        SourceCase.num_runs += 1
        self.back = pathlib.Path(back) if back is not None else self.work / f"back_{SourceCase.num_runs}"
        return support.run("decompress", output, "-o", self.back, *options, **{"timeout": 60, **kwargs})

    def restored(self, output, *options, **kwargs):
        """Succeeds, leaves nothing beside the result, and the output as it was."""
        before = fingerprint(output)
        done = self.decompress(output, *options, **kwargs)
        self.assert_done(done)
        self.assertIsNone(CONTROL_CHARACTERS.search(done.stdout + done.stderr), repr(done.stdout + done.stderr))
        self.assertFalse(os.path.lexists(f"{self.back}.partial"))
        self.assertEqual(fingerprint(output), before, "the output was changed")
        return done

    def not_restored(self, output, code, *patterns, options=(), back=None, **kwargs):
        """Fails with this code and a message that matches, and nothing in the test's folder is another than before."""
        before = fingerprint(self.work)
        done = self.decompress(output, *options, back=back, **kwargs)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertTrue(done.stderr.strip(), "no message")
        for pattern in patterns:
            self.assertTrue(mentions(done.stderr, pattern), f"{pattern!r} is not in: {done.stderr}")
        self.assertIsNone(CONTROL_CHARACTERS.search(done.stderr), repr(done.stderr))
        self.assertFalse(mentions(done.stderr, "terminate called|std::|what\\(\\)|json.exception"), done.stderr)
        self.assertEqual(fingerprint(self.work), before)
        return done

    def compressed_output(self, source, *options, definition=None, **kwargs):
        """The DF11 output of a source."""
        self.assert_done(self.run_on(source, *options, definition=definition, **kwargs))
        return self.out


class RoundTrips(DecompressCase):
    def test_every_layout(self):
        tensors = model_tensors() | ODD_TENSORS
        source = self.source_folder({"model.safetensors": as_saved(tensors, {"format": "pt"})})
        (source / "generation_config.json").write_bytes(b'{"eos": [1,2], "t": 1e-1 }')
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                output = self.compressed_output(source, definition=self.define(layout=layout))
                done = self.restored(output)
                self.assertEqual(hashes(self.back), hashes(source))
                self.assertEqual((self.back / "model.safetensors").read_bytes(), (source / "model.safetensors").read_bytes())
                names = {"model.safetensors"}
                if layout == "transformers":
                    names |= {"config.json", "generation_config.json"}
                    for name in ("config.json", "generation_config.json"):
                        self.assertEqual((self.back / name).read_bytes(), (source / name).read_bytes())
                self.assertEqual({path.name for path in self.back.iterdir()}, names)
                self.assertTrue(mentions(done.stdout, RECORD, f"{len(tensors)} in 1 file, from 3 units"), done.stdout)
                self.assertFalse(mentions(done.stderr, FLAT_NOTE), done.stderr)

    def test_single_file_outputs(self):
        tensors = model_tensors() | ODD_TENSORS
        source = self.source_folder({"x.safetensors": as_saved(tensors)})
        for layout in ("diffusers-single", "comfyui"):
            with self.subTest(layout=layout):
                definition = self.define(layout=layout)
                out = self.place() / "model_df11.safetensors"
                output = self.compressed_output(source, definition=definition, out=out)
                self.restored(output)
                self.assertEqual(support.read_tree(self.back), {"x.safetensors": (source / "x.safetensors").read_bytes()})
                # A file again: the same bytes.
                self.restored(output, back=self.place() / "y.safetensors")
                self.assertEqual(self.back.read_bytes(), (source / "x.safetensors").read_bytes())
                self.assertEqual([path.name for path in self.back.parent.iterdir()], ["y.safetensors"])

    def test_several_files(self):
        tensors = model_tensors(4) | {"scalar": filled("I64", [])}
        names = sorted(tensors)
        files = {f"model-0000{number + 1}-of-00003.safetensors": {name: tensors[name] for name in names[number::3]}
                 for number in range(3)}
        metadata = [{"format": "pt"}, None, {"z": "Grüße", "a": "2", "format": "pt"}]
        source = self.source_folder({name: as_saved(content, one) for (name, content), one in zip(files.items(), metadata)},
                                    index=index_of(files))
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                output = self.compressed_output(source, definition=self.define(layout=layout))
                self.restored(output)
                for name in files:  # with its metadata in its order
                    self.assertEqual((self.back / name).read_bytes(), (source / name).read_bytes(), name)
                index = json.loads((self.back / "model.safetensors.index.json").read_text())
                self.assertEqual(index, index_of(files))
                self.assertEqual(list(index["weight_map"]), sorted(index["weight_map"]))
                # And it is a source like any other.
                back, definition = self.back, self.define(layout="comfyui")
                again = [read_output(self.compressed_output(one, definition=definition)) for one in (back, source)]
                self.assert_tensors(*again)

    def test_files_that_no_index_names(self):
        """Several files under names of their own, one of them without a tensor."""
        first, second = model_tensors(1), {"other": filled("F32", [3]), "layers.1.a.weight": bf16(words(5, 9), [9]),
                                           "layers.1.b.weight": bf16(words(6, 8), [2, 2, 2])}
        files = {"a b.safetensors": first, "Größe.safetensors": second, "none.safetensors": {}}
        source = self.source_folder({name: as_saved(content, {"n": name}) for name, content in files.items()})
        self.restored(self.compressed_output(source))
        for name in files:
            self.assertEqual((self.back / name).read_bytes(), (source / name).read_bytes(), name)
        self.assertEqual(json.loads((self.back / "model.safetensors.index.json").read_text())["weight_map"],
                         index_of(files)["weight_map"])

    def test_the_name_of_the_index(self):
        """As the files are called; else as the layout calls them."""
        parts = [dict(list(model_tensors().items())[part::2]) for part in range(2)]
        for names, layout, want in (
                (["x-00001-of-00002.safetensors", "x-00002-of-00002.safetensors"], "diffusers", "x"),
                (["a.safetensors", "b.safetensors"], "diffusers", "diffusion_pytorch_model"),
                (["a.safetensors", "b.safetensors"], "diffusers-single", "diffusion_pytorch_model"),
                (["a.safetensors", "b.safetensors"], "comfyui", "model")):
            with self.subTest(names=names, layout=layout):
                source = self.source_folder(dict(zip(names, parts)))
                self.restored(self.compressed_output(source, definition=self.define(layout=layout)))
                self.assertEqual(sorted(path.name for path in self.back.glob("*.index.json")), [f"{want}.safetensors.index.json"])

    def test_headers_become_those_of_save_file(self):
        """A source in another order, with odd padding: the tensors are the same, the file is an ordinary one."""
        tensors = model_tensors()
        source = self.source_folder({"x.safetensors": file_bytes(*pack(tensors, sorted(tensors, reverse=True)), pad=False)})
        self.restored(self.compressed_output(source))
        got, metadata = read_strictly(self.back / "x.safetensors")
        self.assert_tensors(got, tensors)
        self.assertIsNone(metadata)

    def test_large_units(self):
        """Several slabs and chunks; tensors that end inside a chunk, at its ends, and after one weight."""
        random = np.random.Generator(np.random.PCG64(5))
        sizes = {"one": 1, "a": 150_001, "b": 1, "c": 299_999, "d": 4096}
        tensors = {f"big.{name}.weight": bf16(words(seed, size)) for seed, (name, size) in enumerate(sizes.items())}
        any_words = random.integers(0, 1 << 16, 100_000, dtype=np.uint16)
        any_words = any_words[(any_words >> 7 & 0xFF) < 240].astype("<u2")
        tensors |= {"wild.weight": bf16(any_words), "zeros.weight": bf16(np.zeros(40_000, "<u2"), [200, 200])}
        source = self.source_folder({"x.safetensors": as_saved(tensors)})
        output = self.compressed_output(source, definition=self.define({"big": list(sizes), "wild": [], "zeros": []}))
        for threads in (1, 2):
            with self.subTest(threads=threads):
                self.restored(output, "--threads", threads)
                self.assertEqual((self.back / "x.safetensors").read_bytes(), (source / "x.safetensors").read_bytes())

    def test_stored_hashes_do_not_come_along(self):
        source = self.source_folder({"x.safetensors": as_saved(model_tensors() | ODD_TENSORS, {"format": "pt"})})
        self.restored(self.compressed_output(source, "--hashes"))
        self.assertEqual((self.back / "x.safetensors").read_bytes(), (source / "x.safetensors").read_bytes())

    def test_a_record_beside_a_moved_output(self):
        """The folder may be called anything, and lie anywhere."""
        source = self.source_folder({"x.safetensors": as_saved(model_tensors())})
        output = self.compressed_output(source).rename(self.place() / "моя модель")
        self.restored(output)
        self.assertEqual(hashes(self.back), hashes(source))


class WhatBecameOfTensors(DecompressCase):
    """Ties, casts, new names, what was dropped or kept."""

    def test_tied_heads(self):
        embedded = bf16(words(1, 600), [30, 20])
        body = {"model.embed_tokens.weight": embedded, "model.layers.0.a.weight": bf16(words(2, 300)),
                "model.layers.0.b.weight": bf16(words(3, 200)), "model.norm.weight": bf16(words(4, 20))}
        both = body | {"lm_head.weight": embedded}
        layers = {r"model\.layers\.\d+": ["a", "b"]}
        config = b'{"model_type": "gemma", "tie_word_embeddings": true}'
        kinds = {
            "stored twice in the source": (both, self.define(layers)),
            "the head's unit is made from the embedding":
                (body, self.define({"lm_head": [], r"model\.embed_tokens": [], **layers}, tied_lm_head=True)),
            "the same, and the embedding is no unit": (body, self.define({"lm_head": [], **layers}, tied_lm_head=True)),
        }
        for kind, (tensors, definition) in kinds.items():
            with self.subTest(kind=kind):
                source = self.source_folder({"x.safetensors": as_saved(tensors)}, config=config)
                output = self.compressed_output(source, definition=definition)
                record = self.record()
                self.assertTrue(record["tied_units"] or any("tied_to" in compact(file) for file in record["source_files"]))
                self.restored(output)
                self.assertEqual((self.back / "x.safetensors").read_bytes(), (source / "x.safetensors").read_bytes())
                self.assertEqual((self.back / "config.json").read_bytes(), config)

    def test_a_tie_across_files(self):
        embedded = bf16(words(1, 600), [30, 20])
        files = {"a.safetensors": {"lm_head.weight": embedded},
                 "b.safetensors": {"model.embed_tokens.weight": embedded, "model.layers.0.a.weight": bf16(words(2, 300))}}
        source = self.source_folder({name: as_saved(content) for name, content in files.items()}, config={"model_type": "gemma"})
        for patterns in ({r"model\.layers\.\d+": ["a"]}, {r"model\.layers\.\d+": ["a"], r"model\.embed_tokens": []}):
            with self.subTest(patterns=patterns):
                self.restored(self.compressed_output(source, definition=self.define(patterns)))
                for name in files:
                    self.assertEqual((self.back / name).read_bytes(), (source / name).read_bytes(), name)

    def test_casts_come_back_as_bf16(self):
        values = np.random.Generator(np.random.PCG64(3)).standard_normal(300).astype(np.float32)
        tensors = model_tensors() | {"layers.0.a.weight": floats("F32", values, [3, 100]), "norm.weight": floats("F16", values[:20])}
        source = self.source_folder({"x.safetensors": as_saved(tensors)})
        done = self.restored(self.compressed_output(source, "--cast-to-bf16"))
        want = tensors | {"layers.0.a.weight": bf16(rounded_to_bf16(values), [3, 100]),
                          "norm.weight": bf16(rounded_to_bf16(values[:20].astype(np.float16)))}
        self.assert_tensors(read_output(self.back), want)
        self.assertTrue(mentions(done.stderr, "2 tensors.*cast", "BF16", r"layers\.0\.a\.weight", "F32"), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_renamed_tensors_get_their_names_back(self):
        tensors = {"net." + name: tensor for name, tensor in model_tensors().items()}
        source = self.source_folder({"x.safetensors": as_saved(tensors)})
        definitions = {"prefix": self.define(strip_prefixes=["net."]),
                       "rename": self.define(strip_prefixes=["net."], rename=[[r"^layers\.(\d+)\.norm", r"n.\1"]]),
                       "attributes": self.define({"embed": [], r"layers\.\d+": ["x", "b"]}, strip_prefixes=["net."],
                                                 rename=[[r"\.a\.", ".x."]])}
        for kind, definition in definitions.items():
            with self.subTest(kind=kind):
                self.restored(self.compressed_output(source, definition=definition))
                self.assertEqual((self.back / "x.safetensors").read_bytes(), (source / "x.safetensors").read_bytes())

    def test_names_that_change_places(self):
        """b is stored as a, and a was dropped: names of the source and of the output must not be taken for each other."""
        tensors = model_tensors() | {"gone.x": filled("F32", [3], 1), "x": filled("F32", [5], 2), "p.gone.x": filled("F32", [7], 3)}
        definition = self.define(strip_prefixes=["p."], drop=["^gone"], rename=[["^x$", "gone.x"]])
        source = self.source_folder({"x.safetensors": as_saved(tensors)})
        done = self.restored(self.compressed_output(source, definition=definition))
        want = {name: tensor for name, tensor in tensors.items() if "gone" not in name}
        self.assert_tensors(read_output(self.back), want)
        self.assertTrue(mentions(done.stderr, r"gone\.x"), done.stderr)

    def test_dropped_tensors_are_told(self):
        tensors = model_tensors() | {f"rotary.{number}.inv_freq": filled("F32", [4]) for number in range(30)}
        source = self.source_folder({"x.safetensors": as_saved(tensors)})
        done = self.restored(self.compressed_output(source, definition=self.define(drop=["inv_freq"])))
        self.assert_tensors(read_output(self.back), model_tensors())
        self.assertTrue(mentions(done.stderr, r"rotary\.0\.inv_freq", "does not come back", r"\b(30|2\d)\b"), done.stderr)
        self.assertLess(len(done.stderr.splitlines()), 25)

    def test_a_file_of_which_all_was_dropped(self):
        files = {"a.safetensors": model_tensors(), "b.safetensors": {"inv_freq": filled("F32", [4])}}
        source = self.source_folder({name: as_saved(content, {"k": "v"}) for name, content in files.items()})
        self.restored(self.compressed_output(source, definition=self.define(drop=["inv_freq"])))
        self.assertEqual((self.back / "a.safetensors").read_bytes(), (source / "a.safetensors").read_bytes())
        self.assertEqual(read_strictly(self.back / "b.safetensors"), ({}, {"k": "v"}))

    def test_kept_units(self):
        """What DF11 cannot hold was stored as it is."""
        array = words(2, 300)
        array[12] = 0x7F80
        tensors = model_tensors() | {"layers.1.a.weight": bf16(array, [3, 100])}
        source = self.source_folder({"x.safetensors": as_saved(tensors)})
        output = self.compressed_output(source, "--keep-unencodable")
        self.assertEqual(len(self.record()["kept_units"]), 1)
        self.restored(output)
        self.assertEqual((self.back / "x.safetensors").read_bytes(), (source / "x.safetensors").read_bytes())

    def test_rescued_units(self):
        """Constant and one-weight tensors: a coding of our own."""
        tensors = {"embed.weight": bf16(np.full(1000, 0x3F80, "<u2"), [10, 100]), "layers.0.a.weight": bf16(words(1, 1)),
                   "layers.0.b.weight": bf16([])}
        source = self.source_folder({"x.safetensors": as_saved(tensors)})
        self.restored(self.compressed_output(source))
        self.assertEqual((self.back / "x.safetensors").read_bytes(), (source / "x.safetensors").read_bytes())


class SideFiles(DecompressCase):
    def test_config_json_keeps_its_spelling(self):
        for config in (support.CONFIG, b'{"model_type":"bert","eps":1e-05}', b'{"a": [0.0, NaN, -Infinity]}\n', b"{}",
                       b'{"model_type": "bert"}', b'{\r\n\t"a" : 1.50\r\n}\r\n', '{\n "Grüße": "\\u00fc"\n}'.encode()):
            with self.subTest(config=config):
                source = self.source_folder({"x.safetensors": as_saved(model_tensors())}, config=config)
                self.restored(self.compressed_output(source))
                self.assertEqual((self.back / "config.json").read_bytes(), config)

    def test_config_of_other_layouts(self):
        """diffusers' holds nothing of the model's own; with --with-config it does."""
        source = self.source_folder({"x.safetensors": as_saved(model_tensors())}, config=b'{"model_type": "llama", "a": 1e-5}')
        for layout in ("diffusers", "diffusers-single"):
            with self.subTest(layout=layout):
                done = self.restored(self.compressed_output(source, definition=self.define(layout=layout)))
                self.assertFalse((self.back / "config.json").exists())
                self.assertTrue(mentions(done.stderr, r"config\.json", "original"), done.stderr)
        self.restored(self.compressed_output(source, "--with-config", definition=self.define(layout="comfyui")))
        self.assertEqual((self.back / "config.json").read_bytes(), b'{"model_type": "llama", "a": 1e-5}')

    def test_beside_a_file_nothing_is_written(self):
        source = self.source_folder({"x.safetensors": as_saved(model_tensors())})
        done = self.restored(self.compressed_output(source), back=self.place() / "one.safetensors")
        self.assertEqual([path.name for path in self.back.parent.iterdir()], ["one.safetensors"])
        self.assertTrue(mentions(done.stderr, r"config\.json.*folder"), done.stderr)


class WhatIsPrinted(DecompressCase):
    def output(self):
        return self.compressed_output(self.source_folder({"x.safetensors": as_saved(model_tensors())}))

    def test_quiet(self):
        done = self.restored(self.output(), "-q")
        self.assertEqual((done.stdout, done.stderr), ("", ""))

    def test_progress_and_summary(self):
        output = self.output()
        done = self.decompress(output, "--progress", "bar")
        self.assert_done(done)
        self.assertTrue(mentions(done.stderr, "decompressing, 0 of 3 units, 0% of [0-9.]+ [kM]?B: embed"), done.stderr)
        done = self.restored(output)
        self.assertEqual(done.stderr, "")
        self.assertTrue(mentions(done.stdout, "record", "tensors", "written to", re.escape(str(self.back))), done.stdout)

    def test_usage(self):
        output = self.output()
        for arguments in (["decompress"], ["decompress", output], ["decompress", "-o", self.back],
                          ["decompress", output, "-o", self.back, "--threads", "0"],
                          ["decompress", output, "-o", self.back, "--threads", "many"],
                          ["decompress", output, "-o", self.back, "--fast"],
                          ["decompress", output, "-o", self.back, "--progress", "loud"],
                          ["decompress", output, "-o", "-x"], ["decompress", output, output, "-o", self.back],
                          ["decompress", output, "-o", ""]):
            with self.subTest(arguments=arguments[1:]):
                done = support.run(*arguments, cwd=self.work)
                self.assert_fails(done, IMPOSSIBLE, out_absent=False)
                self.assertFalse(self.back.exists() or (self.work / "-x").exists())

    def test_a_name_that_looks_like_an_option(self):
        output = self.output()
        done = support.run("decompress", output, "-o", "-x", cwd=self.work)
        self.assert_fails(done, IMPOSSIBLE, "-x", out_absent=False)
        self.assert_done(support.run("decompress", output, "-o", "./-x", cwd=self.work))
        self.assertTrue((self.work / "-x" / "x.safetensors").is_file())

    def test_help(self):
        done = support.run("decompress", "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLessEqual(len(done.stdout.splitlines()), 40)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 110)
        self.assertTrue(mentions(done.stdout, "example", "weightpress decompress", "--source-shapes", "--force"))


if __name__ == "__main__":
    unittest.main()
