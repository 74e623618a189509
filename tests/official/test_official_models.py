"""Whole models against the official code: what compress_model writes and what load_and_replace_tensors takes.

Each tree of modules is saved as a checkpoint and compressed by dfloat11 0.5.0 itself and by the program, into a folder and
into one file: every .safetensors must be equal. Then the official loader puts our output into a fresh model: each unit must
have its buffers instead of weights and decode to the source, and all other tensors must be as they were.

The units of this file all have official bytes that loaders can use; test_rescued_units.py is about the others.
"""
import hashlib
import json
import pathlib
import re
import sys
import tempfile
import types
import unittest
import warnings

import safetensors.torch
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "program"))
import official_df11  # noqa: E402
import support  # noqa: E402
from support import reference  # noqa: E402

BF16 = torch.bfloat16
BUFFERS = [name for name in support.BUFFERS if name != "split_positions"]  # that one becomes a list of the module
MAX_SHARED_BYTES = 48 * 1024  # what the official loader may launch


class TransformersModel(nn.Module):
    """What the official code needs of a transformers model: `config` and `save_pretrained`."""
    tied_names = ()  # as _tied_weights_keys: not saved where another name has the same tensor

    def set_config(self, config):
        self.config = types.SimpleNamespace(**config)

    def save_pretrained(self, folder):
        tensors = self.state_dict()
        for name in self.tied_names:
            others = [tensor for other, tensor in tensors.items() if other != name]
            if name in tensors and any(other.data_ptr() == tensors[name].data_ptr() for other in others):
                del tensors[name]
        safetensors.torch.save_file(tensors, pathlib.Path(folder, "model.safetensors"), metadata={"format": "pt"})
        pathlib.Path(folder, "config.json").write_text(json.dumps(vars(self.config), indent=2, sort_keys=True) + "\n")


class FrozenConfig(dict):
    def __setattr__(self, name, value):
        raise TypeError("frozen")


class DiffusersModel(nn.Module):
    """The same of a diffusers model, whose `config` takes no new keys."""

    def set_config(self, config):
        self.config = FrozenConfig(config)

    def save_pretrained(self, folder):
        safetensors.torch.save_file(self.state_dict(), pathlib.Path(folder, "diffusion_pytorch_model.safetensors"),
                                    metadata={"format": "pt"})
        pathlib.Path(folder, "config.json").write_text(json.dumps(self.config, indent=2, sort_keys=True) + "\n")


def tree(children, base=nn.Module):
    """A module of this class with these children, dots in their names meaning depth."""
    root = base()
    for path, child in children.items():
        *parents, name = path.split(".")
        module = root
        for parent in parents:
            if parent not in module._modules:
                module.add_module(parent, nn.Module())
            module = module._modules[parent]
        module.add_module(name, child)
    return root


def initialise(model, seed):
    """Weights as training leaves them, each tensor with its own spread."""
    random = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        spread = 0.004 * 2 ** (len(name) % 6)
        values = torch.randn(parameter.shape, generator=random) * spread
        parameter.data.copy_(1 + values if "norm" in name else values)
    return model


def poison(model):
    """Every stored value becomes another one."""
    for tensor in model.state_dict().values():
        if tensor.dtype == torch.bool:
            tensor.logical_not_()
        elif tensor.is_floating_point():
            tensor.fill_(float("nan"))
        else:
            tensor.bitwise_not_()
    return model


def content(tensor):
    """What a safetensors file says of a tensor, to compare."""
    tensor = tensor.detach().contiguous()
    return tensor.dtype, tuple(tensor.shape), tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def hashes(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in pathlib.Path(folder).glob("*.safetensors")}


def config_of(folder):
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def weighed_modules(model, patterns):
    """{unit: names of the modules whose weights are in it}, by the official rule."""
    units = {}
    for pattern, attributes in patterns.items():
        for name, module in model.named_modules():
            if re.fullmatch(pattern, name) and name not in units:
                single = isinstance(module, (nn.Linear, nn.Embedding))
                units[name] = [name] if single else [f"{name}.{attribute}" for attribute in attributes]
    return units


class Tree:
    """The tests of one tree; a class gives the tree, its patterns and what there is to expect."""
    patterns = {}
    rules = {}
    config = {"model_type": "llama", "rms_norm_eps": 1e-06}
    layout = "transformers"
    num_units = 0
    stores_tied = False  # whether the checkpoint holds tied tensors under both names
    kept_units = ()
    options = ()
    official_patterns = None  # where they are not the same
    has_official_single_file = True

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work = pathlib.Path(folder.name)
        cls.source = cls.work / "source"
        cls.source.mkdir()
        model = cls.model()
        cls.tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.save_pretrained(cls.source)
        if cls.stores_tied:
            safetensors.torch.save_file(cls.tensors, cls.source / "model.safetensors", metadata={"format": "pt"})
        cls.definition = support.write_definition(cls.work / "arch.json", cls.patterns, **cls.rules)
        cls.units = {unit: names for unit, names in weighed_modules(model, cls.patterns).items()
                     if unit not in cls.kept_units}
        cls.official = cls.run_official(model, "official", save_single_file=False)
        cls.out = cls.run_program(cls.layout, "out")

    @classmethod
    def model(cls):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Initializing zero-element tensors")
            model = cls.build()
        model.set_config(cls.config)
        return model

    @classmethod
    def fresh_model(cls):
        """What the loader is to fill."""
        return poison(cls.model())

    @classmethod
    def run_official(cls, model, name, save_single_file):
        """Takes the model apart. Returns the folder."""
        official_df11.compress_model(model, cls.official_patterns or cls.patterns, str(cls.work / name),
                                     save_single_file=save_single_file, check_correctness=False)
        return cls.work / name

    @classmethod
    def run_program(cls, layout, name, source=None):
        layout = () if layout == "transformers" else ("--layout", layout)
        done = support.compress(source or cls.source, cls.work / name, cls.definition, *layout, *cls.options)
        if done.returncode != 0:
            raise AssertionError(f"the program ended with {done.returncode}: {done.stderr}")
        return cls.work / name

    def test_the_tree_is_what_the_test_says(self):
        self.assertEqual(len(self.units), self.num_units)

    def test_folder(self):
        official = hashes(self.official)
        self.assertEqual(len(official), self.num_units + 1)
        self.assertEqual(hashes(self.out), official)

    def test_config_of_the_folder(self):
        ours, official = config_of(self.out), config_of(self.official)
        if self.official_patterns:
            official["dfloat11_config"]["pattern_dict"] = self.patterns
        self.assertEqual(ours, official)
        self.assertEqual(list(ours["dfloat11_config"]["pattern_dict"]), list(self.patterns))

    def test_one_file(self):
        model = self.model()
        if not self.has_official_single_file:  # save_file refuses tied tensors: the same model without the second name
            with self.assertRaisesRegex(RuntimeError, "share memory"):
                self.run_official(self.model(), "refused", save_single_file=True)
            del model.lm_head
        official = self.run_official(model, "official_single", save_single_file=True)
        self.assertEqual(list(hashes(official)), ["model.safetensors"])
        (file,) = self.source.glob("*.safetensors")
        for layout, source, name in (("comfyui", file, "model.safetensors"),
                                     ("diffusers-single", self.source, "diffusion_pytorch_model.safetensors")):
            with self.subTest(layout=layout):
                out = self.run_program(layout, layout, source)
                self.assertEqual(hashes(out), {name: hashes(official)["model.safetensors"]})
                self.check_loaded(out / name, self.patterns)
        self.assertFalse((self.work / "comfyui" / "config.json").exists())
        expected = config_of(official)
        expected["dfloat11_config"]["pattern_dict"] = self.patterns
        if "model_type" in self.config:
            expected = {"model_type": self.config["model_type"], **expected}
        self.assertEqual((self.work / "diffusers-single" / "config.json").read_text(encoding="utf-8"),
                         json.dumps(expected, indent=2))

    def test_the_official_loader_takes_the_folder(self):
        self.check_loaded(self.out)

    def check_loaded(self, path, patterns=None):
        model = self.fresh_model()
        self.assertEqual(official_df11.load_into(model, path, patterns), "", "the loader complains")
        state = model.state_dict()
        weights = {f"{name}.weight" for names in self.units.values() for name in names}
        buffers = {f"{unit}.{buffer}" for unit in self.units for buffer in BUFFERS}
        self.assertEqual(set(state), set(self.tensors) - weights | buffers)
        for name in set(self.tensors) - weights:
            self.assertEqual(content(state[name]), content(self.tensors[name]), name)
        for name, buffer in self.model().named_buffers():
            if name not in self.tensors:
                self.assertEqual(content(model.get_buffer(name)), content(buffer), f"{name}, which is not stored")
        for unit in self.units:
            with self.subTest(unit=unit):
                self.check_unit(model, unit)
        for unit in self.kept_units:
            with self.subTest(kept=unit):
                self.assertFalse(model.get_submodule(unit)._forward_pre_hooks)
                self.assertFalse(hasattr(model.get_submodule(unit), "encoded_exponent"))

    def check_unit(self, model, unit):
        module, names = model.get_submodule(unit), self.units[unit]
        targets = [model.get_submodule(name) for name in names]
        for target in targets:
            self.assertFalse(hasattr(target, "weight"))
        self.assertTrue(all(getattr(module, buffer).dtype == torch.uint8 for buffer in BUFFERS))
        expected = [self.tensors[f"{name}.weight"] for name in names]
        sizes = torch.tensor([0] + [tensor.numel() for tensor in expected]).cumsum(0).tolist()
        self.assertEqual(module.split_positions, sizes[1:-1])
        if targets != [module]:
            self.assertEqual(module.weight_injection_modules, targets)
        if targets == [module] or all(isinstance(target, nn.Linear) for target in targets):
            block, grid, shared_bytes, num_bytes = official_df11.run_decode_hook(
                module, lambda buffers: reference.decode_unit(buffers)[0])
            self.assertEqual((block, grid), ((512,), (-(-num_bytes // 4096),)))
            self.assertLessEqual(shared_bytes, MAX_SHARED_BYTES)
            for name, target, tensor in zip(names, targets, expected):
                self.assertEqual(content(target.weight), content(tensor), name)
        else:  # the official hook can give weights to linear layers only
            words = reference.decode_unit({buffer: getattr(module, buffer).numpy().tobytes() for buffer in BUFFERS})[0]
            self.assertEqual(words.tobytes(), b"".join(content(tensor)[2] for tensor in expected))


# Decoders: an embedding, layers with siblings, a head.

LAYER = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
         "mlp.down_proj"]
LAYERS = {r"model\.layers\.\d+": LAYER}
EMBEDDING, HEAD = {r"model\.embed_tokens": []}, {"lm_head": []}


class Rope(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", 10000.0 ** -torch.linspace(0, 1, 8), persistent=False)
        self.register_buffer("positions", torch.arange(12)[None])


class Decoder(TransformersModel):
    tied_names = ("lm_head.weight",)

    def __init__(self, layers=3, tied=False, hidden=48, vocabulary=211, seed=1):
        super().__init__()
        self.model = tree({"embed_tokens": nn.Embedding(vocabulary, hidden), "layers": nn.ModuleList(), "rotary": Rope(),
                           "norm": nn.LayerNorm(hidden)})
        for _ in range(layers):
            self.model.layers.append(tree({
                "input_norm": nn.LayerNorm(hidden),
                "self_attn.rotary": Rope(),
                "self_attn.q_proj": nn.Linear(hidden, hidden), "self_attn.k_proj": nn.Linear(hidden, hidden // 2),
                "self_attn.v_proj": nn.Linear(hidden, hidden // 2), "self_attn.o_proj": nn.Linear(hidden, hidden, bias=False),
                "mlp.gate_proj": nn.Linear(hidden, 2 * hidden, bias=False),
                "mlp.up_proj": nn.Linear(hidden, 2 * hidden, bias=False),
                "mlp.down_proj": nn.Linear(2 * hidden, hidden, bias=False)}))
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        self.to(BF16)
        initialise(self, seed)
        for name, module in self.named_modules():
            if name.endswith("rotary"):
                module.to(torch.float32)  # what is F32 in many checkpoints
        if tied:
            self.lm_head.weight = self.model.embed_tokens.weight


class UntiedDecoder(Tree, unittest.TestCase):
    patterns = {**HEAD, **EMBEDDING, **LAYERS}
    num_units = 13

    @staticmethod
    def build():
        return Decoder(layers=11)


class DecoderOfAnotherModelType(Tree, unittest.TestCase):
    """transformers ties by default, but these two tensors differ."""
    patterns = LAYERS
    config = {"model_type": "gpt_neox"}
    num_units = 1

    @staticmethod
    def build():
        return Decoder(layers=1)


class TiedTree(Tree):
    config = {"model_type": "qwen3", "tie_word_embeddings": True}
    rules = {"tied_lm_head": True}

    @staticmethod
    def build():
        return Decoder(layers=2, tied=True)


class TiedBothUnits(TiedTree, unittest.TestCase):
    patterns = {**HEAD, **EMBEDDING, **LAYERS}
    num_units = 4


class TiedBothUnitsStoredTwice(TiedTree, unittest.TestCase):
    patterns = {**LAYERS, **EMBEDDING, **HEAD}
    num_units = 4
    stores_tied = True


class TiedHeadUnit(TiedTree, unittest.TestCase):
    patterns = {**HEAD, **LAYERS}
    num_units = 3


class TiedHeadUnitStoredTwice(TiedTree, unittest.TestCase):
    patterns = {**HEAD, **LAYERS}
    num_units = 3
    stores_tied = True


class TiedNoUnit(TiedTree, unittest.TestCase):
    patterns = LAYERS
    num_units = 2
    rules = {}
    has_official_single_file = False


class TiedNoUnitStoredTwice(TiedTree, unittest.TestCase):
    patterns = LAYERS
    num_units = 2
    rules = {}
    config = {"model_type": "gemma3_text"}  # tied by default
    stores_tied = True
    has_official_single_file = False


class TiedEmbeddingUnitStoredTwice(TiedTree, unittest.TestCase):
    """The head stays a tensor of its own; the official loader cannot put it into a tied model."""
    patterns = {**EMBEDDING, **LAYERS}
    num_units = 3
    rules = {}
    stores_tied = True

    @classmethod
    def fresh_model(cls):
        return poison(Decoder(layers=2))


# Trees of other shapes.

class OneTensorUnits(Tree, unittest.TestCase):
    patterns = {"proj_in": [], r"time\.embed\.\d": [], r"blocks\.\d+": ["attn.to_out"], r"tables\.\w+": ["ignored", "too"],
                "proj_out": ["ignored"]}
    config = {"hidden_size": 64}
    num_units = 9

    @staticmethod
    def build():
        blocks = {f"blocks.{i}": tree({"attn.to_out": nn.Linear(64, 40 + i), "attn.to_q": nn.Linear(8, 8),
                                       "norm": nn.LayerNorm(64)}) for i in (0, 9, 10)}
        return initialise(tree({
            "proj_in": nn.Linear(100, 64), "time.embed.0": nn.Linear(32, 64, bias=False), "time.embed.2": nn.Linear(64, 64),
            **blocks, "tables.kind": nn.Embedding(30, 17, padding_idx=0), "tables.place": nn.Embedding(200, 3),
            "proj_out": nn.Linear(64, 12), "norm_out": nn.LayerNorm(64)}, TransformersModel).to(BF16), 2)


class SequentialModel(TransformersModel, nn.Sequential):
    pass


class NumberedModules(Tree, unittest.TestCase):
    """Sequential modules from the root on; no tensor is outside the units, so the file for the rest is empty."""
    patterns = {r"0|1\.[02]": [], r"2": ["0", "2.0"], r"3\.(?:0|1)": ["1"]}
    num_units = 6

    @staticmethod
    def build():
        pair = [nn.Sequential(nn.GELU(), nn.Linear(30, 24 + i)) for i in range(2)]
        return initialise(SequentialModel(
            nn.Linear(50, 30), nn.Sequential(nn.Linear(30, 30), nn.SiLU(), nn.Linear(30, 40, bias=False)),
            nn.Sequential(nn.Linear(40, 30), nn.SiLU(), nn.Sequential(nn.Linear(30, 30), nn.Dropout())),
            nn.Sequential(*pair)).to(BF16), 3)


class SeveralPatterns(Tree, unittest.TestCase):
    patterns = {r"(?:double|single)_blocks\.[0-2]": ["b", "a"], r"double_blocks\.(?:3|1\d)": ["a"], "final.linear": [],
                r"time_embed(?!_r)\.\d++": [], r"(?P<kind>enc|dec)oder\.(?P=kind)": ["fc1", "fc2"], r"vision": ["z", "y", "x"]}
    num_units = 12

    @staticmethod
    def build():
        def block():
            return tree({"a": nn.Linear(24, 40), "b": nn.Linear(40, 24), "norm_q": nn.LayerNorm(8)})
        return initialise(tree({
            **{f"double_blocks.{i}": block() for i in (0, 1, 2, 3, 10)}, **{f"single_blocks.{i}": block() for i in (0, 7)},
            "final.linear": nn.Linear(24, 24), "finalXlinear": nn.Linear(24, 7),
            "time_embed.0": nn.Linear(16, 24), "time_embed_r.0": nn.Linear(16, 24),
            "encoder.enc": tree({"fc1": nn.Linear(24, 30), "fc2": nn.Linear(30, 24)}),
            "decoder.dec": tree({"fc1": nn.Linear(24, 30), "fc2": nn.Linear(30, 24)}),
            "decoder.enc": tree({"fc1": nn.Linear(24, 30), "fc2": nn.Linear(30, 24)}),
            "vision": tree({"x": nn.Linear(24, 30), "y": nn.Linear(30, 24), "z": nn.Linear(24, 24, bias=False)}),
        }, TransformersModel).to(BF16), 4)


DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
          torch.float64, BF16)
STRANGE_NAMES = ("Zeta", "alpha", "größe", "\N{CJK UNIFIED IDEOGRAPH-91CF}", "\N{SLIGHTLY SMILING FACE}", "with space",
                 'quote"', "back\\slash", "sl/ash", "tilde~", "under_score", "x" * 300)


class Odds(nn.Module):
    """Buffers of every dtype and tensors with strange names."""

    def __init__(self, seed):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.linear = nn.Linear(30, 40).to(BF16)
        for dtype in DTYPES:
            for shape in ((3, 5), (1,), (), (2, 0)):
                values = torch.rand(shape, generator=random) * 100
                values = values > 50 if dtype == torch.bool else values.to(dtype)
                name = f"{str(dtype).split('.')[-1]}_{'x'.join(map(str, shape))}"
                self.register_buffer(name, values)
        for name in STRANGE_NAMES:
            self.register_parameter(name, nn.Parameter(torch.randn(7, generator=random).to(BF16)))
        self.register_buffer("cache", torch.randn(9, generator=random), persistent=False)
        self.register_buffer("none", None)


class DtypesAndNames(Tree, unittest.TestCase):
    patterns = {"unit": ["linear"], r"größen\.\w+": ["linear"]}
    num_units = 2

    @staticmethod
    def build():
        odds = {"unit": Odds(5), "outside": Odds(6), "größen.höhe": tree({"linear": nn.Linear(20, 30, dtype=BF16)})}
        return initialise(tree(odds, TransformersModel), 5)


class Scalars(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.nothing = nn.Parameter(torch.zeros(0, 4))
        self.ones = nn.Parameter(torch.zeros(1, 1, 1, 1, 1, 1))


class OddShapes(Tree, unittest.TestCase):
    """Weights that are not matrices, sizes of 1, and weights of no size at the inner and outer end of a unit."""
    patterns = {"mixed": ["row", "empty", "column", "one", "conv", "deep", "norm", "table", "empty_too"],
                r"lines\.\d": ["row", "column", "empty"], "wide": [], "high": []}
    num_units = 5

    @staticmethod
    def build():
        def lines():
            return {"row": nn.Linear(257, 1), "empty": nn.Linear(8, 0), "column": nn.Linear(1, 301)}
        return initialise(tree({
            "mixed": tree({**lines(), "one": nn.Linear(1, 1), "conv": nn.Conv2d(3, 5, (3, 1)), "deep": nn.Conv3d(2, 2, (1, 2, 1)),
                           "norm": nn.LayerNorm((1, 40)), "table": nn.Embedding(7, 1), "empty_too": nn.Linear(0, 3),
                           "scalars": Scalars()}),
            "lines.0": tree(lines()), "lines.1": tree({**lines(), "scalars": Scalars()}),
            "wide": nn.Linear(411, 1), "high": nn.Embedding(333, 1), "scalars": Scalars(),
        }, TransformersModel).to(BF16), 7)


class LargeUnit(Tree, unittest.TestCase):
    """600,000 weights: some 50 chunks."""
    patterns = {"block": ["up", "gate", "down"]}
    num_units = 1

    @staticmethod
    def build():
        return initialise(tree({"block": tree({"gate": nn.Linear(600, 400), "up": nn.Linear(500, 600, bias=False),
                                               "down": nn.Linear(400, 150)})}, TransformersModel).to(BF16), 8)


class DiffusersFolder(Tree, unittest.TestCase):
    patterns = {r"blocks\.\d+": ["attn.to_q", "ff.net.0.proj"], r"time_embed\.linear_1": []}
    config = {"_class_name": "Transformer2DModel", "num_layers": 2}
    layout = "diffusers"
    num_units = 3

    @staticmethod
    def build():
        return initialise(tree({
            **{f"blocks.{i}": tree({"attn.to_q": nn.Linear(40, 40), "ff.net.0.proj": nn.Linear(40, 80),
                                    "norm": nn.LayerNorm(40)}) for i in range(2)},
            "time_embed.linear_1": nn.Linear(20, 40), "pos_embed.proj": nn.Conv2d(4, 10, 2)}, DiffusersModel).to(BF16), 9)

    def test_bytes_of_config_json(self):
        self.assertEqual((self.out / "config.json").read_bytes(), (self.official / "config.json").read_bytes())


# Units that cannot be stored stay as they are: as if the patterns left them out.

KEEP = "--keep-unencodable"


class KeptUnits(Tree, unittest.TestCase):
    """One Inf weight in a layer, one NaN in another, a head in F32."""
    patterns = {**HEAD, **EMBEDDING, **LAYERS}
    official_patterns = {**EMBEDDING, r"model\.layers\.[03]": LAYER}
    num_units = 3
    kept_units = ("model.layers.1", "model.layers.2", "lm_head")
    options = (KEEP,)

    @staticmethod
    def build():
        model = Decoder(layers=4)
        model.model.layers[1].mlp.up_proj.weight.data[5, 7] = float("-inf")
        model.model.layers[2].self_attn.k_proj.weight.data[0, 0] = float("nan")
        model.lm_head.to(torch.float32)
        return model

    def test_without_the_option_it_is_an_error(self):
        done = support.compress(self.source, self.work / "refused", self.definition)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(KEEP, done.stderr)
        self.assertFalse((self.work / "refused").exists())


class KeptTiedTree(TiedTree):
    """The embedding cannot be stored, so neither can the head that is tied to it."""
    patterns = {**HEAD, **EMBEDDING, **LAYERS}
    official_patterns = LAYERS
    num_units = 2
    kept_units = ("model.embed_tokens", "lm_head")
    options = (KEEP,)
    has_official_single_file = False

    @staticmethod
    def build():
        model = Decoder(layers=2, tied=True)
        model.lm_head.weight.data[3, 3] = float("inf")
        return model


class KeptTiedUnits(KeptTiedTree, unittest.TestCase):
    pass


class KeptTiedUnitsStoredTwice(KeptTiedTree, unittest.TestCase):
    stores_tied = True


if __name__ == "__main__":
    unittest.main(verbosity=2)
