"""Models in several files: shards that are missing, left over or foreign. (An index that does not fit: test_wrong_indexes.py.)

The rule behind all of them: what is compressed is all of one model, or nothing is. Standard library and numpy only.
"""
import os
import re
import shutil
import unittest

import support
from sources import (IMPOSSIBLE, LFS_POINTER, SourceCase, compact, expected_output, floats, index_of,
                     model_tensors, read_output, tensors_file)
from support import bf16, words

TENSORS = model_tensors()
WANT = expected_output(TENSORS)
INDEX_NAME = r"model\.safetensors\.index\.json"


def shard_name(number, count, stem="model"):
    return f"{stem}-{number:05}-of-{count:05}.safetensors"


def in_shards(count, stem="model", tensors=None, first=1):
    """{file: tensors}, so that a unit's tensors lie in different files."""
    names = sorted(tensors or TENSORS)
    return {shard_name(first + number, count, stem): {name: (tensors or TENSORS)[name] for name in names[number::count]}
            for number in range(count)}


class SoundModels(SourceCase):
    def test_shards(self):
        """With and without an index; however they are named, as long as the numbers are complete."""
        plain = in_shards(3)
        files = {
            "numbered": plain,
            "one of one": in_shards(1),  # unslothai/unsloth-zoo#346
            "numbered from zero": {shard_name(number, 3): tensors for number, tensors in enumerate(plain.values())},
            "of a variant": in_shards(2, "model.bf16"),
            "of diffusers": in_shards(2, "diffusion_pytorch_model"),
            "consolidated": in_shards(2, "consolidated"),  # InfiniTensor/InfiniLM#467
            "not numbered": {"ema.safetensors": plain[shard_name(1, 3)], "text.safetensors": plain[shard_name(2, 3)],
                             "vision.safetensors": plain[shard_name(3, 3)]},
            "numbers without a count": dict(zip(("out-00000.safetensors", "out-00001.safetensors", "out-00002.safetensors"),
                                                plain.values())),
        }
        for kind, shards in files.items():
            for with_index in (False, True):
                with self.subTest(kind=kind, with_index=with_index):
                    index = index_of(shards) if with_index else None
                    self.compressed(self.source_folder(shards, index=index), WANT)

    def test_the_index_itself_as_source(self):
        shards = in_shards(2)
        source = self.source_folder(shards, index=index_of(shards))
        self.compressed(source / "model.safetensors.index.json", WANT)

    def test_what_else_an_index_may_hold(self):
        shards = in_shards(2)
        for metadata in ({"total_size": -1}, {"total_size": 1e300}, {"total_size": "many"}, {}, None, [], [[[]]],
                         {"total_parameters": 7, "nested": {"weight_map": {"a": 1}}}):
            with self.subTest(metadata=metadata):
                self.compressed(self.source_folder(shards, index=index_of(shards) | {"metadata": metadata}), WANT)

    def test_files_that_the_index_does_not_name_do_not_count(self):
        """A second build of the model in the folder. Blaizzy/mlx-vlm#1464, vllm-project/vllm#40765, huggingface/lerobot#826."""
        other = {name: (dtype, shape, bytes(len(content))) for name, (dtype, shape, content) in TENSORS.items()}
        renamed = {f"model.{name}": tensor for name, tensor in other.items()}
        shards = in_shards(2)
        for kind, (name, content) in {
                "the whole model": ("model.safetensors", other), "Mistral's own format": ("consolidated.safetensors", renamed),
                "an adapter": ("adapter_model.safetensors", {"lora_A.weight": TENSORS["norm.weight"]}),
                "a pointer": ("model-00001-of-00009.safetensors", LFS_POINTER),
                "shards of another split": (shard_name(1, 3), other)}.items():
            with self.subTest(kind=kind):
                self.compressed(self.source_folder(shards | {name: content}, index=index_of(shards)), WANT)

    def test_files_of_the_system_do_not_count(self):
        """What macOS, editors and downloaders leave beside them. SceneWorks/SceneWorks#1333, lmstudio-ai/mlx-engine#79."""
        source = self.source_folder({"model.safetensors": TENSORS, "._model.safetensors": b"\0\5\x16\7\0\2\0\0",
                                     "._config.json": b"\0",
                                     "._model.safetensors.index.json": b"\0\5\x16\7", ".model.safetensors.swp": b"b0VIM",
                                     "README.md": b"#", ".gitattributes": b"*.safetensors filter=lfs", "tokenizer.json": b"{}",
                                     "model.safetensors.sha256": b"0", "model.safetensors~": b"x", "model.safetensors.bak": b"x"})
        (source / ".cache" / "huggingface").mkdir(parents=True)
        (source / "onnx").mkdir()
        (source / "onnx" / "model.safetensors").write_bytes(b"x")
        self.compressed(source, WANT)

    def test_cache_of_the_hub(self):
        """Snapshots are links to blobs, and the snapshot may be reached through a link."""
        for with_index in (False, True):
            with self.subTest(with_index=with_index):
                hub = self.place()
                shards = in_shards(2)
                snapshot = hub / "snapshots" / "0123abcd"
                snapshot.mkdir(parents=True)
                (hub / "blobs").mkdir()
                files = {name: tensors_file(tensors) for name, tensors in shards.items()} | {"config.json": support.CONFIG}
                if with_index:
                    files["model.safetensors.index.json"] = compact(index_of(shards)).encode()
                for number, (name, content) in enumerate(files.items()):
                    (hub / "blobs" / f"{number:064x}").write_bytes(content)
                    (snapshot / name).symlink_to(f"../../blobs/{number:064x}")
                (hub / "latest").symlink_to(snapshot)
                self.compressed(snapshot, WANT)
                self.compressed(hub / "latest", WANT)
                self.assertEqual((self.out / "config.json").read_bytes()[:20], support.CONFIG[:20])
                # A blob has no suffix, and no config.json beside it.
                self.refused(hub / "blobs" / f"{0:064x}", IMPOSSIBLE, r"\.safetensors", folder=hub)

    def test_a_link_to_a_file_has_the_config_beside_the_link(self):
        blob = self.source_file(TENSORS, "blob")
        (blob.parent / "config.json").write_bytes(b'{"model_type": "wrong"}')
        folder = self.place()
        (folder / "model.safetensors").symlink_to(blob)
        (folder / "config.json").write_bytes(b'{"model_type": "right"}')
        self.compressed(folder / "model.safetensors", WANT)
        self.assertIn("right", (self.out / "config.json").read_text())


class MissingShards(SourceCase):
    def test_with_an_index(self):
        """sgl-project/sglang#32279: without this a part of the model is silently not there."""
        for missing in range(3):
            with self.subTest(missing=missing):
                shards = in_shards(3)
                index = index_of(shards)
                name = list(shards)[missing]
                del shards[name]
                self.refused(self.source_folder(shards, index=index), IMPOSSIBLE, name, "missing|no such|not found")
                self.refused(self.source_folder(shards, index=index) / "model.safetensors.index.json", IMPOSSIBLE, name)

    def test_without_an_index_the_numbers_tell(self):
        for stem in ("model", "model.fp16", "diffusion_pytorch_model"):
            for missing in range(3):
                with self.subTest(stem=stem, missing=missing):
                    shards = in_shards(3, stem)
                    name = list(shards)[missing]
                    # The rest would do: no unit lacks a tensor. So nothing but the name tells.
                    shards = dict(zip([other for other in shards if other != name], in_shards(2).values()))
                    self.refused(self.source_folder(shards), IMPOSSIBLE, name.replace(".", r"\."), "missing|no such|not found")

    def test_a_variants_index_is_an_index(self):
        """model.safetensors.index.fp16.json, as diffusers and transformers name it."""
        shards = in_shards(2, "model.fp16")
        source = self.source_folder(shards)
        (source / "model.safetensors.index.fp16.json").write_text(compact(index_of(shards)))
        self.compressed(source, WANT)
        name = shard_name(2, 2, "model.fp16")
        (source / name).unlink()
        self.refused(source, IMPOSSIBLE, name)

    def test_one_shard_given_as_the_source(self):
        """Part of a model by its name, even if the definition finds all it needs in it."""
        for others in (False, True):
            with self.subTest(others=others):
                shards = {shard_name(1, 3): TENSORS, shard_name(2, 3): {"x.weight": bf16(words(9, 5))},
                          shard_name(3, 3): {"y.weight": bf16(words(9, 5))}}
                if not others:
                    shards = {shard_name(1, 3): TENSORS}
                source = self.source_folder(shards)
                self.refused(source / shard_name(1, 3), IMPOSSIBLE, shard_name(1, 3), "folder|shard")

    def test_a_shard_that_is_a_dangling_link(self):
        """VoiceStudio and others: all blobs were there, the links pointed elsewhere. debpalash/VoiceStudio#1056."""
        shards = in_shards(2)
        for with_index in (False, True):
            with self.subTest(with_index=with_index):
                source = self.source_folder(shards, index=index_of(shards) if with_index else None)
                (source / shard_name(2, 2)).unlink()
                (source / shard_name(2, 2)).symlink_to("../../blobs/0123")
                self.refused(source, IMPOSSIBLE, shard_name(2, 2), "missing|no such|not found|link")

    def test_upper_case_suffix(self):
        """From file systems that do not tell cases apart. Such a file must not be passed over in silence."""
        self.refused(self.source_folder({"MODEL.SAFETENSORS": tensors_file(TENSORS)}), IMPOSSIBLE, r"\.safetensors")
        shards = in_shards(2)
        upper = {name.replace("safetensors", "SAFETENSORS") if "model-00002" in name else name: tensors
                 for name, tensors in shards.items()}
        self.refused(self.source_folder(upper), IMPOSSIBLE, "model-00002-of-00002")


class FoldersThatAreNoModel(SourceCase):
    """One level too high or too low; the message says where the model is, or what is there instead."""

    def test_a_pipeline(self):
        """A folder of diffusers: the transformer is below it, and what lies in it may be of several models."""
        for with_files in (False, True):
            with self.subTest(with_files=with_files):
                source = self.source_folder({"flux1-dev.safetensors": TENSORS, "ae.safetensors": {"decoder.x": bf16(words(1, 5))}}
                                            if with_files else {}, config=None)
                (source / "model_index.json").write_text('{"_class_name": "FluxPipeline", "transformer": ["diffusers", "x"]}')
                (source / "transformer").mkdir()
                (source / "transformer" / "diffusion_pytorch_model.safetensors").write_bytes(tensors_file(TENSORS))
                self.refused(source, IMPOSSIBLE, "transformer", definition=self.define(layout="diffusers"))

    def test_a_repository_in_the_cache_of_the_hub(self):
        source = self.place("models--org--name")
        (source / "refs").mkdir()
        (source / "snapshots" / "0123").mkdir(parents=True)
        (source / "snapshots" / "0123" / "model.safetensors").write_bytes(tensors_file(TENSORS))
        self.refused(source, IMPOSSIBLE, "no .safetensors file", "snapshots")

    def test_a_model_in_another_format(self):
        for name in ("pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.ckpt", "consolidated.00.pth", "model.gguf"):
            with self.subTest(name=name):
                self.refused(self.source_folder({name: b"PK\x03\x04"}), IMPOSSIBLE, "no .safetensors file",
                             "convert|" + re.escape(name))
                self.refused(self.source_folder({name: b"PK\x03\x04"}) / name, IMPOSSIBLE, re.escape(name), r"safetensors")


class MixedFolders(SourceCase):
    """No index, and files of more than one model."""

    def test_the_same_tensor_twice(self):
        other = {"norm.weight": bf16(words(99, 20)), "more.weight": bf16(words(98, 20))}
        same = {"norm.weight": TENSORS["norm.weight"]}
        cases = {
            "another value": ("model.safetensors", "more.safetensors", other),
            "the same bytes": ("model.safetensors", "more.safetensors", same),
            "a copy": ("model.safetensors", "model (1).safetensors", TENSORS),  # a browser's second download
            "fp16 beside it": ("model.safetensors", "model.fp16.safetensors",
                               {name: floats("F16", [0.5] * 4) for name in TENSORS}),
            "EMA beside it": ("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.non_ema.safetensors", TENSORS),
            "merged and shards": ("model.safetensors", shard_name(1, 1), TENSORS),
        }
        for kind, (first, second, tensors) in cases.items():
            with self.subTest(kind=kind):
                source = self.source_folder({first: TENSORS, second: tensors})
                self.refused(source, IMPOSSIBLE, first.replace(".", r"\."), re.escape(second), r"'?[a-z.0-9]+\.weight")

    def test_hard_links_and_links_are_files_too(self):
        source = self.source_folder({"model.safetensors": TENSORS})
        os.link(source / "model.safetensors", source / "copy.safetensors")
        self.refused(source, IMPOSSIBLE, r"copy\.safetensors", r"model\.safetensors")
        (source / "copy.safetensors").unlink()
        (source / "copy.safetensors").symlink_to("model.safetensors")
        self.refused(source, IMPOSSIBLE, r"copy\.safetensors", r"model\.safetensors")

    def test_numbered_shards_and_a_file_of_another_build(self):
        """Mistral ships consolidated.safetensors beside the shards: the model again, so no tensor's name is there twice."""
        renamed = {f"model.{name}": tensor for name, tensor in TENSORS.items()}
        for name in ("consolidated.safetensors", "model.safetensors"):
            with self.subTest(name=name):
                self.refused(self.source_folder(in_shards(2) | {name: renamed}), IMPOSSIBLE, name.replace(".", r"\."))

    def test_two_splits(self):
        """A run that was repeated with another shard size."""
        two, three = in_shards(2), in_shards(3)
        parts = {shard_name(1, 2): two[shard_name(1, 2)],
                 shard_name(3, 3): {name: tensor for name, tensor in three[shard_name(3, 3)].items()
                                    if name not in two[shard_name(1, 2)]}}
        self.refused(self.source_folder(parts), IMPOSSIBLE, "model-0000")

    def test_what_is_compressed_already(self):
        """LeanModels/DFloat11#33: of any layout, and under a prefix."""
        for layout in ("transformers", "diffusers", "diffusers-single", "comfyui"):
            definition = self.define(layout=layout)
            self.assert_done(self.run_on(self.source_folder({"model.safetensors": TENSORS}), definition=definition))
            compressed = self.out
            file = next(path for path in sorted(compressed.glob("*.safetensors")) if b"sign_mantissa" in path.read_bytes())
            tensors = {f"model.diffusion_model.{name}": tensor for name, tensor in read_output(compressed).items()}
            for source in (compressed, file, self.source_file(tensors)):
                for other in (definition, self.define(layout="comfyui", strip_prefixes=["model.diffusion_model."]), "auto"):
                    with self.subTest(layout=layout, source=source.name):
                        self.refused(source, IMPOSSIBLE, "already", "df11", definition=other)

    def test_df11_among_them(self):
        """A compressed shard among plain ones."""
        self.assert_done(self.run_on(self.source_folder({"model.safetensors": TENSORS})))
        compressed = self.out
        for name in ("embed.safetensors", "layers_0.safetensors"):
            with self.subTest(name=name):
                source = self.source_folder({"rest.safetensors": {k: v for k, v in TENSORS.items() if "norm" not in k}})
                shutil.copy(compressed / name, source / name)
                self.refused(source, IMPOSSIBLE, re.escape(name), "already", "df11")


if __name__ == "__main__":
    unittest.main()
