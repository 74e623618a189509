"""Models with the names of real checkpoints, every dimension at most 48: whole output files, byte for byte.

What a definition's rules make of the names (prefixes, drops, renames, ties, casts), which tensors form units and which file
each lands in is worked out here a second time, with Python's `re`; the units come from the slow model. So nothing below asks
the program what it should have done.
"""
import concurrent.futures
import dataclasses
import json
import math
import os
import pathlib
import re
import tempfile
import unittest
import zlib

import numpy as np

import support
from support import BUFFERS, ROOT, mentions, reference, run

HEADERS = ROOT / "tests" / "real_headers"
ARCHITECTURES = ROOT / "architectures"
MAX_DIMENSION = 48
NUM_WORKERS = 2
UNET = "model.diffusion_model."  # where a full checkpoint of ComfyUI keeps the diffusion model
GENERATION_CONFIG = b'{"bos_token_id": 1, "temperature": 6e-1}\n'

CLASSES = {"chroma": "ChromaTransformer2DModel", "flux1": "FluxTransformer2DModel", "wan": "WanTransformer3DModel",
           "hidream-i1": "HiDreamImageTransformer2DModel", "omnigen2": "OmniGen2Transformer2DModel",
           "qwen-image": "QwenImageTransformer2DModel", "sd3.5": "SD3Transformer2DModel"}
TRANSFORMERS_CONFIGS = {
    "bagel-7b-mot": {"model_type": "bagel"},
    "llama-3.3-70b": {"architectures": ["MistralForCausalLM"], "model_type": "mistral"},  # the header is Mistral Nemo's
    "omnigen2-mllm": {"model_type": "qwen2_5_vl", "tie_word_embeddings": True},
    "phi-4": {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"},
    "qwen3-4b": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "tie_word_embeddings": True},
    "qwen3-8b": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "tie_word_embeddings": False},
}
# extended-X and derived-X are lists of names without a definition of their own; Chroma Base has the names of Chroma HD.
DETECTED_AS = {
    "chroma-base-diffusers-mingyi": "chroma-diffusers", "derived-flux-dev-diffusers": "flux-dev-diffusers",
    "extended-ACEStep15": "acestep15-comfyui", "extended-Anima": "anima-comfyui", "extended-Chroma": "chroma-comfyui",
    "extended-ErnieImage": "ernie-image-comfyui", "extended-Flux": "flux-comfyui", "extended-Flux2": "flux2-comfyui",
    "extended-FluxSchnell": "flux-schnell-comfyui", "extended-ZImage": "zimage-comfyui"}
TO_BE_CAST = {"hidream-i1-diffusers": "F16", "krea2-comfyui": "F32", "omnigen2-mllm": "F32",
              "omnigen2-transformer-diffusers": "F32", "wan-diffusers": "F32"}
# Counted in the published DF11 releases of these models.
RELEASED = {
    "bagel-7b-mot": {"units": 31}, "llama-3.3-70b": {"units": 42}, "phi-4": {"units": 42}, "qwen3-4b": {"units": 36},
    "qwen3-8b": {"units": 38}, "chroma-diffusers": {"units": 58}, "krea2-comfyui": {"kept": {"BF16": 169}},
    "chroma-base-diffusers-mingyi --arch chroma-base-diffusers-mingyi": {"units": 62},
    "cosmos-t2i-predict2-comfyui": {"taken": 567}, "flux-schnell-comfyui": {"renamed": 152}, "sdxl-comfyui": {"taken": 1680},
    "wan-diffusers": {"kept_f32": 125}}


@dataclasses.dataclass
class Case:
    """A model to compress. `definition` is what detection has to find, unless `arch` names it."""
    name: str
    definition: str
    spec: dict                     # tensor name: [dtype, shape]
    config: bytes
    arch: object = None            # what follows --arch; None: detection
    num_shards: int = 1
    metadata: object = None        # of the source files
    same_data: dict = dataclasses.field(default_factory=dict)  # tensor: the one whose bytes it repeats; None: zeros
    file_out: bool = False         # -o NAME.safetensors


def load_definition(name):
    return json.loads((ARCHITECTURES / f"{name}.json").read_text())


def cut(tensors, max_dimension=MAX_DIMENSION):
    return {name: [dtype, [min(size, max_dimension) for size in shape]] for name, (dtype, shape) in tensors.items()}


def config_of(definition, header=None, **more):
    """A config.json with spellings that a JSON library would not give back."""
    if definition["layout"] == "transformers":
        config = TRANSFORMERS_CONFIGS.get(header, {"model_type": definition["family"]})
    else:
        config = {"_class_name": CLASSES.get(definition["family"], "Model"), "_diffusers_version": "0.35.1"}
    text = json.dumps({**config, **more}, indent=2)
    return (text[:-2] + ',\n  "norm_eps": 1e-06,\n  "initializer_range": 0.020\n}\n').encode()


def header_case(header, definition=None, name=None, config=None, **fields):
    content = json.loads((HEADERS / f"{header}.json").read_text())
    definition = definition or DETECTED_AS.get(header, header)
    fields.setdefault("num_shards", 2 if "shards (merged)" in content["source"] else 1)
    return Case(name or header, definition, cut(content["tensors"]),
                config or config_of(load_definition(definition), header), **fields)


# ---- The rules, once more ----

def is_tied(config):
    """Whether lm_head and embedding are one tensor; the default when config.json is silent depends on the model."""
    for part in (config, config.get("text_config") or {}):
        if "tie_word_embeddings" in part:
            return part["tie_word_embeddings"]
    return re.fullmatch("llama|mistral|phi3|qwen[23].*", config.get("model_type", "")) is None


def apply_key_rules(names, definition):
    """{name: name in the output, None if it is dropped}"""
    rules = definition["rules"]
    is_full_checkpoint = definition["layout"] == "comfyui" and any(name.startswith(UNET) for name in names)
    renamed = {}
    for name in names:
        new = name
        for prefix in definition["strip_prefixes"]:
            new = new.removeprefix(prefix)
        if (is_full_checkpoint and not name.startswith(UNET)) or any(re.search(drop, new) for drop in rules.get("drop", [])):
            renamed[name] = None
            continue
        for pattern, replacement in rules.get("rename", []):
            new = re.sub(pattern, replacement.replace("\\", r"\\"), new, count=1)
        renamed[name] = new
    taken = [name for name in renamed.values() if name is not None]
    assert len(taken) == len(set(taken)), "two tensors get one name"
    return renamed


def find_units(names, definition):
    """{unit: names of its weights}"""
    modules = {name[:dot.start()] for name in names for dot in re.finditer(r"\.", name)}
    units = {}
    for pattern, attributes in definition["pattern_dict"].items():
        regex = re.compile(pattern.replace("++", "+"))  # possessive: the same here, and unknown to Python before 3.11
        for module in filter(regex.fullmatch, modules):
            assert module not in units, f"two patterns match {module}"
            own = f"{module}.weight"
            units[module] = [own] if not attributes or own in names else [f"{module}.{a}.weight" for a in attributes]
    return units


def to_bf16(dtype, data):
    """Rounded to the nearest, ties to even."""
    bits = np.frombuffer(data, "<f4" if dtype == "F32" else "<f2").astype("<f4").view("<u4").astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC0, rounded).astype("<u2").tobytes()


class Expected:
    """All that a compression must produce."""

    def __init__(self, source, config, definition, cast):
        rules, names = definition["rules"], apply_key_rules(source, definition)
        self.record = {name: {"dtype": dtype, "shape": list(shape)} for name, (dtype, shape, _) in source.items()}
        tensors = {}
        for name, new in names.items():
            dtype, shape, data = source[name]
            if new is None:
                self.record[name]["dropped"] = True
                continue
            if new != name:
                self.record[name]["renamed"] = new
            if cast and dtype in ("F32", "F16") and not any(re.fullmatch(kept, new) for kept in rules.get("keep_dtype", [])):
                self.record[name]["cast"] = "BF16"
                dtype, data = "BF16", to_bf16(dtype, data)
            tensors[new] = dtype, shape, bytes(data)
        source_of = {new: name for name, new in names.items()}

        unit_tensors = find_units(set(tensors), definition)
        self.tied_units = []
        tied = definition["layout"] == "transformers" and is_tied(config)
        head, embedding = "lm_head.weight", "model.embed_tokens.weight"
        if tied and rules.get("tied_lm_head") and head not in tensors and "lm_head" in definition["pattern_dict"]:
            unit_tensors["lm_head"] = [embedding]
            self.tied_units.append({"unit": "lm_head", "made_from": embedding})
        for unit, members in unit_tensors.items():
            for member in members:
                if (unit, member) != ("lm_head", embedding):
                    self.record[source_of[member]]["unit"] = unit
        in_units = {member for members in unit_tensors.values() for member in members}
        if tied and not {head, embedding} & in_units and head in tensors and tensors[head] == tensors[embedding]:
            del tensors[head]
            self.record[head]["tied_to"] = embedding

        self.kept = {name: tensor for name, tensor in tensors.items() if name not in in_units}
        self.taken = len(tensors)
        self.units = {}  # name: (buffers, why others may be right too, weights)
        for unit, members in unit_tensors.items():
            assert all(tensors[member][0] == "BF16" for member in members), f"{unit} is not all BF16"
            words = [np.frombuffer(tensors[member][2], "<u2") for member in members]
            weights = np.concatenate(words)
            buffers, free = reference.encode_unit(weights)
            buffers = {name: buffer.tobytes() for name, buffer in buffers.items()}
            buffers["split_positions"] = support.split_positions([len(part) for part in words])
            self.units[unit] = buffers, free, weights

        self.files = self.plan_files(definition)  # name: (units, kept tensors, metadata)
        self.config = self.config_json(config, definition)

    def plan_files(self, definition):
        rest = "model.safetensors"
        if definition["layout"].startswith("diffusers"):
            rest = "diffusion_pytorch_model.safetensors"
        if definition["layout"] in ("comfyui", "diffusers-single"):
            return {definition["rules"].get("file", rest): (list(self.units), self.kept, None)}
        siblings = {unit: {} for unit in self.units}
        leftover = {}
        for name, tensor in self.kept.items():
            owner = next((unit for unit in self.units if name.startswith(f"{unit}.")), None)
            (leftover if owner is None else siblings[owner])[name] = tensor
        files = {unit.replace(".", "_") + ".safetensors": ([unit], siblings[unit], None) for unit in self.units}
        assert len(files) == len(self.units) and rest not in files, "two units share a file"
        return {**files, rest: ([], leftover, {"format": "pt"})}

    @staticmethod
    def config_json(config, definition):
        rules = definition["rules"]
        ours = {"version": rules.get("format_version", "0.5.0"), "threads_per_block": [512], "bytes_per_thread": 8,
                "pattern_dict": definition["pattern_dict"]}
        if definition["layout"] == "comfyui":
            return None
        if definition["layout"] == "transformers":
            return {**config, "dfloat11_config": ours}
        return {**({"model_type": config["model_type"]} if "model_type" in config else {}), "dfloat11_config": ours}


# ---- Running a case ----

def make_source(folder, case, layout):
    """Returns what to give to `compress`, and the tensors."""
    reference.make(folder / "all", zlib.crc32(case.name.encode()), case.spec, 0.02)
    tensors = {name: (dtype, shape, bytes(data)) for name, (dtype, shape, data) in
               reference.read_safetensors(folder / "all")[0].items()}
    for name, other in case.same_data.items():
        dtype, shape, data = tensors[name]
        tensors[name] = tensors[other] if other else (dtype, shape, bytes(len(data)))
    (folder / "all").unlink()
    model = folder / "model"
    model.mkdir()
    if layout == "comfyui":
        reference.write_safetensors(model / "checkpoint.safetensors", tensors, case.metadata)
        return model / "checkpoint.safetensors", tensors
    stem = "model" if layout == "transformers" else "diffusion_pytorch_model"
    names, weight_map = sorted(tensors), {}
    for index in range(case.num_shards):  # by turns, so that most units lie in several files
        file = f"{stem}-{index + 1:05}-of-{case.num_shards:05}.safetensors" if case.num_shards > 1 else f"{stem}.safetensors"
        shard = names[index::case.num_shards]
        weight_map.update(dict.fromkeys(shard, file))
        reference.write_safetensors(model / file, {name: tensors[name] for name in shard}, case.metadata or {"format": "pt"})
    if case.num_shards > 1:
        (model / f"{stem}.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (model / "config.json").write_bytes(case.config)
    if layout == "transformers":
        (model / "generation_config.json").write_bytes(GENERATION_CONFIG)
    return model, tensors


def check_free_unit(unit, buffers, weights, why):
    """Where the official bytes are no use, any unit will do that a loader takes and that gives the weights."""
    decoded, bits, last = reference.decode_unit(buffers)
    luts = np.frombuffer(buffers["luts"], np.uint8).reshape(-1, 256)
    problem = reference.not_loadable({**buffers, "luts": luts}, bits, last)
    assert problem is None, f"{unit}: {problem} (the official unit: {why})"
    assert (decoded == weights).all(), f"{unit} decodes to other weights"


def describe_difference(path, wanted):
    (ours, our_metadata), (theirs, their_metadata) = reference.read_safetensors(path), reference.read_safetensors(wanted)
    if our_metadata != their_metadata:
        return f"metadata {our_metadata} instead of {their_metadata}"
    for what, names in (("missing", set(theirs) - set(ours)), ("too many", set(ours) - set(theirs))):
        if names:
            return f"{what}: {sorted(names)[:5]}"
    for name, (dtype, shape, data) in theirs.items():
        if (dtype, shape) != tuple(ours[name][:2]):
            return f"{name} is {ours[name][:2]} instead of {(dtype, shape)}"
        if bytes(data) != bytes(ours[name][2]):
            return f"the bytes of {name}"
    return f"the order, or the spelling of the header: {list(ours)[:4]} instead of {list(theirs)[:4]}"


def check_files(out, expected, scratch):
    """Returns the units that are stored in another form than the official one."""
    own_form = set()
    for file, (units, kept, metadata) in expected.files.items():
        assert (out / file).is_file(), f"{file} is missing"
        tensors, stored = dict(kept), None
        for unit in units:
            buffers, free, weights = expected.units[unit]
            if free:
                stored = stored or reference.read_safetensors(out / file)[0]
                theirs = {buffer: bytes(stored[f"{unit}.{buffer}"][2]) for buffer in BUFFERS}
                check_free_unit(unit, theirs, weights, free)
                if theirs != buffers:
                    own_form.add(unit)
                buffers = {**theirs, "split_positions": buffers["split_positions"]}
            for buffer, data in buffers.items():
                dtype, shape = "U8", [len(data)]
                if buffer == "luts":
                    shape = [len(data) // 256, 256]
                elif buffer == "split_positions":
                    dtype, shape = "I64", [len(data) // 8]
                tensors[f"{unit}.{buffer}"] = dtype, shape, data
        reference.write_safetensors(scratch, tensors, metadata)
        if (out / file).read_bytes() != scratch.read_bytes():
            raise AssertionError(f"{file} differs: {describe_difference(out / file, scratch)}")
    return own_form


def check_config(out, case, expected, layout):
    if expected.config is None:
        return
    text = (out / "config.json").read_bytes()
    if layout == "transformers":
        parsed = json.loads(text)
        assert list(parsed.items()) == list(expected.config.items()), f"config.json: {text[:300]}"
        ours, theirs = (json.dumps(config["dfloat11_config"]) for config in (parsed, expected.config))
        assert ours == theirs, f"dfloat11_config: {ours}"  # as text, for the order of the patterns
        assert text.startswith(case.config[:case.config.rindex(b"}")].rstrip() + b","), "config.json is spelt differently"
        assert (out / "generation_config.json").read_bytes() == GENERATION_CONFIG
    else:
        assert text.decode() == json.dumps(expected.config, indent=2), f"config.json: {text[:300]}"


def check_record(record, expected, definition, own_form):
    assert (record["definition"]["name"], record["layout"]) == (definition["name"], definition["layout"]), record["definition"]
    entries = {tensor.pop("name"): tensor for file in record["source_files"] for tensor in file["tensors"]}
    assert set(entries) == set(expected.record), "weightpress.json names other tensors"
    for name, entry in entries.items():
        if entry.get("dropped"):
            entry["dropped"] = True  # a reason, for people
        assert entry == expected.record[name], f"weightpress.json on {name}: {entry} instead of {expected.record[name]}"
    assert record["tied_units"] == expected.tied_units, record["tied_units"]
    assert record["kept_units"] == [], record["kept_units"]
    named = {entry["unit"] for entry in record["own_coding"]}
    free = {unit for unit, (_, why, _) in expected.units.items() if why}
    assert own_form <= named <= free, f"own_coding names {named}, units in another form are {own_form}, of {free}"


def run_case(case):
    """Returns what was counted. Raises AssertionError, with the reason, when anything differs."""
    definition = load_definition(case.definition)
    layout = definition["layout"]
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        source, tensors = make_source(work, case, layout)
        config = json.loads(case.config) if layout != "comfyui" else {}
        needs_cast = TO_BE_CAST.get(case.name.split()[0])
        expected = Expected(tensors, config, definition, needs_cast is not None)
        options = [] if case.arch is None else ["--arch", case.arch]

        if case.arch is None:
            found = run("architectures", "detect", source, "--json")
            assert found.returncode == 0, found.stderr
            found = json.loads(found.stdout)
            wanted = (case.definition, layout, len(expected.units))
            assert (found["definition"], found["layout"], found["units"]) == wanted, f"detected {found}"
        out = work / "out"
        if needs_cast:
            refused = run("compress", source, "-o", out, *options)
            assert refused.returncode == 2, refused.stderr
            assert mentions(refused.stderr, needs_cast, "--cast-to-bf16"), refused.stderr
            assert any(unit in refused.stderr for unit in expected.units), refused.stderr
            assert not out.exists()
            options += ["--cast-to-bf16"]
        target, record = out, out / "weightpress.json"
        files = set(expected.files) | {"weightpress.json"} | ({"config.json"} if expected.config else set())
        if layout == "transformers":
            files.add("generation_config.json")
        if case.file_out:
            (single,) = expected.files
            out.mkdir()
            target, record = out / single, out / f"{pathlib.Path(single).stem}.weightpress.json"
            files = files - {"weightpress.json"} | {record.name}
        done = run("compress", source, "-o", target, "--threads", 1, *options)
        assert done.returncode == 0, done.stderr
        assert definition["name"] in done.stderr + done.stdout, f"the definition is not named: {done.stderr}"

        written = {str(path.relative_to(out)) for path in out.rglob("*")}
        assert written == files, f"files {sorted(written ^ files)} are missing or too many"
        own_form = check_files(out, expected, work / "expected.safetensors")
        check_config(out, case, expected, layout)
        check_record(json.loads(record.read_text()), expected, definition, own_form)
    kept_types = [dtype for dtype, _, _ in expected.kept.values()]
    return {"units": len(expected.units), "own_form": len(own_form), "taken": expected.taken,
            "free": sum(1 for _, why, _ in expected.units.values() if why),
            "weights": sum(len(weights) for _, _, weights in expected.units.values()),
            "renamed": sum("renamed" in entry for entry in expected.record.values()),
            "kept": {dtype: kept_types.count(dtype) for dtype in kept_types}, "kept_f32": kept_types.count("F32")}


def named_cases():
    """Definitions that detection does not find by these names, each chosen by name or by file."""
    chosen = [("chroma-base-diffusers-mingyi", "chroma-base-diffusers-mingyi"), ("flux2-comfyui", "flux2-alt-comfyui"),
              ("derived-flux-dev-diffusers", "flux-kontext-dev-diffusers"), ("qwen3-8b", "llama-3.3-70b"),
              ("qwen3-4b", "qwen3-8b")]  # the last one makes lm_head from the embedding
    cases = [header_case(header, name, name=f"{header} --arch {name}", arch=name) for header, name in chosen]
    cases[0].config = config_of(load_definition("chroma-base-diffusers-mingyi"), model_type="chroma")
    path = ARCHITECTURES / "phi-4.json"
    return cases + [header_case("phi-4", name="phi-4 --arch FILE", arch=path)]


def varied_cases():
    """Other forms in which such checkpoints come."""
    thumbnail = {"modelspec.title": "\u00fc", "modelspec.thumbnail": "data:image/jpeg;base64," + 60_000 * "A"}
    schnell = header_case("flux-schnell-comfyui", name="flux-schnell-comfyui with a thumbnail", metadata=thumbnail, file_out=True)
    full = header_case("extended-Flux2", name="extended-Flux2 in a full checkpoint")
    full.spec = {UNET + name: entry for name, entry in full.spec.items()}
    full.spec["vae.decoder.conv_in.weight"] = ["F32", [8, 4, 3, 3]]
    full.spec["double_blocks.0.img_attn.qkv.weight"] = ["BF16", [8, 8]]  # outside: not the model's
    # Qwen3 0.6B stores lm_head although it is tied.
    twice = header_case("qwen3-4b", name="qwen3-4b with a stored lm_head", arch="qwen3-4b",
                        same_data={"lm_head.weight": "model.embed_tokens.weight"})
    twice.spec["lm_head.weight"] = twice.spec["model.embed_tokens.weight"]
    # A pruned block is too much for one chunk: the official bytes are no use, and another codebook is stored.
    pruned = header_case("qwen-image-diffusers-single", name="qwen-image-diffusers-single with a block of zeros")
    pruned.spec = {name: entry for name, entry in pruned.spec.items() if not re.match(r"transformer_blocks\.[1-9]", name)}
    pruned.same_data = {name: None for name in pruned.spec if name.startswith("transformer_blocks.0.")}
    return [schnell, full, twice, pruned]


class RealHeaders(unittest.TestCase):
    def run_cases(self, cases):
        totals = dict.fromkeys(("units", "free", "own_form", "weights"), 0)
        # The largest first, so that both workers end together.
        cases = sorted(cases, key=lambda case: -sum(math.prod(shape) for _, shape in case.spec.values()))
        with concurrent.futures.ProcessPoolExecutor(min(NUM_WORKERS, os.cpu_count())) as pool:
            for case, future in [(case, pool.submit(run_case, case)) for case in cases]:
                with self.subTest(model=case.name):
                    counted = future.result()
                    for what, number in RELEASED.get(case.name, {}).items():
                        self.assertEqual(counted[what], number, what)
                    for key in totals:
                        totals[key] += counted[key]
        self.totals = totals
        print(f"{len(cases)} models, {totals['units']} units of {totals['weights']} weights. Units without usable official "
              f"bytes: {totals['free']}, of these stored in another form: {totals['own_form']}")

    def test_detected(self):
        headers = sorted(path.stem for path in HEADERS.glob("*.json"))
        self.assertEqual(len(headers), 37)
        self.run_cases([header_case(header) for header in headers])

    def test_chosen_by_name(self):
        self.run_cases(named_cases())

    def test_other_forms(self):
        self.run_cases(varied_cases())
        self.assertGreater(self.totals["own_form"], 0)


if __name__ == "__main__":
    unittest.main()
