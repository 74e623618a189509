"""Models that are not BF16 throughout: F16 and F32 in units, quantised models, Inf and NaN; refused, kept, or cast.

mingyi456/ComfyUI-DFloat11-Extended#12, LeanModels/DFloat11#5. Standard library and numpy only.
"""
import json
import unittest

import numpy as np

import support
from sources import (IMPOSSIBLE, SourceCase, expected_output, filled, floats, model_tensors,
                     rounded_to_bf16)
from support import bf16

TENSORS = model_tensors()
BAD = "layers.1.b.weight"
KEEP, CAST = "--keep-unencodable", "--cast-to-bf16"


def normal(seed, count):
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(count).astype(np.float32) * np.float32(0.02)


def with_word(word, index=77):
    array = np.frombuffer(TENSORS[BAD][2], "<u2").copy()
    array[index] = word
    return bf16(array, [2, 100])


def cast(tensors, keep=()):
    """Every F16 and F32 tensor as BF16."""
    types = {"F16": "<f2", "F32": "<f4"}
    out = dict(tensors)
    for name, (dtype, shape, content) in tensors.items():
        if dtype in types and name not in keep:
            out[name] = bf16(rounded_to_bf16(np.frombuffer(content, types[dtype]).astype(np.float32)), shape)
    return out


# What a unit may hold that cannot be compressed: (tensor, what the message says, whether a cast helps).
UNENCODABLE = {
    "F16": (floats("F16", normal(1, 200), [2, 100]), r"\bF16\b", True),
    "F32": (floats("F32", normal(1, 200), [2, 100]), r"\bF32\b", True),
    "F64": (floats("F64", normal(1, 200), [2, 100]), r"\bF64\b", False),
    "F8_E4M3": (filled("F8_E4M3", [2, 100]), "F8_E4M3", False),
    "F8_E5M2": (filled("F8_E5M2", [2, 100]), "F8_E5M2", False),
    "F4": (filled("F4", [2, 100]), r"\bF4\b", False),
    "I8": (filled("I8", [2, 100]), r"\bI8\b", False),
    "U8": (filled("U8", [2, 100]), r"\bU8\b", False),
    "I32": (filled("I32", [2, 100]), r"\bI32\b", False),
    "I16, as large as BF16": (filled("I16", [2, 100]), r"\bI16\b", False),
    "BOOL": (filled("BOOL", [2, 100]), "BOOL", False),
    "Inf": (with_word(0x7F80), r"\b77\b", False),
    "minus Inf": (with_word(0xFF80), r"\b77\b", False),
    "NaN": (with_word(0x7FC0), r"\b77\b", False),
    "signalling NaN": (with_word(0xFF81), r"\b77\b", False),
    "2^113": (with_word(0x7800), r"\b77\b", False),
    "NaN in the last weight": (with_word(0x7FC0, 199), r"\b199\b", False),
}


class Refused(SourceCase):
    def test_the_message_names_tensor_and_fault_and_what_helps(self):
        for kind, (tensor, said, cast_helps) in UNENCODABLE.items():
            with self.subTest(kind=kind):
                source = self.source_file(TENSORS | {BAD: tensor})
                done = self.run_on(source)
                self.assert_fails(done, IMPOSSIBLE, r"layers\.1\b", r"layers\.1\.b\.weight", said, KEEP)
                self.assertEqual(CAST in done.stderr, cast_helps, done.stderr)
                if cast_helps:
                    continue
                self.assert_fails(self.run_on(source, CAST), IMPOSSIBLE, r"layers\.1\.b\.weight", said, KEEP)

    def test_dtypes_are_settled_before_anything_is_written(self):
        for kind in ("F16", "F8_E4M3", "I8"):
            with self.subTest(kind=kind):
                self.refused(self.source_file(TENSORS | {BAD: UNENCODABLE[kind][0]}), IMPOSSIBLE, kind)

    def test_empty_units(self):
        """All its tensors have no weight."""
        tensors = TENSORS | {"layers.1.a.weight": ("BF16", [0, 100], b""), BAD: ("BF16", [2, 0], b"")}
        self.refused(self.source_file(tensors), IMPOSSIBLE, r"layers\.1\b", "no weight|empty", KEEP)

    def test_one_empty_tensor_in_a_unit_is_no_fault(self):
        tensors = TENSORS | {BAD: ("BF16", [0, 100], b"")}
        self.compressed(self.source_file(tensors), expected_output(tensors))

    def test_quantised_models(self):
        """Every layer in another form, with its scales beside it. A cast would forget the scales."""
        def quantised(dtype, scales):
            tensors = dict(TENSORS)
            for module in ("layers.0.a", "layers.0.b", "layers.1.a", "layers.1.b"):
                tensors[f"{module}.weight"] = filled(dtype, tensors[f"{module}.weight"][1])
                tensors |= {f"{module}.{name}": tensor for name, tensor in scales.items()}
            return tensors

        scalar, row = floats("F32", [0.001], []), floats("F32", [0.001] * 3)
        models = {
            # huggingface/candle#2875, leejet/stable-diffusion.cpp#1898: both spellings of ComfyUI's scaled FP8
            "scaled FP8": (quantised("F8_E4M3", {"weight_scale": scalar, "input_scale": scalar}), "F8_E4M3", "scale|quanti|fp8"),
            "scaled FP8 of ComfyUI": (quantised("F8_E4M3", {"scale_weight": scalar}) | {"scaled_fp8": ("F8_E4M3", [0], b"")},
                                      "F8_E4M3",
                                      "scale|quanti|fp8"),
            # kekzl/imp#1450, deepseek-ai/DeepSeek-V3
            "FP8 in blocks": (quantised("F8_E4M3", {"weight_scale_inv": row}), "F8_E4M3", "scale|quanti|fp8"),
            "FP8 without scales": (quantised("F8_E5M2", {}), "F8_E5M2", "quanti|fp8|F8"),
            "INT8": (quantised("I8", {"weight_scale": row}), r"\bI8\b", "scale|quanti|int8"),
            "NF4 of bitsandbytes": (quantised("U8", {"weight.absmax": row, "weight.quant_map": row}), r"\bU8\b", "quanti|U8"),
        }
        for kind, (tensors, *says) in models.items():
            for option in ((), (CAST,)):
                with self.subTest(kind=kind, option=option):
                    done = self.refused(self.source_file(tensors), IMPOSSIBLE, r"layers\.0\.a\.weight", *says, options=option)
                    self.assertTrue(option or CAST not in done.stderr, done.stderr)

    def test_packed_models_lack_the_weights(self):
        """GPTQ and AWQ: qweight, qzeros and scales in place of weight."""
        tensors = {name: tensor for name, tensor in TENSORS.items() if ".a." not in name and ".b." not in name}
        tensors |= {f"layers.{layer}.{module}.{name}": tensor for layer in range(2) for module in "ab" for name, tensor in {
            "qweight": filled("I32", [13, 10]), "qzeros": filled("I32", [1, 2]), "scales": floats("F16", [0.5] * 10)}.items()}
        self.refused(self.source_file(tensors), IMPOSSIBLE, r"layers\.0\.a\.weight", "missing|lacks|not there")


class Kept(SourceCase):
    """--keep-unencodable: the unit's tensors and siblings as they are, beside the other kept tensors; all else compressed."""

    def test_keeps_what_cannot_be_compressed(self):
        for kind, (tensor, _, _) in UNENCODABLE.items():
            with self.subTest(kind=kind):
                tensors = TENSORS | {BAD: tensor}
                done = self.compressed(self.source_folder({"model.safetensors": tensors}),
                                       expected_output(tensors, kept_units=["layers.1"]), [KEEP])
                self.assertRegex(done.stderr, r"layers\.1\b")
                self.assertFalse((self.out / "layers_1.safetensors").exists())
                self.assertEqual([kept["unit"] for kept in self.record()["kept_units"]], ["layers.1"])
                self.assertTrue(self.record()["kept_units"][0]["reason"])
                self.assertNotIn("unit", self.recorded_tensor(BAD))

    def test_keeps_nothing_that_can_be_compressed(self):
        self.compressed(self.source_folder({"model.safetensors": TENSORS}), expected_output(TENSORS), [KEEP])
        self.assertEqual(self.record()["kept_units"], [])

    def test_keeps_an_empty_unit(self):
        tensors = TENSORS | {"layers.1.a.weight": ("BF16", [0, 100], b""), BAD: ("BF16", [2, 0], b"")}
        self.compressed(self.source_file(tensors), expected_output(tensors, kept_units=["layers.1"]), [KEEP])

    def test_does_not_keep_what_is_missing(self):
        """A hole in the model is not a unit that cannot be encoded."""
        self.refused(self.source_file({name: tensor for name, tensor in TENSORS.items() if name != BAD}), IMPOSSIBLE,
                     r"layers\.1\.b\.weight",
                     options=[KEEP])

    def test_a_model_of_which_nothing_would_be_compressed(self):
        """A copy under exit code 0 would pass for a success."""
        tensors = {name: floats("F16", normal(1, np.prod(shape)), shape) for name, (_, shape, _) in TENSORS.items()}
        self.refused(self.source_file(tensors), IMPOSSIBLE, "F16", "nothing|no unit|every unit|all units", options=[KEEP])

    def test_in_one_file(self):
        for layout in ("comfyui", "diffusers-single"):
            with self.subTest(layout=layout):
                tensors = TENSORS | {BAD: UNENCODABLE["Inf"][0], "layers.0.a.weight": UNENCODABLE["F16"][0]}
                self.compressed(self.source_file(tensors), expected_output(tensors, kept_units=["layers.0", "layers.1"]), [KEEP],
                                definition=self.define(layout=layout))

    def test_in_the_report(self):
        report = self.work / "report.json"
        self.assert_done(self.run_on(self.source_file(TENSORS | {BAD: UNENCODABLE["F16"][0]}), KEEP, "--report", report))
        written = json.loads(report.read_text())
        self.assertEqual((written["status"], written["units"]), ("done", 2))
        self.assertEqual([kept["unit"] for kept in written["kept_units"]], ["layers.1"])
        self.assertRegex(written["kept_units"][0]["reason"], "F16")
        self.assertIs(written["options"]["keep-unencodable"], True)


class Cast(SourceCase):
    """--cast-to-bf16: as if the model had been rounded to BF16 before."""

    def test_a_merge(self):
        for dtype in ("F16", "F32"):
            with self.subTest(dtype=dtype):
                tensors = TENSORS | {BAD: UNENCODABLE[dtype][0], "layers.0.norm.weight": floats(dtype, normal(2, 10)),
                                     "norm.weight": floats(dtype, normal(3, 20))}
                done = self.compressed(self.source_folder({"model.safetensors": tensors}), expected_output(cast(tensors)), [CAST])
                self.assertRegex(done.stderr, "(?i)note.*cast|cast.*BF16")
                self.assertEqual(self.recorded_tensor(BAD)["cast"], "BF16")
                self.assertEqual(self.recorded_tensor(BAD)["dtype"], dtype)
                self.assertNotIn("cast", self.recorded_tensor("embed.weight"))

    def test_a_model_of_another_type(self):
        """HiDream is F16, Wan 2.1 F32. The files equal those of the model that was cast before."""
        for dtype in ("F16", "F32"):
            for layout in ("transformers", "diffusers", "comfyui", "diffusers-single"):
                with self.subTest(dtype=dtype, layout=layout):
                    definition = self.define(layout=layout)
                    tensors = {name: floats(dtype, normal(seed, np.prod(shape)), shape)
                               for seed, (name, (_, shape, _)) in enumerate(TENSORS.items())}
                    self.compressed(self.source_folder({"model.safetensors": tensors}), expected_output(cast(tensors)), [CAST],
                                    definition=definition)
                    from_floats = support.read_tree(self.out)
                    self.assert_done(self.run_on(self.source_folder({"model.safetensors": cast(tensors)}), definition=definition))
                    before = support.read_tree(self.out)
                    for tree in (from_floats, before):
                        tree.pop("weightpress.json")
                    self.assertEqual(from_floats, before)

    def test_rounding(self):
        """To nearest, ties to even, into the next binade and into Inf; one NaN; subnormals as far as BF16 has them."""
        rounded = {0x3F800000: 0x3F80, 0x3F807FFF: 0x3F80, 0x3F808000: 0x3F80, 0x3F808001: 0x3F81, 0x3F818000: 0x3F82,
                   0x3F817FFF: 0x3F81, 0xBF808000: 0xBF80, 0xBF818000: 0xBF82, 0x3FFF8000: 0x4000, 0x3FFFFFFF: 0x4000,
                   0x00000000: 0x0000, 0x80000000: 0x8000, 0x00000001: 0x0000, 0x80000001: 0x8000, 0x00008000: 0x0000,
                   0x00008001: 0x0001, 0x00018000: 0x0002, 0x007FFFFF: 0x0080, 0x00800000: 0x0080, 0x80008000: 0x8000,
                   0x7F7FFFFF: 0x7F80, 0xFF7FFFFF: 0xFF80, 0x7F7F7FFF: 0x7F7F, 0x7F7F8000: 0x7F80, 0x7F800000: 0x7F80,
                   0xFF800000: 0xFF80, 0x7F800001: 0x7FC0, 0xFFC12345: 0x7FC0, 0x7FFFFFFF: 0x7FC0}
        bits, want = np.array(list(rounded), "<u4"), np.array(list(rounded.values()), "<u2")
        self.assertEqual(rounded_to_bf16(bits.view("<f4")).tolist(), want.tolist())  # the judge
        tensors = TENSORS | {"kept": ("F32", [29], bits.tobytes())}
        self.compressed(self.source_file(tensors), expected_output(TENSORS | {"kept": bf16(want)}), [CAST])

    def test_all_half_precision_numbers(self):
        """Every F16 word, subnormals and NaNs too, in a kept tensor; the finite ones in a unit."""
        every = np.arange(1 << 16, dtype=np.uint32).astype("<u2")
        finite = every[every >> 10 & 31 != 31]
        tensors = TENSORS | {"kept": ("F16", [256, 256], every.tobytes()),
                             "layers.0.norm.weight": ("F16", [256, 256], every.tobytes())}
        self.compressed(self.source_file(tensors), expected_output(cast(tensors)), [CAST])
        tensors = TENSORS | {BAD: ("F16", [len(finite)], finite.tobytes())}
        self.assert_done(self.run_on(self.source_file(tensors), CAST))
        weights = support.decode(support.read_unit(self.out, "layers.1"))[0]
        self.assertEqual(weights[300:].tobytes(), cast(tensors)[BAD][2])

    def test_what_is_not_cast(self):
        """Other types stay as they are: a cast of F64 or of scaled values is not asked for."""
        kept = {f"kept.{dtype}": filled(dtype, [4]) for dtype in ("F64", "F8_E4M3", "F8_E5M2", "I64", "I32", "U8", "BOOL", "U16")}
        tensors = TENSORS | kept | {"a": floats("F32", [1.5])}
        self.compressed(self.source_file(tensors), expected_output(cast(tensors)), [CAST])

    def test_keep_dtype(self):
        """Whole names as they are in the output, not parts of them."""
        definition = self.define(keep_dtype=[r"norm\.weight", r"layers\.\d+\.scale_shift_table", "table"],
                                 rename=[[r"\.gamma$", ".weight"]])
        tensors = TENSORS | {"norm.weight": floats("F32", normal(1, 20)), "layers.0.norm.weight": floats("F32", normal(2, 10)),
                             "layers.0.scale_shift_table": floats("F32", normal(3, 6)),
                             "layers.1.scale_shift_table": floats("F16", normal(3, 6)),
                             "table": floats("F32", normal(4, 6)), "table.x": floats("F32", normal(5, 6)),
                             "a.table": floats("F32", normal(6, 6))}
        kept = ["norm.weight", "layers.0.scale_shift_table", "layers.1.scale_shift_table", "table"]
        self.compressed(self.source_folder({"model.safetensors": tensors}), expected_output(cast(tensors, kept)), [CAST],
                        definition=definition)
        renamed = {"norm.gamma" if name == "norm.weight" else name: tensor for name, tensor in tensors.items()}
        self.compressed(self.source_file(renamed), expected_output(cast(tensors, kept)), [CAST], definition=definition)

    def test_keep_dtype_of_a_weight_of_a_unit(self):
        """What must not be cast cannot be compressed."""
        definition = self.define(keep_dtype=[r"layers\.1\.b\.weight"])
        source = self.source_file(TENSORS | {BAD: UNENCODABLE["F32"][0]})
        self.refused(source, IMPOSSIBLE, r"layers\.1\.b\.weight", r"\bF32\b", options=[CAST], definition=definition)

    def test_values_beyond_the_range(self):
        """F32 above BF16's largest number rounds to Inf: in a kept tensor it is counted, in a unit it cannot be stored."""
        values = normal(1, 200)
        values[5:9] = 3.38e38, -3.4028235e38, 1e-40, 1e-45  # in range, to -Inf, to a subnormal, to zero
        values[9:] = 0.5  # exact
        tensors = TENSORS | {"kept": floats("F32", values)}
        report = self.work / "report.json"
        done = self.compressed(self.source_file(tensors), expected_output(cast(tensors)), [CAST, "--report", report])
        self.assertRegex(done.stderr, "(?i)inf")
        counts = json.loads(report.read_text())["cast"]
        self.assertEqual({key: counts[key] for key in ("tensors", "overflowed", "flushed_to_zero")},
                         {"tensors": 1, "overflowed": 1, "flushed_to_zero": 1})
        self.assertTrue(5 <= counts["changed"] <= 9, counts)
        values[5] = 0.5
        done = self.run_on(self.source_file(TENSORS | {BAD: floats("F32", values, [2, 100])}), CAST)
        self.assert_fails(done, IMPOSSIBLE, r"layers\.1\.b\.weight", r"\b6\b", KEEP)

    def test_both_options(self):
        """What a cast helps is compressed, what it does not is kept, as it was."""
        tensors = TENSORS | {"layers.0.a.weight": floats("F16", normal(1, 300), [3, 100]), BAD: UNENCODABLE["F8_E4M3"][0]}
        self.compressed(self.source_file(tensors), expected_output(cast(tensors), kept_units=["layers.1"]), [CAST, KEEP])

    def test_nothing_to_cast(self):
        self.compressed(self.source_file(TENSORS), expected_output(TENSORS), [CAST])


class UntouchedWithoutTheOptions(SourceCase):
    def test_mixed_tensors_outside_the_weights_of_units(self):
        """Norms and biases in F32, as many models have them, are no fault and stay as they are."""
        tensors = TENSORS | {"norm.weight": floats("F32", normal(1, 20)), "layers.0.norm.weight": floats("F16", normal(2, 10)),
                             "layers.0.a.bias": floats("F32", [np.nan, np.inf, 1]), "rope.inv_freq": floats("F64", [1.0])}
        self.compressed(self.source_file(tensors), expected_output(tensors))

    def test_inf_and_nan_outside_units(self):
        tensors = TENSORS | {"norm.weight": bf16([0x7F80, 0xFF80, 0x7FC1, 0x7800] * 5),
                             "layers.1.norm.weight": bf16([0xFFFF] * 10)}
        self.compressed(self.source_file(tensors), expected_output(tensors))


if __name__ == "__main__":
    unittest.main()
