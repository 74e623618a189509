"""lm_head and the embedding: one matrix or two, stored once or twice, and who says so.

The rule: they are tied if config.json says tie_word_embeddings (at the top or in text_config), and where it does not say, as
transformers' configuration classes default. Standard library and numpy only.
"""
import json
import unittest

import numpy as np

import support
from sources import CORRUPT, IMPOSSIBLE, SourceCase, compact, expected_output, floats, rounded_to_bf16
from support import bf16, words

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
LAYERS = {r"model\.layers\.\d+": ["a", "b"]}
WITH_HEADS = {"lm_head": [], r"model\.embed_tokens": [], **LAYERS}
EMBEDDED = bf16(words(1, 600), [30, 20])
BODY = {EMBEDDING: EMBEDDED, "model.layers.0.a.weight": bf16(words(2, 300)), "model.layers.0.b.weight": bf16(words(3, 200)),
        "model.norm.weight": bf16(words(4, 20))}
EQUAL = BODY | {HEAD: EMBEDDED}
IN_F32 = (np.frombuffer(EMBEDDED[2], "<u2").astype(np.uint32) << 16).view(np.float32)

# What config.json says, and whether the two are then tied.
CONFIGS = {
    "yes": ({"model_type": "llama", "tie_word_embeddings": True}, True),
    "no": ({"model_type": "gemma2", "tie_word_embeddings": False}, False),
    "in text_config": ({"model_type": "mistral3", "text_config": {"model_type": "mistral", "tie_word_embeddings": True}}, True),
    "no, in text_config": ({"model_type": "gemma3", "text_config": {"tie_word_embeddings": False}}, False),
    "only in vision_config, so not said": ({"model_type": "qwen2_vl", "vision_config": {"tie_word_embeddings": True}}, False),
    # huggingface/transformers#43429 and others: the key is missing
    "llama": ({"model_type": "llama"}, False),
    "mistral": ({"model_type": "mistral"}, False),
    "phi3": ({"model_type": "phi3"}, False),
    "qwen2": ({"model_type": "qwen2"}, False),
    "qwen2_moe": ({"model_type": "qwen2_moe"}, False),
    "qwen3": ({"model_type": "qwen3"}, False),
    "qwen3_next": ({"model_type": "qwen3_next"}, False),
    "gemma": ({"model_type": "gemma"}, True),
    "gemma3_text": ({"model_type": "gemma3_text"}, True),
    "cohere": ({"model_type": "cohere"}, True),
    "phi, which is not phi3": ({"model_type": "phi"}, True),
    "llama4, which is not llama": ({"model_type": "llama4"}, True),
    "mixtral": ({"model_type": "mixtral"}, True),
    "no model_type": ({"hidden_size": 20}, True),
    "nothing at all": ({}, True),
}


class TiesCase(SourceCase):
    def setUp(self):
        super().setUp()
        self.plain = self.define(LAYERS)
        self.with_heads = self.define(WITH_HEADS, tied_lm_head=True)

    def folder(self, tensors, config):
        return self.source_folder({"model.safetensors": tensors}, config=config)


class StoredTwice(TiesCase):
    """Both in the file, outside units."""

    def test_an_equal_copy_goes_if_the_config_ties_them(self):
        for kind, (config, tied) in CONFIGS.items():
            with self.subTest(config=kind):
                self.compressed(self.folder(EQUAL, config), expected_output(BODY if tied else EQUAL, LAYERS),
                                definition=self.plain)
                self.assertEqual(self.recorded_tensor(HEAD).get("tied_to"), EMBEDDING if tied else None)
                self.assertEqual(self.record()["tied_units"], [])

    def test_what_is_not_equal_stays(self):
        """vllm-project/vllm#6758, turboderp-org/exllamav2#408: tuned apart, though config.json still says tied."""
        off_by_one = bytearray(EMBEDDED[2])
        off_by_one[-2] ^= 1
        zeros = np.frombuffer(EMBEDDED[2], "<u2").copy()
        zeros[:2] = 0x0000, 0x8000
        kinds = {
            "another matrix": bf16(words(9, 600), [30, 20]),
            "one bit": ("BF16", [30, 20], bytes(off_by_one)),
            "a row less": bf16(np.frombuffer(EMBEDDED[2], "<u2")[:580], [29, 20]),
            "padded vocabulary": ("BF16", [32, 20], EMBEDDED[2] + bytes(80)),
            "the same bytes in another shape": ("BF16", [20, 30], EMBEDDED[2]),
            "the same bytes of another type": ("F16", [30, 20], EMBEDDED[2]),
            "the same values in F32": floats("F32", IN_F32, [30, 20]),
            "empty": ("BF16", [0, 20], b""),
        }
        for kind, head in kinds.items():
            with self.subTest(kind=kind):
                tensors = BODY | {HEAD: head}
                self.compressed(self.folder(tensors, {"model_type": "gemma", "tie_word_embeddings": True}),
                                expected_output(tensors, LAYERS),
                                definition=self.plain)
                self.assertNotIn("tied_to", self.recorded_tensor(HEAD))

    def test_equal_after_a_cast(self):
        """The same values in BF16 and F32: with --cast-to-bf16 the output holds two equal matrices, of which one goes."""
        self.assertEqual(rounded_to_bf16(IN_F32).tobytes(), EMBEDDED[2])
        self.compressed(self.folder(BODY | {HEAD: floats("F32", IN_F32, [30, 20])}, {"tie_word_embeddings": True}),
                        expected_output(BODY, LAYERS), ["--cast-to-bf16"], definition=self.plain)

    def test_in_different_shards(self):
        source = self.source_folder({"model-00001-of-00002.safetensors": BODY,
                                     "model-00002-of-00002.safetensors": {HEAD: EMBEDDED}},
                                    config={"tie_word_embeddings": True})
        self.compressed(source, expected_output(BODY, LAYERS), definition=self.plain)

    def test_a_bias_of_the_head_stays(self):
        tensors = EQUAL | {"lm_head.bias": bf16(words(5, 30))}
        want = {name: tensor for name, tensor in tensors.items() if name != HEAD}
        self.compressed(self.folder(tensors, {"tie_word_embeddings": True}), expected_output(want, LAYERS), definition=self.plain)

    def test_only_these_two_names(self):
        """Other equal tensors, and heads of other models, are no ties of this rule."""
        tensors = BODY | {"model.lm_head.weight": EMBEDDED, "language_model.lm_head.weight": EMBEDDED,
                          "embed_out.weight": EMBEDDED,
                          "model.copy.weight": BODY["model.norm.weight"]}
        self.compressed(self.folder(tensors, {"tie_word_embeddings": True}), expected_output(tensors, LAYERS),
                        definition=self.plain)

    def test_without_a_config_nothing_is_known(self):
        """A file alone: nothing says that they are tied, so nothing is left out."""
        self.compressed(self.source_file(EQUAL), expected_output(EQUAL, LAYERS), definition=self.plain)

    def test_the_report_tells(self):
        report = self.work / "report.json"
        done = self.run_on(self.folder(EQUAL, {"tie_word_embeddings": True}), "--report", report, definition=self.plain)
        self.assert_done(done)
        written = json.loads(report.read_text())
        self.assertEqual([dropped["tensor"] for dropped in written["dropped"]], [HEAD])
        self.assertRegex(written["dropped"][0]["reason"], r"tie|equal")


class HeadsThatAreUnits(TiesCase):
    def test_both_are_compressed_where_the_definition_says_so(self):
        for config in ({"tie_word_embeddings": True}, {"tie_word_embeddings": False}):
            with self.subTest(config=config):
                self.compressed(self.folder(EQUAL, config), expected_output(EQUAL, WITH_HEADS), definition=self.with_heads)

    def test_one_a_unit_and_one_not(self):
        """Only what would stand twice among the kept tensors is left out."""
        for patterns in ({"lm_head": [], **LAYERS}, {r"model\.embed_tokens": [], **LAYERS}):
            with self.subTest(patterns=list(patterns)):
                self.compressed(self.folder(EQUAL, {"tie_word_embeddings": True}), expected_output(EQUAL, patterns),
                                definition=self.define(patterns))

    def test_an_absent_head_is_made_from_the_embedding(self):
        """google-deepmind/gemma#8, meta-llama/llama-models#172: save_pretrained leaves it out."""
        for kind, (config, tied) in CONFIGS.items():
            with self.subTest(config=kind):
                source = self.folder(BODY, config)
                if tied:
                    self.compressed(source, expected_output(BODY, WITH_HEADS, made_from={HEAD: EMBEDDING}),
                                    definition=self.with_heads)
                    self.assertEqual(self.record()["tied_units"], [{"unit": "lm_head", "made_from": EMBEDDING}])
                else:
                    # QwenLM/Qwen3-VL-Embedding#89: the config says untied, and the head is nowhere
                    self.refused(source, IMPOSSIBLE, "lm_head", "tie_word_embeddings|missing|no module",
                                 definition=self.with_heads)

    def test_from_an_embedding_that_is_no_unit_itself(self):
        patterns = {"lm_head": [], **LAYERS}
        self.compressed(self.folder(BODY, {"tie_word_embeddings": True}),
                        expected_output(BODY, patterns, made_from={HEAD: EMBEDDING}),
                        definition=self.define(patterns, tied_lm_head=True))

    def test_from_an_embedding_that_is_cast(self):
        source = self.folder(BODY | {EMBEDDING: floats("F32", IN_F32, [30, 20])}, {"tie_word_embeddings": True})
        self.compressed(source, expected_output(BODY, WITH_HEADS, made_from={HEAD: EMBEDDING}), ["--cast-to-bf16"],
                        definition=self.with_heads)
        done = self.refused(source, IMPOSSIBLE, r"\bF32\b", "--cast-to-bf16", definition=self.with_heads)
        self.assertRegex(done.stderr, "lm_head|embed_tokens")

    def test_kept_together_where_it_cannot_be_encoded(self):
        """Inf in the embedding: neither unit is made, and the head, which is a copy, is not written at all."""
        array = np.frombuffer(EMBEDDED[2], "<u2").copy()
        array[3] = 0x7F80
        tensors = BODY | {EMBEDDING: bf16(array, [30, 20])}
        self.compressed(self.folder(tensors, {"tie_word_embeddings": True}),
                        expected_output(tensors, WITH_HEADS, kept_units=["lm_head", "model.embed_tokens"]),
                        ["--keep-unencodable"],
                        definition=self.with_heads)

    def test_without_the_rule_it_is_missing(self):
        source = self.folder(BODY, {"tie_word_embeddings": True})
        self.refused(source, IMPOSSIBLE, "lm_head", definition=self.define(WITH_HEADS))

    def test_without_the_embedding_there_is_nothing_to_make_it_from(self):
        tensors = {name: tensor for name, tensor in BODY.items() if name != EMBEDDING}
        self.refused(self.folder(tensors, {"tie_word_embeddings": True}), IMPOSSIBLE, "lm_head|embed_tokens",
                     definition=self.with_heads)

    def test_without_a_config_it_is_missing(self):
        self.refused(self.source_file(BODY), IMPOSSIBLE, "lm_head", definition=self.with_heads)

    def test_a_definition_that_leaves_both_alone(self):
        """The head is absent and nobody needs it: as qwen3-4b."""
        self.compressed(self.folder(BODY, {"tie_word_embeddings": False}), expected_output(BODY, LAYERS), definition=self.plain)


class OddConfigs(TiesCase):
    def test_values_that_are_not_a_boolean(self):
        """Text and numbers are a mistake, and dropping a tensor by mistake is worse than keeping it. null: not said."""
        for value in ("true", 1, [], {}):
            with self.subTest(value=value):
                source = self.folder(EQUAL, {"model_type": "llama", "tie_word_embeddings": value})
                done = self.run_on(source, definition=self.plain)
                self.assertIn(done.returncode, (0, CORRUPT, IMPOSSIBLE), done.stderr)
                if done.returncode == 0:
                    self.assertIn(HEAD, support.reference.load_all(self.out))
        source = self.folder(EQUAL, {"model_type": "llama", "tie_word_embeddings": None})
        self.compressed(source, expected_output(EQUAL, LAYERS), definition=self.plain)

    def test_the_word_elsewhere(self):
        """In a string, in a comment field, in another object."""
        for config in ({"model_type": "llama", "note": "tie_word_embeddings: true"},
                       {"model_type": "llama", "x": {"tie_word_embeddings": True}},
                       {"model_type": "llama", "Tie_Word_Embeddings": True}, {"model_type": "llama", "text_config": [True]},
                       {"model_type": "llama", "text_config": {"inner": {"tie_word_embeddings": True}}}):
            with self.subTest(config=config):
                self.compressed(self.folder(EQUAL, config), expected_output(EQUAL, LAYERS), definition=self.plain)

    def test_escapes_and_python_words(self):
        text = compact({"model_type": "llama", "tie_word_embeddings": True, "x": 1})
        for changed in (text.replace("tie_", "t\\u0069e_"), text.replace('"x":1', '"x":NaN,"y":-Infinity'),
                        text.replace(",", "\r\n\t,")):
            with self.subTest(config=changed):
                self.compressed(self.folder(EQUAL, changed.encode()), expected_output(BODY, LAYERS), definition=self.plain)

    def test_the_top_level_wins(self):
        config = {"model_type": "gemma3", "tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}}
        self.compressed(self.folder(EQUAL, config), expected_output(EQUAL, LAYERS), definition=self.plain)


if __name__ == "__main__":
    unittest.main()
