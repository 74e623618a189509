"""decompress of outputs without weightpress.json: names from config.json, from --arch, by detection or made up; --source-shapes.

The outputs come from the slow model, grouped in any way. Standard library and numpy only.
"""
import json
import os
import unittest

import numpy as np

import support
from sources import CORRUPT, IMPOSSIBLE, compact, filled, index_of, model_tensors, read_output
from support import bf16, mentions, reference, words
from test_compress_command import PATTERNS
from test_decompress import DecompressCase, as_saved

QWEN_ATTRIBUTES = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
                   "mlp.down_proj"]
UNITS = {"embed": ["embed.weight"], **{f"layers.{n}": [f"layers.{n}.a.weight", f"layers.{n}.b.weight"] for n in range(2)}}
NO_RECORD, FLAT, MADE_UP = r"no weightpress\.json", "written flat", "not known and are made up"


def unit_tensors(unit, parts):
    """The buffers of a unit that joins these tensors."""
    arrays = [np.frombuffer(part[2], "<u2") for part in parts]
    buffers, _ = reference.encode_unit(np.concatenate(arrays))
    tensors = {f"{unit}.{name}": ("U8", list(buffer.shape), buffer.tobytes()) for name, buffer in buffers.items()}
    return tensors | {f"{unit}.split_positions": ("I64", [len(arrays) - 1], support.split_positions(list(map(len, arrays))))}


def stored(tensors, units=None):
    """All tensors of the output of these."""
    units = UNITS if units is None else units
    joined = {name for names in units.values() for name in names}
    out = {name: tensor for name, tensor in tensors.items() if name not in joined}
    for unit, names in units.items():
        out |= unit_tensors(unit, [tensors[name] for name in names])
    return out


def flat(tensors, units=None):
    """The tensors as they come back without shapes."""
    joined = {name for names in (UNITS if units is None else units).values() for name in names}
    return {name: (dtype, [len(content) // 2] if name in joined else shape, content)
            for name, (dtype, shape, content) in tensors.items()}


def config_of(patterns, **more):
    return compact({**more, "dfloat11_config": {"version": "0.5.0", "threads_per_block": [512], "bytes_per_thread": 8,
                                                "pattern_dict": patterns}}).encode()


TENSORS = model_tensors() | {"scalar": filled("I64", []), "empty": filled("F32", [0, 3]), "日本": filled("U8", [3])}
CONFIG = config_of(PATTERNS, model_type="bert", eps=1e-5)


def qwen_tensors(layers=2):
    tensors = {"model.embed_tokens.weight": bf16(words(1, 600), [30, 20]), "lm_head.weight": bf16(words(2, 600), [30, 20]),
               "model.norm.weight": bf16(words(3, 20))}
    for layer in range(layers):
        tensors |= {f"model.layers.{layer}.{name}.weight": bf16(words(10 * layer + number, 40 + 20 * number), [2 + number, 20])
                    for number, name in enumerate(QWEN_ATTRIBUTES)}
        tensors[f"model.layers.{layer}.self_attn.q_norm.weight"] = bf16(words(99 + layer, 20))
    return tensors


QWEN_UNITS = {"lm_head": ["lm_head.weight"], "model.embed_tokens": ["model.embed_tokens.weight"],
              **{f"model.layers.{layer}": [f"model.layers.{layer}.{name}.weight" for name in QWEN_ATTRIBUTES] for layer in range(2)}}


class ForeignCase(DecompressCase):
    def output(self, tensors=None, units=None, config=CONFIG, num_files=1):
        """An output of another maker, its tensors spread over files without regard to units."""
        content = stored(TENSORS if tensors is None else tensors, units)
        names = sorted(content)
        return self.source_folder({f"part{number}.safetensors": {name: content[name] for name in names[number::num_files]}
                                   for number in range(num_files)}, config=config)

    def comes_back(self, output, want, *options, says=(NO_RECORD,), silent=(), **kwargs):
        done = self.restored(output, *options, **kwargs)
        self.assert_tensors(read_output(self.back), want)
        self.assertTrue(mentions(done.stderr, *says), done.stderr)
        for pattern in silent:
            self.assertFalse(mentions(done.stderr, pattern), done.stderr)
        return done


class Names(ForeignCase):
    def test_from_config_json(self):
        for num_files in (1, 2, 7):
            with self.subTest(num_files=num_files):
                self.comes_back(self.output(num_files=num_files), flat(TENSORS), says=[NO_RECORD, FLAT, r"config\.json"],
                                silent=[MADE_UP])
                self.assertEqual(sorted(path.name for path in self.back.iterdir()), ["config.json", "model.safetensors"])
                self.assertEqual((self.back / "model.safetensors").read_bytes(), as_saved(flat(TENSORS), {"format": "pt"}))
                self.assertEqual(json.loads((self.back / "config.json").read_text()), {"model_type": "bert", "eps": 1e-5})

    def test_from_a_definition(self):
        for config in (None, b'{"model_type": "x"}'):
            with self.subTest(config=config):
                self.comes_back(self.output(config=config), flat(TENSORS), "--arch", self.define(), says=[NO_RECORD, FLAT],
                                silent=[MADE_UP])
        # It is asked before config.json.
        renamed = {name.replace(".a.", ".x."): tensor for name, tensor in flat(TENSORS).items()}
        self.comes_back(self.output(), renamed, "--arch", self.define({"embed": [], r"layers\.\d+": ["x", "b"]}))

    def test_a_definition_that_does_not_fit(self):
        output = self.output()
        for patterns, says in (({"embed": []}, r"layers\.0.*matches no pattern"),
                               ({"embed": [], r"layers\.\d+": ["a"]}, r"layers\.0.*joins 2.*lists 1"),
                               ({r".*": ["a", "b", "c"]}, r"layers\.0.*joins 2.*lists 3")):
            with self.subTest(patterns=patterns):
                self.not_restored(output, IMPOSSIBLE, says, options=["--arch", self.define(patterns)])
        self.not_restored(output, IMPOSSIBLE, "no-such-model", options=["--arch", "no-such-model"])
        self.not_restored(output, IMPOSSIBLE, "none.json", options=["--arch", self.work / "none.json"])

    def test_by_detection(self):
        tensors = qwen_tensors()
        for config in (None, b'{"model_type": "qwen3"}'):
            with self.subTest(config=config):
                self.comes_back(self.output(tensors, QWEN_UNITS, config, 3), flat(tensors, QWEN_UNITS),
                                says=[NO_RECORD, FLAT, "qwen3-8b|llama"], silent=[MADE_UP])

    def test_of_the_users_own_definitions(self):
        self.define()
        folder = self.place()
        definition = json.loads(self.define().read_text())
        definition |= {"name": "mine", "detection": [{"all": ["layers.0.a.weight", "scalar"]}]}
        (folder / "mine.json").write_text(json.dumps(definition))
        self.comes_back(self.output(config=None), flat(TENSORS), says=["mine"], silent=[MADE_UP],
                        env={**os.environ, "WEIGHTPRESS_ARCH_DIR": str(folder)})

    def test_made_up(self):
        want = {name: tensor for name, tensor in flat(TENSORS).items() if name not in sum(UNITS.values(), [])}
        for unit, names in UNITS.items():
            for number, name in enumerate(names):
                want[f"{unit}.weight" if len(names) == 1 else f"{unit}.{number}.weight"] = flat(TENSORS)[name]
        for config in (None, b'{"model_type": "x"}'):
            with self.subTest(config=config):
                self.comes_back(self.output(config=config), want, says=[NO_RECORD, FLAT, MADE_UP, "--arch", "--source-shapes"])

    def test_two_definitions_that_differ(self):
        """Neither is taken."""
        folder = self.place()
        for name, attributes in (("one", ["a", "b"]), ("two", ["b", "a"])):
            definition = json.loads(self.define({"embed": [], r"layers\.\d+": attributes}).read_text())
            (folder / f"{name}.json").write_text(json.dumps(definition | {"name": name}))
        output = self.output(config=None)
        done = self.restored(output, env={**os.environ, "WEIGHTPRESS_ARCH_DIR": str(folder)})
        self.assertTrue(mentions(done.stderr, "one, two", "--arch", MADE_UP), done.stderr)
        self.comes_back(output, flat(TENSORS), "--arch", "one", env={**os.environ, "WEIGHTPRESS_ARCH_DIR": str(folder)})

    def test_patterns_that_name_some_units(self):
        config = config_of({"embed": []})
        want = flat(TENSORS)
        for layer in range(2):
            for number, part in enumerate("ab"):
                want[f"layers.{layer}.{number}.weight"] = want.pop(f"layers.{layer}.{part}.weight")
        self.comes_back(self.output(config=config), want, says=[MADE_UP, "2 units", r"layers\.0"])

    def test_a_linear_layer_has_no_attributes(self):
        """A unit of one tensor is the module's own weight, whatever attributes the pattern lists."""
        tensors = {"x.weight": bf16(words(1, 50)), "y.q.weight": bf16(words(2, 50))}
        units = {"x": ["x.weight"], "y": ["y.q.weight"]}
        self.comes_back(self.output(tensors, units, config_of({"x": ["a", "b"], "y": ["q"]})), flat(tensors, units))

    def test_names_that_are_taken(self):
        """A kept tensor has the name that a unit's tensor would get."""
        content = stored(TENSORS) | {"layers.0.a.weight": filled("F32", [3])}
        output = self.source_folder({"x.safetensors": content}, config=CONFIG)
        self.not_restored(output, IMPOSSIBLE, r"layers\.0\.a\.weight")

    def test_bad_patterns_in_config_json(self):
        for config, code in ((config_of({"a(": []}), CORRUPT), (config_of([]), CORRUPT), (config_of({"embed": "a"}), CORRUPT),
                             (config_of({"embed": [1]}), CORRUPT), (b'{"dfloat11_config": 7}', CORRUPT), (b"{", CORRUPT),
                             (b"[]", CORRUPT), (b"", CORRUPT), (b'{"dfloat11_config": {}}', CORRUPT)):
            with self.subTest(config=config):
                self.not_restored(self.output(config=config), code, r"config\.json")

    def test_one_file(self):
        """config.json beside a file may be another model's: it may name tensors, and may be broken."""
        content = stored(TENSORS)
        for config in (CONFIG, None, b"{", b'{"dfloat11_config": []}'):
            with self.subTest(config=config):
                file = self.source_file(content, "any.safetensors")
                if config is not None:
                    (file.parent / "config.json").write_bytes(config)
                self.comes_back(file, flat(TENSORS), *(() if config is CONFIG else ("--arch", self.define())))
                self.assertEqual([path.name for path in self.back.iterdir()], ["model.safetensors"])
                self.comes_back(file, flat(TENSORS), *(() if config is CONFIG else ("--arch", self.define())),
                                back=self.place() / "back.safetensors")

    def test_an_index_of_the_source_is_not_believed(self):
        """Published outputs still hold the index of the model they were made from."""
        output = self.output(num_files=3)
        (output / "model.safetensors.index.json").write_text(compact(index_of({"gone.safetensors": TENSORS})))
        self.comes_back(output, flat(TENSORS))
        self.assertFalse((self.back / "model.safetensors.index.json").exists())

    def test_hanging_golden_units(self):
        """Their weights are intact, and come back; that no GPU should load the output is said."""
        for case in ("official_tables_hang_kernel_119", "official_tables_hang_kernel_4214"):
            with self.subTest(case=case):
                folder = support.GOLDEN / case
                weights = np.fromfile(folder / "weights.bf16", "<u2")
                buffers = {path.stem: path.read_bytes() for path in folder.glob("*.u*")}
                content = {f"u.{name}": ("U8", [len(data) // 256, 256] if name == "luts" else [len(data)], data)
                           for name, data in buffers.items() if name in support.BUFFERS}
                content["u.split_positions"] = ("I64", [0], b"")
                self.comes_back(self.source_file(content), {"u.weight": bf16(weights)}, says=["'u'.*hang"])


class Shapes(ForeignCase):
    def forms(self):
        """The same shapes in every form."""
        source = self.source_folder({"model.safetensors": TENSORS})
        first, second = (dict(list(TENSORS.items())[part::2]) for part in range(2))
        shards = {"model-00001-of-00002.safetensors": first, "model-00002-of-00002.safetensors": second}
        sharded = self.source_folder(shards, index=index_of(shards))
        folder = self.place()
        (folder / "lists.json").write_text(json.dumps({name: tensor[1] for name, tensor in TENSORS.items()}))
        (folder / "objects.json").write_text(json.dumps(
            {"__metadata__": {"format": "pt"}, **{name: {"dtype": tensor[0], "shape": tensor[1]} for name, tensor in TENSORS.items()}}))
        (folder / "mixed.json").write_text(json.dumps(
            {name: tensor[1] if number % 2 else {"shape": tensor[1]} for number, (name, tensor) in enumerate(TENSORS.items())}))
        return {"folder": source, "file": source / "model.safetensors", "shards": sharded,
                "index": sharded / "model.safetensors.index.json", "lists": folder / "lists.json",
                "objects": folder / "objects.json", "mixed": folder / "mixed.json"}

    def test_every_form(self):
        output = self.output(num_files=2)
        for form, path in self.forms().items():
            with self.subTest(form=form):
                self.comes_back(output, TENSORS, "--source-shapes", path, silent=[FLAT, MADE_UP])
                self.assertEqual((self.back / "model.safetensors").read_bytes(), as_saved(TENSORS, {"format": "pt"}))

    def test_the_definitions_names(self):
        """Shapes of a source whose names the definition changes."""
        source = self.source_folder({"x.safetensors": {"net." + name: tensor for name, tensor in TENSORS.items()}})
        self.comes_back(self.output(config=None), TENSORS, "--source-shapes", source,
                        "--arch", self.define(strip_prefixes=["net."]), silent=[FLAT])

    def test_some_are_missing(self):
        path = self.work / "some.json"
        path.write_text(json.dumps({"layers.0.a.weight": [3, 100], "another": [5], "norm.weight": [99]}))
        want = flat(TENSORS) | {"layers.0.a.weight": TENSORS["layers.0.a.weight"]}
        self.comes_back(self.output(), want, "--source-shapes", path, says=[FLAT, "4 tensors", "does not hold"])

    def test_odd_shapes_that_fit(self):
        for shape in ([300], [1, 300, 1], [2, 3, 5, 10], [300] + [1] * 63):
            with self.subTest(shape=shape):
                path = self.work / "odd.json"
                path.write_text(json.dumps({"layers.0.a.weight": shape}))
                want = flat(TENSORS) | {"layers.0.a.weight": ("BF16", shape, TENSORS["layers.0.a.weight"][2])}
                self.comes_back(self.output(), want, "--source-shapes", path)

    def test_shapes_of_another_model(self):
        output = self.output()
        path = self.work / "shapes.json"
        for shape in ([3, 101], [], [0], [299], [300, 0], [1 << 40]):
            with self.subTest(shape=shape):
                path.write_text(json.dumps({"layers.0.a.weight": shape}))
                self.not_restored(output, IMPOSSIBLE, r"layers\.0\.a\.weight", "300 weights", r"shapes\.json",
                                  options=["--source-shapes", path])

    def test_files_that_hold_no_shapes(self):
        output = self.output()
        path = self.work / "shapes.json"
        deep = "[" * 50_000
        for text in ("", "{", "[]", "7", "null", '{"layers.0.a.weight": 300}', '{"layers.0.a.weight": "300"}',
                     '{"layers.0.a.weight": null}', '{"layers.0.a.weight": {}}', '{"layers.0.a.weight": {"shape": 3}}',
                     '{"layers.0.a.weight": [300.0]}', '{"layers.0.a.weight": [-300]}', '{"layers.0.a.weight": [true]}',
                     '{"layers.0.a.weight": [[300]]}', '{"layers.0.a.weight": [18446744073709551616]}',
                     '{"layers.0.a.weight": [4294967296, 4294967296]}', '{"x": [' + "1," * 64 + "1]}", f'{{"x": {deep}',
                     '{"layers.0.a.weight": [300]}\0', '{"\xff": [300]}'):
            with self.subTest(text=text[:60]):
                path.write_bytes(text.encode("latin-1"))
                self.not_restored(output, CORRUPT, r"shapes\.json", options=["--source-shapes", path])
        self.not_restored(output, IMPOSSIBLE, "nowhere", options=["--source-shapes", self.work / "nowhere"])
        self.not_restored(output, IMPOSSIBLE, r"nowhere\.json", options=["--source-shapes", self.work / "nowhere.json"])
        self.not_restored(output, IMPOSSIBLE, "safetensors", options=["--source-shapes", self.place()])

    def test_the_record_knows_better(self):
        source = self.source_folder({"x.safetensors": as_saved(TENSORS)})
        output = self.compressed_output(source)
        path = self.work / "shapes.json"
        path.write_text("{}")
        done = self.restored(output, "--source-shapes", path, "--arch", "qwen3-8b")
        self.assertEqual((self.back / "x.safetensors").read_bytes(), (source / "x.safetensors").read_bytes())
        self.assertTrue(mentions(done.stderr, "--arch and --source-shapes are not looked at"), done.stderr)

    def test_our_own_output_without_its_record(self):
        source = self.source_folder({"x.safetensors": TENSORS})
        output = self.compressed_output(source)
        (output / "weightpress.json").unlink()
        self.comes_back(output, TENSORS, "--source-shapes", source, silent=[FLAT])


if __name__ == "__main__":
    unittest.main()
