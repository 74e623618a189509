"""Names that a wrapper, a trainer or a bundle changed: prefixes, checkpoints of a whole pipeline, rules of a definition.

What a definition knows is taken off; what it does not know is refused, since a model of which no unit is found would be copied
through as a success. Standard library and numpy only.
"""
import json
import re
import unittest

import support
from sources import IMPOSSIBLE, SourceCase, expected_output, filled, floats, model_tensors
from support import bf16, words

TENSORS = model_tensors()
WANT = expected_output(TENSORS)
COMFYUI = "model.diffusion_model."


def prefixed(prefix, tensors=None):
    return {prefix + name: tensor for name, tensor in (tensors or TENSORS).items()}


class PrefixesThatNobodyKnows(SourceCase):
    def test_every_name_has_one(self):
        """safetensors/safetensors#403, huggingface/transformers#28041, rwightman's question in pytorch-image-models#2003."""
        for prefix in ("_orig_mod.", "module.", "_orig_mod.module.", "module._orig_mod.", "base_model.model.",
                       "_fsdp_wrapped_module.",
                       "diffusion_model.", COMFYUI, "net.", "transformer.", "ema.", "state_dict.", "model.language_model.",
                       "generator.a.b.c."):
            with self.subTest(prefix=prefix):
                self.refused(self.source_file(prefixed(prefix)), IMPOSSIBLE, re.escape(prefix.rstrip(".")))
        definition = self.define(layout="comfyui", strip_prefixes=["net."])
        self.refused(self.source_file(prefixed("diffusion_model.")), IMPOSSIBLE, "diffusion_model", definition=definition)

    def test_some_names_have_one(self):
        """Compiled layer by layer, or only a part of it wrapped."""
        layer = prefixed("_orig_mod.", {name: tensor for name, tensor in TENSORS.items() if "layers.1" in name})
        rest = {name: tensor for name, tensor in TENSORS.items() if "layers.1" not in name}
        inner = {name.replace("layers.1.", "layers.1._orig_mod."): tensor for name, tensor in TENSORS.items()}
        outer = {name.replace("layers.", "layers._orig_mod."): tensor for name, tensor in TENSORS.items()}
        embed = {name.replace("embed.", "embed._orig_mod."): tensor for name, tensor in TENSORS.items()}
        for kind, tensors in {"inside the unit": inner, "before the number": outer, "inside a module": embed,
                              "one of two layers": rest | layer}.items():
            with self.subTest(kind=kind):
                self.refused(self.source_file(tensors), IMPOSSIBLE, "_orig_mod|layers|embed")

    def test_adapters_are_not_models(self):
        lora = {f"base_model.model.layers.0.{module}.lora_{side}.weight": bf16(words(1, 40), [4, 10]) for module in "ab"
                for side in "AB"}
        kohya = {f"lora_unet_layers_0_{module}.lora_down.weight": bf16(words(1, 40), [4, 10]) for module in "ab"}
        for kind, tensors in {"peft": lora, "kohya": kohya}.items():
            with self.subTest(kind=kind):
                self.refused(self.source_file(tensors, "adapter_model.safetensors"), IMPOSSIBLE, "layers|lora")

    def test_a_model_of_another_kind(self):
        tensors = {f"encoder.block.{layer}.layer.0.SelfAttention.q.weight": bf16(words(layer, 40)) for layer in range(3)}
        self.refused(self.source_file(tensors), IMPOSSIBLE, "no module|pattern|definition", "encoder")


class PrefixesThatTheDefinitionKnows(SourceCase):
    def test_stripped_where_present(self):
        for prefixes, source in {
                ("net.",): prefixed("net."), (COMFYUI,): prefixed(COMFYUI), ("net.", COMFYUI): prefixed(COMFYUI),
                ("model.", "diffusion_model."): prefixed(COMFYUI), ("absent.",): TENSORS, (): TENSORS,
                ("module.", "_orig_mod."): prefixed("module._orig_mod.")}.items():
            for layout in ("transformers", "comfyui"):
                with self.subTest(prefixes=prefixes, layout=layout):
                    self.compressed(self.source_file(source), WANT,
                                    definition=self.define(layout=layout, strip_prefixes=prefixes))

    def test_stripped_once_and_in_order(self):
        """Each prefix once, the next from what is left."""
        definition = self.define(strip_prefixes=["a.", "b."])
        tensors = TENSORS | {"x": filled("U8", [3])}
        for prefix, left in {"a.b.x": "x", "b.x": "x", "b.a.x": "a.x", "a.a.x": "a.x", "b.b.x": "b.x", "x": "x", "a.": "",
                             "ab.x": "ab.x",
                             "A.x": "A.x", "xa.x": "xa.x"}.items():
            with self.subTest(name=prefix):
                source = TENSORS | {prefix: tensors["x"]}
                self.compressed(self.source_file(source), expected_output(TENSORS | {left: tensors["x"]}), definition=definition)

    def test_new_names_are_recorded(self):
        self.compressed(self.source_folder({"m.safetensors": prefixed("net.")}), WANT,
                        definition=self.define(strip_prefixes=["net."]))
        self.assertEqual(self.recorded_tensor("net.norm.weight")["renamed"], "norm.weight")
        entry = self.recorded_tensor("net.layers.1.a.weight")
        self.assertEqual((entry["renamed"], entry["unit"]), ("layers.1.a.weight", "layers.1"))
        self.assertEqual(self.recorded_tensor("net.layers.1.norm.weight")["renamed"], "layers.1.norm.weight")

    def test_two_names_that_become_one(self):
        """A model and its EMA, or a prefix on some names only. Neither value may win."""
        other = {name: filled("BF16", tensor[1]) for name, tensor in TENSORS.items()}
        cases = {
            "both forms": (TENSORS | prefixed("net.", {"norm.weight": other["norm.weight"]}), {"strip_prefixes": ["net."]},
                           r"net\.norm\.weight", r"'?norm\.weight'?"),
            "two prefixes": (prefixed("net.") | prefixed("ema.", {"norm.weight": other["norm.weight"]}),
                             {"strip_prefixes": ["net.", "ema."]},
                             r"net\.norm\.weight", r"ema\.norm\.weight"),
            "a weight of a unit": (TENSORS | prefixed("net.", {"layers.0.a.weight": other["layers.0.a.weight"]}),
                                   {"strip_prefixes": ["net."]},
                                   r"net\.layers\.0\.a\.weight", "layers.0.a.weight"),
            "equal values": (TENSORS | prefixed("net.", {"norm.weight": TENSORS["norm.weight"]}), {"strip_prefixes": ["net."]},
                             r"net\.norm\.weight", "norm.weight"),
            "a rename": (TENSORS | {"norm.scale": other["norm.weight"]}, {"rename": [[r"\.scale$", ".weight"]]}, r"norm\.scale",
                         r"norm\.weight"),
            "two renames": (TENSORS | {"x.scale": filled("U8", [1]), "x.gamma": filled("U8", [2])},
                            {"rename": [[r"\.scale$", ".w"], [r"\.gamma$", ".w"]]}, r"x\.scale", r"x\.gamma"),
        }
        for kind, (tensors, rules, *says) in cases.items():
            with self.subTest(kind=kind):
                self.refused(self.source_file(tensors), IMPOSSIBLE, *says, definition=self.define(**rules))

    def test_in_two_shards_they_become_one(self):
        definition = self.define(strip_prefixes=["net."])
        source = self.source_folder({"a.safetensors": TENSORS,
                                     "b.safetensors": prefixed("net.", {"norm.weight": TENSORS["norm.weight"]})})
        self.refused(source, IMPOSSIBLE, r"net\.norm\.weight", r"a\.safetensors", r"b\.safetensors", definition=definition)

    def test_a_unit_that_two_prefixes_share(self):
        """Half of the tensors with a prefix and half without: together they are the model."""
        tensors = {("net." if number % 2 else "") + name: tensor for number, (name, tensor) in enumerate(TENSORS.items())}
        self.compressed(self.source_file(tensors), WANT, definition=self.define(strip_prefixes=["net."]))


class WholeCheckpoints(SourceCase):
    """Diffusion model, text encoders and VAE in one file, as ComfyUI's "save checkpoint" writes them."""

    REST = {"first_stage_model.decoder.conv_in.weight": floats("F32", [0.1] * 9),
            "first_stage_model.layers.0.a.weight": floats("F32", [1.0]),
            "conditioner.embedders.0.transformer.text_model.embeddings.position_ids": ("I64", [1, 2], bytes(16)),
            "cond_stage_model.norm.weight": bf16(words(7, 20)), "norm.weight": filled("F8_E4M3", [3]),
            "model_ema.decay": floats("F32", [0.9999], []), "modelx.diffusion_model.x": filled("U8", [1])}

    def setUp(self):
        super().setUp()
        self.checkpoint = self.define(layout="comfyui", strip_prefixes=[COMFYUI], keep_only_prefix=COMFYUI)

    def test_only_the_diffusion_model_is_kept(self):
        done = self.compressed(self.source_file(prefixed(COMFYUI) | self.REST), WANT, definition=self.checkpoint)
        self.assertRegex(done.stdout + done.stderr, r"\b7\b.*(dropped|left out|not )|(dropped|left out|not ).*\b7\b")
        for name in self.REST:
            with self.subTest(name=name):
                self.assertTrue(self.recorded_tensor(name)["dropped"])

    def test_the_report_names_what_was_dropped(self):
        report = self.work / "report.json"
        self.assert_done(self.run_on(self.source_file(prefixed(COMFYUI) | self.REST), "--report", report,
                                     definition=self.checkpoint))
        written = json.loads(report.read_text())
        self.assertEqual(sorted(dropped["tensor"] for dropped in written["dropped"]), sorted(self.REST))

    def test_a_bare_diffusion_model_is_kept_whole(self):
        """No name has the prefix: then nothing is dropped, whatever else is there."""
        self.compressed(self.source_file(TENSORS | {"x.y": filled("U8", [3])}),
                        expected_output(TENSORS | {"x.y": filled("U8", [3])}),
                        definition=self.checkpoint)

    def test_one_stray_name_with_the_prefix(self):
        """Then the rest is what is dropped, and no unit is left: refused, not an empty success."""
        self.refused(self.source_file(TENSORS | {COMFYUI + "x": filled("U8", [3])}), IMPOSSIBLE, "pattern|no module|unit",
                     definition=self.checkpoint)

    def test_what_is_dropped_may_be_of_any_kind(self):
        """Units, F16 and Inf in the other models of the file are no fault of this one."""
        tensors = prefixed(COMFYUI) | {"first_stage_model.layers.0.a.weight": floats("F16", [1.0]),
                                       "layers.0.a.weight": bf16([0x7F80])}
        self.compressed(self.source_file(tensors), WANT, definition=self.checkpoint)

    def test_scaled_fp8_marker(self):
        """Comfy-Org's repackaged models carry a marker that is no weight."""
        tensors = prefixed(COMFYUI) | {COMFYUI + "scaled_fp8": ("F8_E4M3", [0], b"")}
        self.compressed(self.source_file(tensors), expected_output(TENSORS | {"scaled_fp8": ("F8_E4M3", [0], b"")}),
                        definition=self.checkpoint)


class RulesOfADefinition(SourceCase):
    def test_drop_is_searched_for_after_the_prefix(self):
        """As for Cosmos: counters and empty _extra_state go."""
        definition = self.define(strip_prefixes=["net."], drop=[r"^accum_", r"\._extra_state$",
                                                                r"^pos_embedder\.(seq|dim_spatial_range)$"])
        kept = {"accum": filled("U8", [1]), "x.accum_y": filled("U8", [1]), "layers.0._extra_state.x": filled("U8", [1]),
                "pos_embedder.seq.x": filled("U8", [1])}
        gone = {"accum_iteration": ("I64", [], bytes(8)), "layers.0.a._extra_state": ("U8", [0], b""),
                "pos_embedder.seq": floats("F32", [1.0])}
        self.compressed(self.source_file(prefixed("net.", TENSORS | kept | gone)), expected_output(TENSORS | kept),
                        definition=definition)

    def test_a_drop_that_takes_a_weight_of_a_unit(self):
        self.refused(self.source_file(TENSORS), IMPOSSIBLE, r"layers\.0\.b\.weight", definition=self.define(drop=[r"\.b\."]))

    def test_every_rename_in_order(self):
        definition = self.define(rename=[[r"\.scale$", ".weight"], ["^old_", ""], ["x", "k"], [r"^(\w+)\.(\d+)$", r"\2.\1"],
                                         ["k", "z"]])
        renamed = {"norm.scale": "norm.weight", "old_norm2.scale": "norm2.weight", "a.xx": "a.zx", "b.7": "7.b", "scale": "scale",
                   "c.scale.d": "c.scale.d", "old_old_e": "old_e"}
        source = {name: tensor for name, tensor in TENSORS.items() if name != "norm.weight"} | {
            old: TENSORS["norm.weight"] if old == "norm.scale" else filled("U8", [seed]) for seed, old in enumerate(renamed)}
        want = {renamed.get(name, name): tensor for name, tensor in source.items()}
        self.compressed(self.source_file(source), expected_output(want), definition=definition)

    def test_a_rename_that_makes_a_unit(self):
        source = {name.replace("layers.", "blocks_"): tensor for name, tensor in TENSORS.items()}
        self.compressed(self.source_file(source), WANT, definition=self.define(rename=[[r"^blocks_(\d+)\.", r"layers.\1."]]))

    def test_drop_comes_before_rename(self):
        tensors = TENSORS | {"x.old": filled("U8", [3])}
        self.compressed(self.source_file(tensors), WANT, definition=self.define(drop=[r"\.old$"], rename=[[r"\.old$", ".new"]]))
        self.compressed(self.source_file(tensors), expected_output(TENSORS | {"x.new": filled("U8", [3])}),
                        definition=self.define(drop=[r"\.new$"], rename=[[r"\.old$", ".new"]]))

    def test_names_that_leave_the_folder(self):
        """A shard is named after its unit, so a unit's name may hold no path, no control character, and must fit into a name."""
        units = {"../x": "dots", "/tmp/x": "absolute", "a/b": "folder", "a\\b": "backslash", "a\nb": "line break", "a\0b": "NUL",
                 "a\x1b[31m": "escape", "u" * 260: "long", "\u202ex": "reversed"}
        for name, kind in units.items():
            with self.subTest(kind=kind):
                definition = self.define({"embed": [], r"(?s)q.*[^.]": []}, rename=[["^p", "q"]])
                tensors = {"embed.weight": TENSORS["embed.weight"], f"p{name}.weight": bf16(words(5, 50))}
                self.refused(self.source_file(tensors), IMPOSSIBLE, "unit|name", definition=definition)
        # In one file no name becomes a path, so all of them are taken.
        for name in units:
            with self.subTest(name=name[:10]):
                definition = self.define({"embed": [], r"(?s)q.*[^.]": []}, layout="comfyui", rename=[["^p", "q"]])
                tensors = {"embed.weight": TENSORS["embed.weight"], f"p{name}.weight": bf16(words(5, 50))}
                want = {"embed.weight": TENSORS["embed.weight"], f"q{name}.weight": bf16(words(5, 50))}
                self.compressed(self.source_file(tensors), expected_output(want, {"embed": [], r"(?s)q.*[^.]": []}),
                                definition=definition)

    def test_units_that_would_share_a_file(self):
        tensors = {"a.b.weight": bf16(words(1, 50)), "a_b.weight": bf16(words(2, 50)), "model.weight": bf16(words(3, 50))}
        for units in ([r"a\.b", "a_b"], ["model", "a_b"]):
            with self.subTest(units=units):
                patterns = {unit: [] for unit in units}
                self.refused(self.source_file(tensors), IMPOSSIBLE, r"a\.b|a_b|model", definition=self.define(patterns))
                self.compressed(self.source_file(tensors), expected_output(tensors, patterns),
                                definition=self.define(patterns, "comfyui"))


if __name__ == "__main__":
    unittest.main()
