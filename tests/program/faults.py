"""Faults of stored units, made one at a time, and a judge who says what each of them does.

The judge follows docs/format.md with plain numpy and shares nothing with the program: he decodes the damaged unit from its
first bit, works out every gap and position anew, and asks whether the official kernel would end. So he knows whether a
fault can be seen without the source, where it shows first, and which weight it changes first.
"""
import dataclasses

import numpy as np

from support import BUFFERS, reference

WINDOW_BITS, CHUNK_BITS, WINDOWS = 64, 32768, 512
GAP_BYTES = 320
MAX_TABLES, MAX_CHUNK_WEIGHTS = 17, 23550
CODING_KINDS = {"stream", "gap", "position"}


@dataclasses.dataclass
class Fault:
    """One thing wrong. `changes`: {buffer: bytes}, and {buffer: (dtype, shape)} in `shapes` where these are no longer usual."""
    label: str
    changes: dict
    shapes: dict = dataclasses.field(default_factory=dict)
    bits: tuple = None  # first and last bit of the bitstream that may differ, if nothing else does

    def apply(self, unit):
        return {**unit, **self.changes}

    @property
    def is_bit_flip(self):
        """Of the bitstream."""
        return self.bits is not None and self.bits[0] == self.bits[1]


@dataclasses.dataclass
class Place:
    """Where a report may say that the fault is. None: anywhere, or not said."""
    kinds: set
    chunks: set = None
    windows: set = None

    def fits(self, failure):
        chunk, window = failure["chunk"], failure["window"]
        if window is not None and chunk != window // WINDOWS:
            return False
        return (failure["kind"] in self.kinds and (self.chunks is None or chunk in self.chunks)
                and (self.windows is None or window in self.windows))


@dataclasses.dataclass
class Verdict:
    place: Place = None     # where it shows without the source; None: it does not
    undecided: bool = False  # lookup tables with a flaw that this stream never meets: good or bad, as one likes
    weight: int = None      # first weight that differs from the sound unit's; None: none does, or it cannot be told
    weight_window: int = None
    splits_differ: bool = False

    @property
    def harmless(self):
        return self.place is None and self.weight is None and not self.splits_differ


def tensors_of(name, unit, shapes=()):
    """The unit's tensors for reference.write_safetensors."""
    shapes = dict(shapes)
    tensors = {}
    for buffer in BUFFERS:
        data = unit.get(buffer)
        if data is None:
            continue
        usual = ("I64", [len(data) // 8]) if buffer == "split_positions" else ("U8", [len(data)])
        if buffer == "luts" and len(data) % 256 == 0:
            usual = ("U8", [len(data) // 256, 256])
        tensors[f"{name}.{buffer}"] = (*shapes.get(buffer, usual), data)
    return tensors


# ---- The judge ----

def codes_at_every_bit(luts, stream):
    """(exponent, length) of the code at each bit of the stream, as the tables say; length 0: there is none."""
    luts = np.frombuffer(luts, np.uint8).reshape(-1, 256)
    num_tables = len(luts) - 1
    data = np.frombuffer(bytes(stream) + bytes(8), np.uint8).astype(np.uint64)
    size = len(stream)
    forty = np.zeros(size, np.uint64)  # this byte and the four behind it
    for behind in range(5):
        forty |= data[behind:size + behind] << np.uint64(32 - 8 * behind)
    bits = (forty[:, None] << np.arange(8, dtype=np.uint64) >> np.uint64(8) & np.uint64(0xFFFFFFFF)).reshape(-1)
    value = luts[0, bits >> np.uint64(24)]
    valid = np.ones(len(bits), bool)
    for level in range(1, 4):
        at = np.flatnonzero((value >= 240) & valid)
        if not len(at):
            break
        table = 256 - value[at].astype(np.int64)
        valid[at[table >= num_tables]] = False
        at, table = at[table < num_tables], table[table < num_tables]
        value[at] = luts[table, bits[at] >> np.uint64(24 - 8 * level) & np.uint64(255)]
    valid &= value < 240
    length = np.where(valid, luts[num_tables][value], 0)
    length[length > 32] = 0
    return value, length.astype(np.int64)


class Chain:
    """The codes of a stream from its first bit to its last or to where there is no code, however many weights there are."""

    def __init__(self, starts, exponents, lengths, stop, failed):
        self.starts, self.exponents, self.lengths = starts, exponents, lengths
        self.stop = stop      # the first bit behind the codes
        self.failed = failed  # there the tables lead nowhere

    @classmethod
    def of(cls, luts, stream):
        exponent, length = codes_at_every_bit(luts, stream)
        steps, starts, bit, end = length.tolist(), [], 0, 8 * len(stream)
        while bit < end and steps[bit]:
            starts.append(bit)
            bit += steps[bit]
        starts = np.array(starts, np.int64)
        return cls(starts, exponent[starts], length[starts], bit, bit < end)

    def with_changed_bits(self, luts, stream, first, last):
        """The chain of a stream that differs from this one's in these bits only. Decodes just what they touch."""
        before = int(np.searchsorted(self.starts, max(0, first - 64)))  # no look-up of a code so far ahead meets them
        from_byte = (int(self.starts[before]) if before < len(self.starts) else self.stop) // 8
        if from_byte * 8 >= 8 * len(stream):
            return Chain.of(luts, stream)
        bit = int(self.starts[before])
        reach = 64 + (last - first) // 8
        while True:
            to_byte = min(len(stream), last // 8 + reach)
            # With what follows, so that the last codes are looked up as they are.
            exponent, length = codes_at_every_bit(luts, stream[from_byte:to_byte + 8])
            starts, at, end = [], bit, min(8 * to_byte, 8 * len(stream))
            joined = None
            while at < end and length[at - 8 * from_byte]:
                if at > last:
                    index = int(np.searchsorted(self.starts, at))
                    if index < len(self.starts) and self.starts[index] == at:
                        joined = index
                        break
                starts.append(at)
                at += int(length[at - 8 * from_byte])
            if joined is not None or to_byte == len(stream) or at < end:
                break
            reach *= 4
        new = np.array(starts, np.int64)
        there = new - 8 * from_byte
        parts = [(self.starts[:before], self.exponents[:before], self.lengths[:before]), (new, exponent[there], length[there])]
        stop, failed = at, at < 8 * len(stream)
        if joined is not None:
            parts.append((self.starts[joined:], self.exponents[joined:], self.lengths[joined:]))
            stop, failed = self.stop, self.failed
        return Chain(*(np.concatenate(part) for part in zip(*parts)), stop, failed)


def code_runs(luts):
    """{exponent: number of places in the tables where a whole code of the length that the last row says could stand}"""
    luts = np.frombuffer(luts, np.uint8).reshape(-1, 256)
    num_tables, lengths = len(luts) - 1, luts[-1]
    tables_at = [{0}]  # by depth
    for _ in range(3):
        pointers = {256 - int(value) for table in tables_at[-1] for value in np.unique(luts[table]) if value >= 240}
        tables_at.append({table for table in pointers if table < num_tables})
    runs = {}
    for exponent in np.flatnonzero(lengths):
        depth, rest = divmod(int(lengths[exponent]) - 1, 8)
        size = 1 << (7 - rest)
        runs[int(exponent)] = sum(int((luts[table] == exponent).reshape(-1, size).all(1).sum())
                                  for table in (tables_at[depth] if depth < 4 else ()))
    return runs


def read_gaps(gaps):
    bits = np.unpackbits(np.frombuffer(gaps, np.uint8)).reshape(-1, 5)
    return bits @ np.array([16, 8, 4, 2, 1])


def write_gaps(values):
    return np.packbits(((np.asarray(values)[:, None] >> np.arange(4, -1, -1)) & 1).astype(np.uint8).reshape(-1)).tobytes()


def right_gaps(starts, total, num_chunks):
    """The gap of every window that has or has to have one; the stream is known up to `total` only."""
    starts = starts[starts < num_chunks * CHUNK_BITS]
    gaps = np.zeros(WINDOWS * num_chunks, np.int64)
    windows, first = np.unique(starts // WINDOW_BITS, return_index=True)
    gaps[windows] = starts[first] % WINDOW_BITS
    if total is not None and total % 8 and windows[-1] < total // WINDOW_BITS < len(gaps):
        gaps[total // WINDOW_BITS] = total % WINDOW_BITS
    return gaps


def right_positions(starts, total, num_chunks, num_weights):
    """The full form. Where the stream ends on a byte border and no code starts in the last chunk, that entry may lack."""
    return np.append(np.searchsorted(starts, np.arange(num_chunks) * CHUNK_BITS), num_weights)


def header_problem(unit, shapes):
    """Why sizes, dtypes, code lengths or split positions cannot be right, or None."""
    if any(unit.get(buffer) is None for buffer in BUFFERS):
        return "missing"
    if shapes:
        return "dtype or shape"
    if len(unit["luts"]) % 256 or len(unit["luts"]) < 512:
        return "luts"
    lengths = np.frombuffer(unit["luts"][-256:], np.uint8).astype(np.int64)
    if lengths[240:].any() or lengths.max() > 32 or not lengths.any():
        return "code lengths"
    used = lengths[lengths > 0]
    if (1 << (32 - used)).sum() > 1 << 32:
        return "code lengths of no prefix code"
    num_weights, num_bytes = len(unit["sign_mantissa"]), len(unit["encoded_exponent"])
    if not num_weights or not -(-num_weights * used.min() // 8) <= num_bytes <= -(-num_weights * used.max() // 8):
        return "bytes of the stream"
    num_chunks = -(-num_bytes // 4096)
    if len(unit["gaps"]) != GAP_BYTES * num_chunks:
        return "gaps"
    if len(unit["output_positions"]) not in (4 * num_chunks, 4 * (num_chunks + 1)) or len(unit["output_positions"]) < 8:
        return "output_positions"
    if len(unit["split_positions"]) % 8:
        return "split_positions"
    splits = np.frombuffer(unit["split_positions"], "<i8")
    if (np.diff(np.concatenate([[0], splits, [num_weights]])) < 0).any():
        return "split_positions"
    return None


class Judge:
    """Of the faults of one sound unit."""

    def __init__(self, unit):
        self.unit = {buffer: bytes(data) for buffer, data in unit.items()}
        self.chain = Chain.of(self.unit["luts"], self.unit["encoded_exponent"])
        self.num_weights = len(self.unit["sign_mantissa"])
        self.runs = code_runs(self.unit["luts"])
        self.weights = self.decode(self.unit, self.chain)
        self.used_entries = self.entries_met()
        self.place_of_sound = None
        self.place_of_sound = self.look(self.unit, self.chain).place  # the official tables may hang the kernel

    @staticmethod
    def decode(unit, chain):
        sign_mantissa = np.frombuffer(unit["sign_mantissa"], np.uint8).astype(np.uint16)
        count = min(len(sign_mantissa), len(chain.starts))
        part = sign_mantissa[:count]
        return ((part & 0x80) << 8 | chain.exponents[:count].astype(np.uint16) << 7 | part & 0x7F).astype(np.uint16)

    def entries_met(self):
        """Offsets in luts of all table entries that decoding looks at, of weights and the codes behind them."""
        luts = np.frombuffer(self.unit["luts"], np.uint8).reshape(-1, 256)
        padded = np.frombuffer(self.unit["encoded_exponent"] + bytes(8), np.uint8).astype(np.int64)
        table, met, at = np.zeros(len(self.chain.starts), np.int64), set(), self.chain.starts
        if self.chain.failed:
            at, table = np.append(at, self.chain.stop), np.append(table, 0)
        for _ in range(4):
            byte = (padded[at // 8] << 8 | padded[at // 8 + 1]) >> (8 - at % 8) & 255
            met |= set((256 * table + byte).tolist())
            value = luts[table, byte].astype(np.int64)
            deeper = (value >= 240) & (256 - value < len(luts) - 1)
            at, table = at[deeper] + 8, 256 - value[deeper]
        return met

    def judge(self, fault):
        unit = fault.apply(self.unit)
        if header_problem(unit, fault.shapes):
            return Verdict(Place({"header", "split"} if "split_positions" in fault.changes else {"header"}))
        changed = {buffer for buffer in fault.changes if fault.changes[buffer] != self.unit[buffer]}
        if changed & {"luts", "encoded_exponent"}:
            luts = unit["luts"]
            met = True
            if changed == {"luts"} and len(luts) == len(self.unit["luts"]):
                difference = np.flatnonzero(np.frombuffer(luts, np.uint8) != np.frombuffer(self.unit["luts"], np.uint8))
                symbols = set(self.chain.exponents.tolist())
                met = any(int(at) in self.used_entries if at < len(luts) - 256 else int(at) % 256 in symbols for at in difference)
            if not met:
                chain = self.chain
            elif fault.bits and changed == {"encoded_exponent"}:
                chain = self.chain.with_changed_bits(luts, unit["encoded_exponent"], *fault.bits)
            else:
                chain = Chain.of(luts, unit["encoded_exponent"])
        else:
            chain = self.chain
        verdict = self.look(unit, chain)
        weights = self.decode(unit, chain)
        count = min(len(weights), self.num_weights)
        different = np.flatnonzero(weights[:count] != self.weights[:count])
        if len(different):
            verdict.weight = int(different[0])
            verdict.weight_window = int(chain.starts[verdict.weight]) // WINDOW_BITS
        elif len(unit["sign_mantissa"]) != self.num_weights or len(weights) < self.num_weights:
            verdict.weight = count
        verdict.splits_differ = unit["split_positions"] != self.unit["split_positions"]
        return verdict

    def look(self, unit, chain):
        """What a check without the source can see."""
        num_weights, num_bytes = len(unit["sign_mantissa"]), len(unit["encoded_exponent"])
        num_chunks = -(-num_bytes // 4096)
        if len(unit["luts"]) // 256 - 1 > MAX_TABLES:
            return Verdict(Place({"limit", "table"}))
        undecided = False
        if unit["luts"] != self.unit["luts"]:
            runs = code_runs(unit["luts"])
            if not all(runs.values()):
                return Verdict(Place({"table"}))
            undecided = any(runs[exponent] < self.runs.get(exponent, 1) for exponent in runs)

        starts = chain.starts[:num_weights]
        last_chunk = num_chunks - 1
        found = []  # (chunk, window, place): where it shows to one who goes through the stream
        total = None
        if len(starts) == num_weights:
            total = int(starts[-1] + chain.lengths[num_weights - 1])
        elif chain.failed:
            window = chain.stop // WINDOW_BITS
            found.append((window // WINDOWS, window, Place({"stream"}, {window // WINDOWS}, {window})))
        if (total is None and not chain.failed) or (total is not None and -(-total // 8) != num_bytes):
            # It ends too early, in the chunk of the last code, or goes on beyond the last byte.
            chunk = last_chunk if total is None else min((total - 1) // CHUNK_BITS, last_chunk)
            found.append((chunk, chunk * WINDOWS + WINDOWS - 1, Place(CODING_KINDS, {chunk, last_chunk})))

        if total is None and chain.failed:  # up to the window in which there is no code
            known_starts, known = np.append(starts, chain.stop), chain.stop // WINDOW_BITS + 1
        else:
            known_starts, known = starts, WINDOWS * num_chunks if total is not None else (8 * num_bytes - 1) // WINDOW_BITS
        if total is not None and total > 8 * num_bytes:
            known = min(known, 8 * num_bytes // WINDOW_BITS)
        gaps, stored = right_gaps(known_starts, total, num_chunks), read_gaps(unit["gaps"])
        wrong = np.flatnonzero(gaps[:known] != stored[:known])
        if len(wrong):
            window = int(wrong[0])
            before = max(window - 1, 0)
            found.append((before // WINDOWS, before,
                          Place({"gap", "stream"}, {before // WINDOWS, window // WINDOWS}, {before, window})))

        positions = np.frombuffer(unit["output_positions"], "<u4").astype(np.int64)
        right = right_positions(starts, total, num_chunks, num_weights)
        may_lack = total is not None and total % 8 == 0 and num_chunks > 1 and int(starts[-1]) // CHUNK_BITS < last_chunk
        if len(positions) < len(right):
            if not may_lack:
                found.append((last_chunk - 1, last_chunk * WINDOWS - 1, Place({"position", "stream"}, {last_chunk - 1, last_chunk})))
            right = np.delete(right, last_chunk)
        # Entries of chunks that the walk did not come to are not judged.
        reach = len(right) if total is not None else chain.stop // CHUNK_BITS + 1
        wrong = np.flatnonzero(positions[:reach] != right[:reach])
        if len(wrong):
            entry = int(wrong[0])
            chunk = max(entry - 1, 0)
            chunks = {chunk, min(entry, last_chunk)} if unit["output_positions"] != self.unit["output_positions"] else {chunk}
            found.append((chunk, chunk * WINDOWS + WINDOWS, Place({"position", "stream"}, chunks)))
        if found:
            place = min(found, key=lambda item: item[:2])[2]
            # Where one number disagrees with all else, it is told that the number is wrong and not the stream. (Not of the
            # first weight of the last chunk: with another, the stream may end in the same byte.)
            sound_positions = np.frombuffer(self.unit["output_positions"], "<u4").astype(np.int64)
            changed = {buffer for buffer in BUFFERS if unit[buffer] != self.unit[buffer]}
            if self.place_of_sound is None and changed == {"gaps"} and (stored != read_gaps(self.unit["gaps"])).sum() == 1:
                place.kinds = {"gap"}
            if self.place_of_sound is None and changed == {"output_positions"} and len(positions) == len(sound_positions):
                wrong = np.flatnonzero(positions != sound_positions)
                if len(wrong) == 1 and (wrong[0] != last_chunk or wrong[0] == len(positions) - 1):
                    place.kinds = {"position"}
            return Verdict(place)

        if np.diff(right).max() > MAX_CHUNK_WEIGHTS:
            return Verdict(Place({"limit"}))
        luts = np.frombuffer(unit["luts"], np.uint8).reshape(-1, 256)
        if not reference.kernel_terminates(luts, unit["encoded_exponent"], total, int(chain.lengths[num_weights - 1])):
            return Verdict(Place({"padding"}))
        return Verdict(undecided=undecided)


# ---- The faults ----

def flipped(data, bit):
    """Bit 0 is the highest of the first byte."""
    changed = bytearray(data)
    changed[bit // 8] ^= 0x80 >> bit % 8
    return bytes(changed)


def chosen(random, count, limit):
    """All of range(count), or `limit` of it, with both ends."""
    if count <= limit:
        return range(count)
    return sorted({0, count - 1, *random.choice(count, limit, replace=False).tolist()})


def stream_flips(unit, random, limit):
    for bit in chosen(random, 8 * len(unit["encoded_exponent"]), limit):
        yield Fault(f"encoded_exponent bit {bit}", {"encoded_exponent": flipped(unit["encoded_exponent"], bit)}, bits=(bit, bit))


def gap_flips(unit, random, limit):
    """Of windows that codes start in, and of the others."""
    used = -(-len(unit["encoded_exponent"]) // 8)
    total = 8 * len(unit["gaps"]) // 5
    windows = {*chosen(random, used, limit // 10), *(used + at for at in chosen(random, total - used, limit // 20))}
    windows |= {window for window in (used - 2, used - 1, used, total - 1, WINDOWS - 1, WINDOWS) if 0 <= window < total}
    for window in sorted(windows):
        for bit in range(5):
            yield Fault(f"gap {window} bit {bit}", {"gaps": flipped(unit["gaps"], 5 * window + bit)})


def position_faults(unit, random):
    positions = np.frombuffer(unit["output_positions"], "<u4")
    for entry in range(len(positions)):
        right = int(positions[entry])
        values = {"+1": right + 1, "-1": right - 1, "huge": 0xFFFFFFFF, "2^31": 1 << 31, "0": 0,
                  "bit flip": right ^ 1 << int(random.integers(32))}
        for what, value in values.items():
            value = np.uint32(value % (1 << 32))
            changed = positions.copy()
            changed[entry] = value
            if value != positions[entry]:
                yield Fault(f"position {entry} {what}", {"output_positions": changed.tobytes()})
        if entry + 1 < len(positions):
            changed = positions.copy()
            changed[[entry, entry + 1]] = changed[[entry + 1, entry]]
            if (changed != positions).any():
                yield Fault(f"positions {entry} and the next exchanged", {"output_positions": changed.tobytes()})


def luts_faults(unit, random, limit, masks=(1, 0x80, 0xFF)):
    """Every byte of every row with some XOR masks."""
    luts = unit["luts"]
    all_faults = [(at, mask) for at in range(len(luts)) for mask in (*masks, int(random.integers(1, 256)))]
    for index in chosen(random, len(all_faults), limit):
        at, mask = all_faults[index]
        changed = bytearray(luts)
        changed[at] ^= mask
        yield Fault(f"luts[{at // 256}, {at % 256}] ^ {mask:#x}", {"luts": bytes(changed)})


def sign_mantissa_flips(unit, random, limit):
    for bit in chosen(random, 8 * len(unit["sign_mantissa"]), limit):
        yield Fault(f"sign_mantissa bit {bit}", {"sign_mantissa": flipped(unit["sign_mantissa"], bit)})


def split_faults(unit, random):
    del random
    splits = np.frombuffer(unit["split_positions"], "<i8")
    num_weights = len(unit["sign_mantissa"])
    cases = {}
    for entry, value in enumerate(splits.tolist()):
        for what, new in (("+1", value + 1), ("-1", value - 1), ("negative", -1), ("beyond", num_weights + 1),
                          ("huge", 1 << 62), ("most negative", -1 << 63)):
            cases[f"split {entry} {what}"] = [*splits[:entry], new, *splits[entry + 1:]]
    if len(splits) > 1:
        cases["splits descending"] = splits[::-1]
    cases["a split more"] = [*splits, num_weights]
    cases["a split more, negative"] = [-5, *splits]
    if len(splits):
        cases["a split less"] = splits[:-1]
    for label, values in cases.items():
        yield Fault(label, {"split_positions": np.array(values, "<i8").tobytes()})


def swaps(unit):
    """Chunks of the bitstream, and the gaps of two chunks, exchanged."""
    stream, gaps = unit["encoded_exponent"], unit["gaps"]
    whole = len(stream) // 4096
    for first in range(min(whole - 1, 4)):
        at = 4096 * first
        yield Fault(f"chunks {first} and {first + 1} of the stream exchanged",
                    {"encoded_exponent": stream[:at] + stream[at + 4096:at + 8192] + stream[at:at + 4096] + stream[at + 8192:]},
                    bits=(8 * at, 8 * (at + 8192) - 1))
    for first in range(min(len(gaps) // GAP_BYTES - 1, 4)):
        at = GAP_BYTES * first
        yield Fault(f"gaps of chunks {first} and {first + 1} exchanged",
                    {"gaps": gaps[:at] + gaps[at + GAP_BYTES:at + 2 * GAP_BYTES] + gaps[at:at + GAP_BYTES] + gaps[at + 2 * GAP_BYTES:]})


def resized(unit):
    """Buffers that are shorter or longer, missing, or of another dtype or shape; headers say what there is."""
    steps = {"luts": 256, "output_positions": 4, "split_positions": 8, "gaps": GAP_BYTES}
    for buffer in BUFFERS:
        data, step = unit[buffer], steps.get(buffer, 1)
        for size in sorted({1, step, 4 * step}):
            if buffer == "split_positions" and size % 8:
                continue
            for label, new in ((f"{buffer} {size} bytes shorter", data[:-size]), (f"{buffer} {size} bytes longer", data + bytes(size))):
                if len(data) >= size or len(new) > len(data):
                    yield Fault(label, {buffer: new})
        if data:
            yield Fault(f"{buffer} empty", {buffer: b""})
        yield Fault(f"{buffer} missing", {buffer: None})
        if len(data) % 2 == 0 and data:
            yield Fault(f"{buffer} in two dimensions", {buffer: data}, {buffer: (
                "I64" if buffer == "split_positions" else "U8",
                [len(data) // 8, 1] if buffer == "split_positions" else [2, len(data) // 2])} if buffer != "luts" or len(data) != 512
                else {buffer: ("U8", [1, 512])})
        yield Fault(f"{buffer} as another dtype", {buffer: data}, {buffer: (
            "F64" if buffer == "split_positions" else "I8", tensors_of("u", {buffer: data})[f"u.{buffer}"][1])})
    positions = unit["output_positions"]
    yield Fault("output_positions with the first entry twice", {"output_positions": positions[:4] + positions})
    yield Fault("output_positions without the first entry", {"output_positions": positions[4:]})


def exchanged(unit, other):
    """Each buffer taken from another unit."""
    for buffer in BUFFERS:
        if other[buffer] != unit[buffer]:
            yield Fault(f"{buffer} of another unit", {buffer: other[buffer]})
