"""The definitions that come with the program: what they hold, how they are listed, named and detected."""
import json
import os
import pathlib
import re
import tempfile
import unittest

import support
import test_real_headers as real_headers
from support import compress, mentions, reference, run
from test_real_headers import ARCHITECTURES, HEADERS, header_case, load_definition

LAYOUTS = {"transformers", "diffusers", "diffusers-single", "comfyui"}
KEYS = {"name", "layout", "family", "detection", "strip_prefixes", "pattern_dict", "rules", "provenance", "description"}
# Tensor names alone do not lead to these: another definition has the same names and is the better guess.
BY_NAME_ONLY = {"chroma-base-diffusers-mingyi", "flux-kontext-dev-diffusers", "flux2-alt-comfyui"}
# There is no header of such a checkpoint: their names are made up below, from the patterns.
WITHOUT_HEADER = {"bert", "gemma-3", "sd35-large-diffusers", "zimage-pixel-space-comfyui"}

NAMES = sorted(path.stem for path in ARCHITECTURES.glob("*.json"))


def same_json(text, other):
    """Equal with the order of all keys."""
    return json.dumps(json.loads(text)) == json.dumps(json.loads(other))


def detect_in_python(names, definition, config):
    """Whether one of the definition's detection rules holds for these tensors."""
    taken = {name for name in real_headers.apply_key_rules(names, definition).values() if name is not None}
    return any(taken.issuperset(rule["all"]) and taken.isdisjoint(rule.get("none", []))
               and all(re.fullmatch(pattern, str(config.get(key))) for key, pattern in rule.get("config", {}).items())
               for rule in definition["detection"])


class Content(unittest.TestCase):
    """The files themselves, without the program."""

    def for_each(self, check):
        for name in NAMES:
            with self.subTest(definition=name):
                check(name, load_definition(name))

    def test_form(self):
        def check(name, definition):
            self.assertEqual(definition["name"], name)
            self.assertLessEqual(set(definition), KEYS)
            self.assertIn(definition["layout"], LAYOUTS)
            self.assertTrue(definition["family"])
            self.assertGreater(len(definition["provenance"]), 20)
            rules = definition["rules"]
            self.assertEqual(rules.get("threads_per_block", [512]), [512])
            self.assertEqual(rules.get("bytes_per_thread", 8), 8)
            self.assertRegex(rules.get("format_version", "0.5.0"), r"^0\.\d\.\d$")
            patterns = [*definition["pattern_dict"], *rules.get("drop", []), *rules.get("keep_dtype", []),
                        *(old for old, _ in rules.get("rename", []))]
            for pattern in patterns:
                re.compile(pattern.replace("++", "+"))
            for pattern, attributes in definition["pattern_dict"].items():
                self.assertEqual(len(attributes), len(set(attributes)), pattern)
        self.for_each(check)

    def test_rules_go_with_the_layout(self):
        def check(name, definition):
            rules, is_comfyui = definition["rules"], definition["layout"] == "comfyui"
            self.assertEqual(name.endswith("-comfyui"), is_comfyui)
            self.assertEqual(rules.get("keep_only_prefix"), real_headers.UNET if is_comfyui else None)
            self.assertEqual(real_headers.UNET in definition["strip_prefixes"], is_comfyui)
            if rules.get("tied_lm_head"):
                self.assertIn("lm_head", definition["pattern_dict"])
                self.assertEqual(definition["layout"], "transformers")
        self.for_each(check)

    def test_detection_is_there(self):
        def check(name, definition):
            self.assertEqual(not definition["detection"], name in BY_NAME_ONLY)
            for rule in definition["detection"]:
                self.assertLessEqual(set(rule), {"all", "none", "config"})
                self.assertTrue(rule["all"])
        self.for_each(check)

    def test_each_header_has_one_definition(self):
        """The detection rules, evaluated in Python."""
        detected = set()
        for header in sorted(path.stem for path in HEADERS.glob("*.json")):
            with self.subTest(header=header):
                case = header_case(header)
                config = json.loads(case.config)
                found = {name for name in NAMES if detect_in_python(case.spec, load_definition(name), config)}
                self.assertEqual(found, {case.definition})
                detected |= found
        self.assertEqual(set(NAMES) - detected, BY_NAME_ONLY | WITHOUT_HEADER)

    def test_every_definition_is_documented(self):
        text = (ARCHITECTURES / "README.md").read_text()
        for name in NAMES:
            self.assertIn(f"`{name}`", text)

    def test_every_header_is_documented(self):
        text = (HEADERS / "README.md").read_text()
        for path in HEADERS.glob("*.json"):
            self.assertIn(f"`{path.stem}`", text)


class ProgramCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        self.out = self.work / "out"

    def make(self, header, drop=None, config=None):
        """A model with a header's names, smaller than in test_real_headers: here only names count."""
        case = header_case(header)
        spec = {name: entry for name, entry in case.spec.items() if not (drop and re.search(drop, name))}
        model = self.work / header
        model.mkdir(exist_ok=True)
        reference.make(model / "model.safetensors", 1, real_headers.cut(spec, 4), 0.02)
        (model / "config.json").write_bytes(config or case.config)
        return model

    def detect(self, model):
        done = run("architectures", "detect", model, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def assert_refused(self, done, *patterns):
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertTrue(mentions(done.stderr, *patterns), done.stderr)
        self.assertFalse(self.out.exists())


class ListAndShow(ProgramCase):
    def test_list(self):
        done = run("architectures", "list")
        self.assertEqual(done.returncode, 0, done.stderr)
        first_words = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
        self.assertEqual([word for word in first_words if word in NAMES], NAMES)

    def test_list_as_json(self):
        done = run("architectures", "list", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        listed = {entry["name"]: entry for entry in json.loads(done.stdout)}
        self.assertEqual(sorted(listed), NAMES)
        for name, entry in listed.items():
            self.assertEqual(entry["layout"], load_definition(name)["layout"])

    def test_show(self):
        for name in NAMES:
            with self.subTest(definition=name):
                done = run("architectures", "show", name)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(same_json(done.stdout, (ARCHITECTURES / f"{name}.json").read_text()))

    def test_what_show_prints_can_be_given_back(self):
        model = self.make("phi-4")
        file = self.work / "copy.json"
        file.write_text(run("architectures", "show", "phi-4").stdout)
        for arch, out in (("phi-4", self.work / "by_name"), (file, self.work / "by_file")):
            done = compress(model, out, arch)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(support.read_tree(self.work / "by_name"), support.read_tree(self.work / "by_file"))

    def test_a_name_that_is_none(self):
        self.assert_refused(run("architectures", "show", "flux-schnel-comfyui"), "flux-schnel-comfyui", "flux-schnell-comfyui")
        model = self.make("phi-4")
        self.assert_refused(compress(model, self.out, "phi4"), "phi4", "phi-4")
        self.assert_refused(compress(model, self.out, "qwen3"), "qwen3-[48]b")
        self.assert_refused(compress(model, self.out, ""), ".")

    def test_names_and_files(self):
        """A value that ends in .json or holds a slash is a file, whatever it is called."""
        model = self.make("phi-4")
        for arch in ("./phi-4", "phi-4.json", self.work / "phi-4"):
            with self.subTest(arch=arch):
                self.assert_refused(run("compress", model, "-o", self.out, "--arch", arch, cwd=self.work), "phi-4")
        (self.work / "mine.json").write_text((ARCHITECTURES / "phi-4.json").read_text())
        done = run("compress", model, "-o", self.out, "--arch", "mine.json", cwd=self.work)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_usage(self):
        for arguments in ([], ["show"], ["detect"], ["lists"], ["list", "phi-4"], ["show", "phi-4", "bert"], ["detect", "/none"]):
            with self.subTest(arguments=arguments):
                done = run("architectures", *arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertTrue(done.stderr.strip())

    def test_a_definition_does_not_fit_every_model(self):
        """It is refused for what the model lacks, not for the file."""
        model = self.make("phi-4")
        for name in NAMES:
            if name != "phi-4":
                with self.subTest(definition=name):
                    self.assert_refused(compress(model, self.out, name), "pattern|lacks|missing|no module")


class OwnFolder(ProgramCase):
    """WEIGHTPRESS_ARCH_DIR."""

    def setUp(self):
        super().setUp()
        self.folder = self.work / "definitions"
        self.folder.mkdir()

    def write(self, name, file=None, **changes):
        definition = {**load_definition("phi-4"), "name": name, **changes}
        (self.folder / f"{file or name}.json").write_text(json.dumps(definition))
        return definition

    def program(self, *arguments):
        return run(*arguments, env={**os.environ, "WEIGHTPRESS_ARCH_DIR": str(self.folder)})

    def test_it_adds_definitions(self):
        mine = self.write("mine", detection=[])
        listed = json.loads(self.program("architectures", "list", "--json").stdout)
        self.assertEqual(sorted(entry["name"] for entry in listed), sorted([*NAMES, "mine"]))
        self.assertEqual(json.loads(self.program("architectures", "show", "mine").stdout), mine)
        done = self.program("compress", self.make("phi-4"), "-o", self.out, "--arch", "mine")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads((self.out / "weightpress.json").read_text())["definition"]["name"], "mine")
        self.assertEqual(run("architectures", "show", "mine").returncode, 2)

    def test_it_wins(self):
        head_only = self.write("phi-4", pattern_dict={"lm_head": []})
        model = self.make("phi-4")
        self.assertEqual(json.loads(self.program("architectures", "show", "phi-4").stdout), head_only)
        for options in (["--arch", "phi-4"], []):  # by name, and found
            with self.subTest(options=options):
                done = self.program("compress", model, "-o", self.out, "--force", *options)
                self.assertEqual(done.returncode, 0, done.stderr)
                files = {path.name for path in self.out.glob("*.safetensors")}
                self.assertEqual(files, {"lm_head.safetensors", "model.safetensors"})

    def test_its_definitions_are_detected(self):
        self.write("mine", detection=[{"all": ["one.weight"]}], pattern_dict={"one": []})
        model = support.write_model(self.work / "model", {"one.weight": support.bf16(support.words(1, 500))})
        done = self.program("architectures", "detect", model, "--json")
        self.assertEqual(json.loads(done.stdout)["definition"], "mine", done.stderr)
        self.assert_refused(run("architectures", "detect", model), "no definition")

    def test_a_file_that_is_wrong_is_named(self):
        (self.folder / "broken.json").write_text("{")
        self.assert_refused(self.program("compress", self.make("phi-4"), "-o", self.out, "--arch", "broken"), r"broken\.json")
        self.write("other", file="broken")
        self.assert_refused(self.program("compress", self.make("phi-4"), "-o", self.out, "--arch", "broken"), r"broken\.json")


class Detection(ProgramCase):
    def test_what_else_fits_is_named(self):
        """The choices that names cannot make. (The last column: whether the .safetensors files would be the same.)"""
        for header, chosen, other, same_bytes in (
                ("flux2-comfyui", "flux2-comfyui", "flux2-alt-comfyui", False),
                ("chroma-diffusers", "chroma-diffusers", "chroma-base-diffusers-mingyi", False),
                ("qwen3-4b", "qwen3-4b", "qwen3-8b", False),
                ("qwen3-8b", "qwen3-8b", "llama-3.3-70b", True),
                ("derived-flux-dev-diffusers", "flux-dev-diffusers", "flux-kontext-dev-diffusers", True)):
            with self.subTest(header=header):
                model, out = self.make(header), self.work / f"{header}-df11"
                found = self.detect(model)
                self.assertEqual(found["definition"], chosen)
                self.assertTrue(found["why"])
                also = {entry["name"]: entry for entry in found["also_fits"]}
                self.assertIn(other, also)
                self.assertIs(also[other]["same_bytes"], same_bytes)
                self.assertTrue(also[other]["difference"])
                done = run("compress", model, "-o", out)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(chosen, done.stderr)
                if not same_bytes:
                    self.assertIn(other, done.stderr)
                text = run("architectures", "detect", model)
                self.assertTrue(mentions(text.stdout, re.escape(chosen), re.escape(other)), text.stdout)

    def test_flux2_alt_is_never_chosen(self):
        """Its patterns fit many a model, and it would leave out units."""
        fitting = 0
        for header in ("flux2-comfyui", "extended-Flux2", "extended-Flux", "flux-schnell-comfyui", "longcat-image-comfyui",
                       "chroma-comfyui", "extended-Chroma", "chroma-radiance-comfyui"):
            found = self.detect(self.make(header))
            self.assertNotEqual(found["definition"], "flux2-alt-comfyui")
            fitting += "flux2-alt-comfyui" in {entry["name"] for entry in found["also_fits"]}
        self.assertGreater(fitting, 1)
        model = self.make("flux2-comfyui", drop="modulation")  # just its units
        self.assert_refused(run("architectures", "detect", model), "no definition")
        self.assert_refused(run("compress", model, "-o", self.out), "--arch")

    def test_config_decides_between_equal_names(self):
        for model_type, chosen in (("llama", "llama-3.3-70b"), ("mistral", "llama-3.3-70b"), ("qwen2", "qwen3-8b")):
            with self.subTest(model_type=model_type):
                config = json.dumps({"model_type": model_type}).encode()
                self.assertEqual(self.detect(self.make("llama-3.3-70b", config=config))["definition"], chosen)

    def test_models_without_a_header(self):
        """Made-up models of the definitions for which there is no header, whole files as in test_real_headers."""
        def block(module, attributes):
            return {f"{module}.{attribute}.weight": ["BF16", [16, 48]] for attribute in attributes}

        tested = set()
        for name in sorted(WITHOUT_HEADER):
            definition = load_definition(name)
            patterns = list(definition["pattern_dict"].items())
            spec = {"other.weight": ["BF16", [3, 5]], "other.bias": ["BF16", [7]]}
            if name == "sd35-large-diffusers":
                for index in range(38):
                    spec.update(block(f"transformer_blocks.{index}", patterns[index == 37][1]))
                spec["pos_embed.proj.weight"] = ["BF16", [4, 4, 2, 2]]
                spec["transformer_blocks.3.attn.norm_k.weight"] = ["BF16", [48]]
            else:
                for pattern, attributes in patterns:
                    for index in (0, 1, 11):
                        module = pattern.replace(r"\d+", str(index)).replace("\\", "")
                        spec.update(block(module, attributes) if attributes else {f"{module}.weight": ["BF16", [16, 48]]})
                        spec[f"{module}.some_norm.weight"] = ["BF16", [48]]
            if name == "gemma-3":
                spec["language_model.model.layers.0.pre_feedforward_layernorm.weight"] = ["BF16", [48]]
                spec["language_model.model.embed_tokens.weight"] = ["BF16", [48, 48]]
            with self.subTest(definition=name):
                case = real_headers.Case(f"made-up {name}", name, spec, real_headers.config_of(definition))
                self.assertGreaterEqual(real_headers.run_case(case)["units"], 3)
                tested.add(name)
        self.assertEqual(tested, WITHOUT_HEADER)

    def test_foreign_models(self):
        model = support.write_model(self.work / "model", {"a.b.weight": support.bf16(support.words(1, 500))})
        self.assert_refused(run("architectures", "detect", model), "no definition", re.escape("a.b.weight"), "--arch")
        self.assert_refused(run("architectures", "detect", model, "--json"), "no definition")
        self.assert_refused(run("compress", model, "-o", self.out), "no definition", "--arch")
        self.assert_refused(run("compress", model, "-o", self.out, "--arch", "auto"), "no definition")

    def test_a_file_alone(self):
        """Without config.json beside it: names are enough."""
        model = self.make("flux-schnell-comfyui")
        (model / "config.json").unlink()
        file = model / "model.safetensors"
        self.assertEqual(self.detect(file), self.detect(model))
        self.assertEqual(self.detect(file)["definition"], "flux-schnell-comfyui")


if __name__ == "__main__":
    unittest.main()
