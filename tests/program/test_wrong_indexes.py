"""An index that does not fit its files, or is none: huggingface/huggingface_hub#4728, Blaizzy/nativ#370 and others.

Standard library and numpy only.
"""
import shutil
import unittest

import support
from sources import CORRUPT, IMPOSSIBLE, SourceCase, compact, index_of, tensors_file
from support import bf16, words
from test_shards_and_index import TENSORS, WANT, in_shards, shard_name

INDEX_NAME = r"model\.safetensors\.index\.json"


class WrongIndexes(SourceCase):
    def test_index_and_files_that_do_not_fit(self):
        first, second = shard_name(1, 2), shard_name(2, 2)
        shards = in_shards(2)
        good = index_of(shards)["weight_map"]

        def without(name):
            return {key: value for key, value in good.items() if key != name}

        cases = {
            # huggingface/huggingface_hub#4728: mtp.fc.weight was listed and nowhere
            "lists a tensor that is nowhere": (good | {"mtp.fc.weight": second}, (CORRUPT, IMPOSSIBLE), r"mtp\.fc\.weight",
                                               second),
            # huggingface/huggingface_hub#4740
            "names the wrong shard": (good | {"norm.weight": first if good["norm.weight"] == second else second},
                                      (CORRUPT, IMPOSSIBLE), r"norm\.weight", first, second),
            # osaurus-ai/vmlx-swift#388: the index was written anew and forgot 31 tensors
            "forgets a tensor": (without("norm.weight"), (CORRUPT, IMPOSSIBLE), r"norm\.weight", r"model-0000\d-of-00002"),
            "of another model": ({f"model.{key}": value for key, value in good.items()}, (CORRUPT, IMPOSSIBLE), r"\.weight"),
            # Blaizzy/nativ#370: six models on the hub had the index of their unquantised originals
            "of another split": ({key: value.replace("of-00002", "of-00013") for key, value in good.items()}, IMPOSSIBLE,
                                 r"model-0000\d-of-00013", "missing|no such|not found"),
            "of one file": ({key: "pytorch_model.safetensors" for key in good}, IMPOSSIBLE, "pytorch_model",
                            "missing|no such|not found"),
        }
        for kind, (weight_map, code, *says) in cases.items():
            with self.subTest(kind=kind):
                source = self.source_folder(shards, index={"metadata": {}, "weight_map": weight_map})
                self.refused(source, code, INDEX_NAME, *says)

    def test_an_index_that_forgets_a_shard(self):
        """Its own shard is there and not listed. What is listed would do for the definition: layer 1 would just be gone."""
        shards = {shard_name(1, 2): {name: tensor for name, tensor in TENSORS.items() if "layers.1" not in name},
                  shard_name(2, 2): {name: tensor for name, tensor in TENSORS.items() if "layers.1" in name}}
        source = self.source_folder(shards, index=index_of({shard_name(1, 2): shards[shard_name(1, 2)]}))
        self.refused(source, (CORRUPT, IMPOSSIBLE), INDEX_NAME, "model-00002-of-00002")

    def test_an_index_of_nothing(self):
        self.refused(self.source_folder(in_shards(2), index={"metadata": {}, "weight_map": {}}), (CORRUPT, IMPOSSIBLE),
                     "index|no tensor")

    def test_a_tensor_that_two_listed_shards_hold(self):
        """Overlays. The index names one place, some loaders take the other. JustVugg/colibri#1479."""
        shards = in_shards(2) | {"overlay.safetensors": {"norm.weight": bf16(words(99, 20))}}
        index = index_of(shards)
        self.assertEqual(index["weight_map"]["norm.weight"], "overlay.safetensors")
        done = self.refused(self.source_folder(shards, index=index), IMPOSSIBLE, r"norm\.weight", r"overlay\.safetensors",
                            "model-0000")
        self.assertNotRegex(done.stderr, "add its index")  # it has one

    def test_wrong_types(self):
        for name, value in {"list": [], "string": "model.safetensors", "number": 1, "null": None, "list of pairs": [["a", "b"]],
                            "file that is a number": {"a": 1}, "file that is null": {"a": None},
                            "files": {"a": ["model.safetensors"]},
                            "object": {"a": {"file": "model.safetensors"}}, "file that is empty": {"a": ""},
                            "other suffix": {"a": "pytorch_model-00001-of-00002.bin"}, "config": {"a": "config.json"}}.items():
            with self.subTest(weight_map=name):
                source = self.source_folder({"model.safetensors": TENSORS}, index={"weight_map": value})
                self.refused(source, (CORRUPT, IMPOSSIBLE), INDEX_NAME)
        for name, content in {"no weight_map": b"{}", "misspelt": b'{"weightmap": {}}',
                              "inside metadata": b'{"metadata": {"weight_map": {}}}',
                              "only a number": b"1", "null": b"null"}.items():
            with self.subTest(index=name):
                source = self.source_folder({"model.safetensors": TENSORS}, index=content)
                self.refused(source, CORRUPT, INDEX_NAME)

    def test_names_that_lead_out_of_the_folder(self):
        """huggingface/transformers#47176, kekzl/imp#1612: a model of somebody else's would be read, and published."""
        outside = self.source_file(TENSORS, "private.safetensors")
        for name in (f"../{outside.parent.name}/private.safetensors", str(outside), "./model.safetensors",
                     "sub/model.safetensors",
                     "sub/../model.safetensors", "..", "../x.safetensors", "model.safetensors/", "/dev/zero",
                     "~/model.safetensors",
                     "model.safetensors\0.safetensors", "https://example.org/model.safetensors"):
            with self.subTest(name=name):
                source = self.source_folder({"model.safetensors": TENSORS}, index=index_of({name: TENSORS}))
                (source / "sub").mkdir()
                (source / "sub" / "model.safetensors").write_bytes(tensors_file(TENSORS))
                self.refused(source, (CORRUPT, IMPOSSIBLE), INDEX_NAME, "plain name|file name|folder")

    def test_backslashes(self):
        """An index that was made on Windows: there is no such file here, and nothing else may be taken for it."""
        source = self.source_folder({"model.safetensors": TENSORS}, index=index_of({"sub\\model.safetensors": TENSORS}))
        self.refused(source, (CORRUPT, IMPOSSIBLE), r"sub\\+(x5c)?model\.safetensors|sub.*model\.safetensors")

    def test_keys_that_stand_twice(self):
        shards = in_shards(2)
        text = compact(index_of(shards))
        name = "norm.weight"
        file = index_of(shards)["weight_map"][name]
        other = next(shard for shard in shards if shard != file)
        for kind, broken in {
                "one tensor, two files": text.replace(f'"{name}":"{file}"', f'"{name}":"{file}","{name}":"{other}"'),
                "one tensor, the same file": text.replace(f'"{name}":"{file}"', f'"{name}":"{file}","{name}":"{file}"'),
                "written with escapes": text.replace(f'"{name}":"{file}"', f'"{name}":"{file}","norm\\u002eweight":"{other}"'),
                "weight_map": text.replace('"weight_map":', '"weight_map":{},"weight_map":')}.items():
            with self.subTest(kind=kind):
                self.refused(self.source_folder(shards, index=broken.encode()), CORRUPT, INDEX_NAME,
                             "duplicate|twice|more than once")

    def test_two_indexes(self):
        shards = in_shards(2)
        source = self.source_folder(shards, index=index_of(shards))
        shutil.copy(source / "model.safetensors.index.json", source / "consolidated.safetensors.index.json")
        self.refused(source, IMPOSSIBLE, INDEX_NAME, r"consolidated\.safetensors\.index\.json")
        self.compressed(source / "model.safetensors.index.json", WANT)  # which is the way out

    def test_odd_names_in_an_index(self):
        """Quotes, control characters and terminal escapes in a message are shown as such."""
        for name in ("a\x1b[2Jb.safetensors", "a\r\nweightpress: done.safetensors", "\u202eb.safetensors", "a b\"'.safetensors"):
            with self.subTest(name=name):
                self.refused(self.source_folder({"model.safetensors": TENSORS}, index=index_of({name: TENSORS})), IMPOSSIBLE,
                             "missing|no such|not found|plain name")


if __name__ == "__main__":
    unittest.main()
