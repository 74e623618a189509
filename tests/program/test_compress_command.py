"""`weightpress compress` as a user meets it: results, exit codes, messages, and what is left after a failure.

Standard library and numpy only.
"""
import json
import os
import pathlib
import re
import resource
import tempfile
import unittest

import support
from support import bf16, compress, mentions, read_tree, reference, run, words

PATTERNS = {r"embed": [], r"layers\.\d+": ["a", "b"]}
CONTROL_CHARACTERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def small_tensors():
    """Two units with siblings, and kept tensors of odd shapes."""
    return {
        "embed.weight": bf16(words(1, 6000), [60, 100]),
        "layers.0.a.weight": bf16(words(2, 3000), [30, 100]),
        "layers.0.a.bias": bf16(words(3, 30)),
        "layers.0.b.weight": bf16(words(4, 2000), [20, 100]),
        "layers.0.norm.weight": bf16(words(5, 100)),
        "norm.weight": ("F32", [25], words(6, 50).tobytes()),
        "empty": ("F32", [0, 3], b""),
        "scalar": ("I64", [], (7).to_bytes(8, "little")),
    }


class CompressCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        self.definition = support.write_definition(self.work / "arch.json", PATTERNS)
        self.out = self.work / "out"

    def model(self, changes=None, name="model", **options):
        """The small model with some tensors changed (None: left out)."""
        tensors = {**small_tensors(), **(changes or {})}
        return support.write_model(self.work / name, {key: value for key, value in tensors.items() if value}, **options)

    def assert_done(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)

    def assert_fails(self, done, code, *patterns, out_absent=True):
        """One sentence on stderr that matches the patterns, nothing left where the result would be."""
        self.assertIn(done.returncode, code if isinstance(code, tuple) else (code,), done.stderr)
        self.assertTrue(done.stderr.strip(), "no message")
        for pattern in patterns:
            self.assertTrue(mentions(done.stderr, pattern), f"{pattern!r} is not in: {done.stderr}")
        self.assertIsNone(CONTROL_CHARACTERS.search(done.stderr), repr(done.stderr))
        self.assertFalse(mentions(done.stderr, "terminate called|std::|what\\(\\)"), done.stderr)
        if out_absent:
            self.assertFalse(self.out.exists())


class Results(CompressCase):
    def test_everything_equals_the_slow_model(self):
        model = self.model()
        self.assert_done(compress(model, self.out, self.definition))
        self.assertEqual(reference.check(str(model), str(self.out)), 0)
        self.assertFalse(pathlib.Path(f"{self.out}.partial").exists())

    def test_siblings_lie_in_the_units_shard(self):
        self.assert_done(compress(self.model(), self.out, self.definition))
        shard, metadata = reference.read_safetensors(self.out / "layers_0.safetensors")
        self.assertIsNone(metadata)
        self.assertEqual(list(shard), ["layers.0.split_positions", "layers.0.a.bias", "layers.0.norm.weight",
                                       "layers.0.encoded_exponent", "layers.0.gaps", "layers.0.luts",
                                       "layers.0.output_positions", "layers.0.sign_mantissa"])
        for name in ("layers.0.a.bias", "layers.0.norm.weight"):
            self.assertEqual(bytes(shard[name][2]), small_tensors()[name][2])

    def test_kept_tensors(self):
        self.assert_done(compress(self.model(), self.out, self.definition))
        kept, metadata = reference.read_safetensors(self.out / "model.safetensors")
        self.assertEqual(metadata, {"format": "pt"})
        self.assertEqual({name: (dtype, shape, bytes(data)) for name, (dtype, shape, data) in kept.items()},
                         {name: small_tensors()[name] for name in ("norm.weight", "empty", "scalar")})

    def test_files_are_written_as_the_safetensors_package_writes_them(self):
        self.assert_done(compress(self.model(), self.out, self.definition))
        for path in self.out.glob("*.safetensors"):
            with self.subTest(file=path.name):
                tensors, metadata = reference.read_safetensors(path)
                reference.write_safetensors(self.work / "expected", tensors, metadata)
                self.assertEqual(path.read_bytes(), (self.work / "expected").read_bytes())

    def test_config_json_keeps_the_sources_spelling(self):
        configs = {
            "plain": support.CONFIG,
            "one_line": b'{"model_type":"bert","eps":1e-05,"text":"a } in a string"}',
            "empty": b"{}",
            "existing": b'{"dfloat11_config": {"version": "0.1", "pattern_dict": {"x": []}}, "model_type": "bert"}',
            "nested": b'{\n\t"model_type": "bert",\n\t"text_config": {"dfloat11_config": 1, "n": 1.50}\n}\n',
            "unicode": '{"name": "Gr\u00fc\u00dfe \\u00fc"}\n'.encode(),
        }
        for name, config in configs.items():
            with self.subTest(config=name):
                out = self.work / f"out_{name}"
                self.assert_done(compress(self.model(name=name, config=config), out, self.definition))
                written = (out / "config.json").read_bytes()
                parsed, source = json.loads(written), json.loads(config)
                self.assertEqual(parsed.pop("dfloat11_config"), {
                    "version": "0.5.0", "threads_per_block": [512], "bytes_per_thread": 8, "pattern_dict": PATTERNS})
                source.pop("dfloat11_config", None)
                self.assertEqual(list(parsed.items()), list(source.items()))
                self.assertEqual(list(json.loads(written))[-1], "dfloat11_config")
                if name not in ("existing", "empty"):
                    self.assertTrue(written.startswith(config[:config.rindex(b"}")].rstrip()))

    def test_generation_config_is_copied(self):
        model = self.model()
        (model / "generation_config.json").write_bytes(b'{"eos": [1,2], "t": 1e-1 }')
        self.assert_done(compress(model, self.out, self.definition))
        self.assertEqual((self.out / "generation_config.json").read_bytes(), b'{"eos": [1,2], "t": 1e-1 }')

    def test_a_single_file_gives_the_same(self):
        model = self.model()
        self.assert_done(compress(model, self.out, self.definition))
        self.assert_done(compress(model / "model.safetensors", self.work / "single", self.definition))
        self.assertEqual(read_tree(self.work / "single"), read_tree(self.out))

    def test_shards_of_the_source_do_not_matter(self):
        self.assert_done(compress(self.model(), self.out, self.definition))
        model = self.model(name="sharded")
        tensors = small_tensors()
        (model / "model.safetensors").unlink()
        names = sorted(tensors)
        for index in range(3):  # a unit's tensors lie in different files
            reference.write_safetensors(model / f"model-0000{index + 1}-of-00003.safetensors",
                                        {name: tensors[name] for name in names[index::3]}, {"format": "pt"})
        self.assert_done(compress(model, self.work / "from_shards", self.definition))
        ours, theirs = read_tree(self.work / "from_shards"), read_tree(self.out)
        for tree in (ours, theirs):
            tree.pop("weightpress.json", None)  # it names the source files
        self.assertEqual(ours, theirs)

    def test_threads_change_nothing(self):
        model = self.model({"embed.weight": bf16(words(9, 700_001))})
        self.assert_done(compress(model, self.out, self.definition))
        for threads in (1, 2, 3, 7):
            with self.subTest(threads=threads):
                out = self.work / f"threads_{threads}"
                self.assert_done(compress(model, out, self.definition, "--threads", threads))
                self.assertEqual(read_tree(out), read_tree(self.out))

    def test_the_source_is_left_alone(self):
        model = self.model()
        before = read_tree(model)
        self.assert_done(compress(model, self.out, self.definition))
        self.assertEqual(read_tree(model), before)


class WrongInput(CompressCase):
    def test_no_such_source(self):
        self.assert_fails(compress(self.work / "nowhere", self.out, self.definition), 2, "nowhere")

    def test_folder_without_tensors(self):
        (self.work / "bare").mkdir()
        (self.work / "bare" / "config.json").write_bytes(support.CONFIG)
        self.assert_fails(compress(self.work / "bare", self.out, self.definition), 2, "bare", "safetensors")

    def test_folder_without_config_json(self):
        self.assert_fails(compress(self.model(config=None), self.out, self.definition), 2, r"config\.json")

    def test_config_json_that_is_no_object(self):
        for config in (b"[1, 2]", b"{", b"", b'{"a": 1} trailing'):
            with self.subTest(config=config):
                self.assert_fails(compress(self.model(config=config), self.out, self.definition), (1, 2), r"config\.json")

    def test_not_a_safetensors_file(self):
        good = (self.model() / "model.safetensors").read_bytes()
        contents = {
            "empty": b"", "text": b"hello, this is no model at all\n" * 50, "short": good[:5],
            "header_cut": good[:40], "data_cut": good[:-1], "data_too_long": good + b"\0",
            "huge_header": b"\xff" * 8 + good[8:], "no_object": (8).to_bytes(8, "little") + b"[1,2,3] ",
        }
        for name, content in contents.items():
            with self.subTest(content=name):
                model = self.model(name=f"bad_{name}")
                (model / "model.safetensors").write_bytes(content)
                self.assert_fails(compress(model, self.out, self.definition), (1, 2), r"model\.safetensors")

    def test_git_lfs_pointer(self):
        model = self.model()
        (model / "model.safetensors").write_text(
            "version https://git-lfs.github.com/spec/v1\n"
            f"oid sha256:{'0123456789abcdef' * 4}\nsize 45442040\n")
        self.assert_fails(compress(model, self.out, self.definition), (1, 2), r"model\.safetensors", "lfs")

    def test_other_dtype_in_a_unit(self):
        model = self.model({"layers.0.b.weight": ("F32", [20, 100], words(4, 4000).tobytes())})
        self.assert_fails(compress(model, self.out, self.definition), 2, r"layers\.0\.b\.weight", r"\bF32\b", "BF16")

    def test_exponents_that_cannot_be_stored(self):
        for value in (0x7F80, 0xFF80, 0x7FC1, 0x7800):  # Inf, -Inf, NaN, 2^113
            with self.subTest(value=hex(value)):
                array = words(2, 3000)
                array[1234] = value
                model = self.model({"layers.0.a.weight": bf16(array, [30, 100])})
                self.assert_fails(compress(model, self.out, self.definition), 2, r"layers\.0", r"layers\.0\.a\.weight",
                                  r"\b1,?234\b")

    def test_the_largest_exponent_that_can_be_stored(self):
        array = words(2, 3000)
        array[1234] = 0x77FF
        model = self.model({"layers.0.a.weight": bf16(array, [30, 100])})
        self.assert_done(compress(model, self.out, self.definition))

    def test_tensor_of_a_unit_is_missing(self):
        model = self.model({"layers.0.b.weight": None})
        self.assert_fails(compress(model, self.out, self.definition), 2, r"layers\.0\.b\.weight")

    def test_unit_without_weights(self):
        model = self.model({"embed.weight": ("BF16", [0, 100], b"")})
        self.assert_fails(compress(model, self.out, self.definition), 2, "embed")

    def test_definition_that_fits_nothing(self):
        support.write_definition(self.definition, {r"blocks\.\d+": ["q"]})
        self.assert_fails(compress(self.model(), self.out, self.definition), 2, "unit|pattern|definition")

    def test_bad_definitions(self):
        self.assert_fails(compress(self.model(), self.out, self.work / "none.json"), 2, r"none\.json")
        for name, text in {"broken": "{", "list": "[]", "no_patterns": '{"name": "x", "layout": "transformers"}',
                           "bad_regex": '{"name": "x", "layout": "transformers", "pattern_dict": {"a(": []}}'}.items():
            with self.subTest(definition=name):
                path = self.work / f"{name}.json"
                path.write_text(text)
                self.assert_fails(compress(self.model(), self.out, path), (1, 2), name)

    def test_two_units_with_one_file_name(self):
        support.write_definition(self.definition, {r"a\.b": [], r"a_b": []})
        model = self.model({"a.b.weight": bf16(words(1, 500)), "a_b.weight": bf16(words(2, 500))})
        self.assert_fails(compress(model, self.out, self.definition), 2, r"a\.b|a_b")

    def test_unit_name_that_leaves_the_folder(self):
        support.write_definition(self.definition, {r".*evil": []})
        model = self.model({"/tmp/../evil.weight": bf16(words(1, 500))})
        self.assert_fails(compress(model, self.out, self.definition), (1, 2), "evil")

    def test_no_control_characters_in_messages(self):
        support.write_definition(self.definition, {r"(?s)u.*": []})
        name = "u\x1b[31m\r\n\x07x"
        model = self.model({f"{name}.weight": ("F32", [4], bytes(16))})
        self.assert_fails(compress(model, self.out, self.definition), (1, 2))
        self.assert_fails(compress(self.work / "no\x1b[2Jsuch\r\x07", self.out, self.definition), 2, "such")


class Usage(CompressCase):
    def test_wrong_arguments(self):
        model = self.model()
        cases = {
            "none": [], "unknown command": ["frobnicate"],
            "unknown option": ["compress", model, "-o", self.out, "--arch", self.definition, "--no-such-option"],
            "no output": ["compress", model, "--arch", self.definition],
            "no source": ["compress", "-o", self.out, "--arch", self.definition],
            "luts": ["compress", model, "-o", self.out, "--arch", self.definition, "--luts", "quick"],
            "threads": ["compress", model, "-o", self.out, "--arch", self.definition, "--threads", "many"],
            "negative threads": ["compress", model, "-o", self.out, "--arch", self.definition, "--threads", "-1"],
        }
        for name, arguments in cases.items():
            with self.subTest(case=name):
                self.assert_fails(run(*arguments), 2)
        self.assertTrue(mentions(run(*cases["unknown option"]).stderr, "no-such-option"))

    def test_help_fits_a_screen_and_shows_an_example(self):
        for arguments in (["--help"], ["compress", "--help"], ["selftest", "--help"]):
            with self.subTest(arguments=arguments):
                done = run(*arguments)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertLessEqual(len(done.stdout.splitlines()), 60 if arguments[0] == "compress" else 24)
                self.assertLessEqual(max(map(len, done.stdout.splitlines())), 110)
                self.assertTrue(mentions(done.stdout, "example", "weightpress (compress|selftest)"), done.stdout)
                self.assertFalse(mentions(done.stdout, r"\bTODO\b|not (yet )?implemented"))

    def test_selftest(self):
        done = run("selftest")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(done.stdout.strip())


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, 64 * 1024))


class OutputInTheWay(CompressCase):
    def test_existing_output_needs_force(self):
        self.out.mkdir()
        (self.out / "mine.txt").write_text("mine")
        self.assert_fails(compress(self.model(), self.out, self.definition), 2, r"\bout\b", "--force", out_absent=False)
        self.assertEqual(read_tree(self.out), {"mine.txt": b"mine"})

    def test_force_exchanges(self):
        self.assert_done(compress(self.model(), self.out, self.definition))
        fresh = read_tree(self.out)
        (self.out / "stale.safetensors").write_bytes(b"stale")
        self.assert_done(compress(self.model(), self.out, self.definition, "--force"))
        self.assertEqual(read_tree(self.out), fresh)
        self.assertEqual(sorted(path.name for path in self.work.iterdir()), ["arch.json", "model", "out"])

    def test_force_that_fails_keeps_the_old(self):
        self.assert_done(compress(self.model(), self.out, self.definition))
        before = read_tree(self.out)
        bad = self.model({"layers.0.b.weight": ("F32", [20, 100], words(4, 4000).tobytes())}, name="bad")
        self.assert_fails(compress(bad, self.out, self.definition, "--force"), 2, out_absent=False)
        self.assertEqual(read_tree(self.out), before)

    def test_the_source_is_never_the_output(self):
        model = self.model()
        before = read_tree(model)
        for out in (model, self.work / "model" / ".." / "model", self.work):
            with self.subTest(out=str(out)):
                self.assert_fails(compress(model, out, self.definition, "--force"), 2, out_absent=False)
                self.assertEqual(read_tree(model), before)

    def test_what_a_broken_run_left(self):
        model = self.model({"embed.weight": bf16(words(9, 200_000))})
        partial = pathlib.Path(f"{self.out}.partial")
        for options in (), ("--no-resume",):
            done = compress(model, self.out, self.definition, "--force", preexec_fn=limit_file_size)
            self.assert_fails(done, 2, out_absent=not options)
            self.assertTrue(partial.exists())
            done = compress(model, self.out, self.definition, "--force", *options)
            self.assert_done(done)
            self.assertEqual("remains" in done.stderr, bool(options), done.stderr)
        self.assertFalse(partial.exists())
        self.assertEqual(reference.check(str(self.work / "model"), str(self.out)), 0)

    def test_partial_folder_of_somebody_else(self):
        partial = pathlib.Path(f"{self.out}.partial")
        partial.mkdir()
        (partial / "thesis.txt").write_bytes(b"years of work")
        for options in ((), ("--force",)):
            self.assert_fails(compress(self.model(), self.out, self.definition, *options), 2, r"\.partial", "move|remove")
        self.assertEqual((partial / "thesis.txt").read_bytes(), b"years of work")

    def test_failed_run_leaves_no_output(self):
        array = words(2, 3000)
        array[5] = 0x7F80
        model = self.model({"layers.0.a.weight": bf16(array, [30, 100])})
        self.assert_fails(compress(model, self.out, self.definition), 2)
        # After the fault is gone the same command works, whatever the broken run left.
        self.model()
        done = compress(model, self.out, self.definition)
        self.assert_done(done)


class TroubleOfTheMachine(CompressCase):
    def test_folder_that_cannot_be_written(self):
        (self.work / "file").write_text("")
        self.assert_fails(compress(self.model(), self.work / "file" / "out", self.definition), 2, "file/out")
        if os.getuid() != 0:
            (self.work / "locked").mkdir(mode=0o555)
            self.assert_fails(compress(self.model(), self.work / "locked" / "out", self.definition), 2, "locked")

    def test_source_that_cannot_be_read(self):
        if os.getuid() == 0:
            self.skipTest("root reads everything")
        model = self.model()
        (model / "model.safetensors").chmod(0)
        self.assert_fails(compress(model, self.out, self.definition), 2, r"model\.safetensors", "permission")

    def test_file_size_limit(self):
        model = self.model({"embed.weight": bf16(words(9, 200_000))})
        self.assert_fails(compress(model, self.out, self.definition, preexec_fn=limit_file_size), 2, r"\bout\b")

    def test_closed_standard_output(self):
        """A result file must not get the descriptor of standard output, and so the report."""
        model = self.model()
        self.assert_done(compress(model, self.out, self.definition))
        out = self.work / "closed"
        done = compress(model, out, self.definition, stdout=None, preexec_fn=lambda: os.close(1))
        self.assertIn(done.returncode, (0, 2), done.stderr)
        self.assertEqual(read_tree(out), read_tree(self.out))
        out = self.work / "all_closed"
        done = compress(model, out, self.definition, stdin=None, stdout=None, stderr=None,
                        preexec_fn=lambda: [os.close(descriptor) for descriptor in range(3)])
        self.assertIn(done.returncode, (0, 2))
        self.assertEqual(read_tree(out), read_tree(self.out))

    def test_full_standard_output(self):
        model = self.model()
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = compress(model, self.out, self.definition, stdout=full)
        self.assertIn(done.returncode, (0, 2), done.stderr)
        self.assertEqual(reference.check(str(model), str(self.out)), 0)

    def test_broken_pipe(self):
        model = self.model()
        read_end, write_end = os.pipe()
        os.close(read_end)
        try:
            done = compress(model, self.out, self.definition, stdout=write_end)
        finally:
            os.close(write_end)
        self.assertIn(done.returncode, (0, 2), done.stderr)
        self.assertEqual(reference.check(str(model), str(self.out)), 0)


class Help(unittest.TestCase):
    def test_version(self):
        done = run("--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(mentions(done.stdout, r"\d+\.\d+\.\d+"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
