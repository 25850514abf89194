# SPDX-License-Identifier: Apache-2.0
"""CO-RE relocations: changes that libbpf makes to a BPF object before it loads it, as a kernel's types require. A
program whose field or type is not there gets an instruction that the verifier refuses, unless the program does not
reach it."""
import collections
import struct

INT, PTR, ARRAY, STRUCT, UNION, ENUM, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FUNC_PROTO, VAR, DATASEC, FLOAT, DECL_TAG, TYPE_TAG, \
    ENUM64 = range(1, 20)
MODIFIERS = (TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG)
TAIL = {INT: (4, False), ARRAY: (12, False), STRUCT: (12, True), UNION: (12, True), ENUM: (8, True), FUNC_PROTO: (8, True), VAR: (4, False),
        DATASEC: (12, True), DECL_TAG: (4, False), ENUM64: (12, True)}

# Kinds of relocations.
BYTE_OFFSET, BYTE_SIZE, EXISTS, SIGNED, LSHIFT, RSHIFT, ID_LOCAL, ID_TARGET, TYPE_EXISTS, TYPE_SIZE, ENUM_EXISTS, ENUM_VALUE, \
    TYPE_MATCHES = range(13)
ASKS = (EXISTS, TYPE_EXISTS, ENUM_EXISTS, TYPE_MATCHES)

Type = collections.namedtuple("Type", "kind name size vlen tail")  # size: or the type it refers to
Relocation = collections.namedtuple("Relocation", "at type access kind")


class Btf:
    def __init__(self, data):
        head, types_at, types, text_at, text = struct.unpack_from("<IIIII", data, 4)
        self.text = data[head + text_at:head + text_at + text]
        self.types = [Type(0, "", 0, 0, b"")]
        self.named = collections.defaultdict(list)
        at, end = head + types_at, head + types_at + types
        while at < end:
            name, info, size = struct.unpack_from("<III", data, at)
            kind, vlen = info >> 24 & 0x1f, info & 0xffff
            width, each = TAIL.get(kind, (0, False))
            width *= vlen if each else 1
            self.named[essential(self.string(name))].append(len(self.types))
            self.types.append(Type(kind, self.string(name), size, vlen, data[at + 12:at + 12 + width]))
            at += 12 + width

    def string(self, at):
        return self.text[at:self.text.index(b"\0", at)].decode()

    def plain(self, number):
        """The type without typedefs and the like."""
        while self.types[number].kind in MODIFIERS:
            number = self.types[number].size
        return number

    def members(self, number):
        """(name, type) of a structure or union, in order."""
        found = self.types[number]
        return [(self.string(name), of) for name, of, _ in struct.iter_unpack("<III", found.tail)] if found.kind in (STRUCT, UNION) else []

    def member(self, number, name):
        """The type of a member, also of one within a structure or union without a name; None: there is none."""
        for own, of in self.members(number):
            inner = None if own else self.member(self.plain(of), name)
            if own == name or inner is not None:
                return of if own == name else inner
        return None

    def element(self, number):
        found = self.types[number]
        return struct.unpack_from("<I", found.tail)[0] if found.kind == ARRAY else None

    def enumerators(self, number):
        found = self.types[number]
        width = 12 if found.kind == ENUM64 else 8
        return [self.string(struct.unpack_from("<I", found.tail, i * width)[0]) for i in range(found.vlen)]

    def bytes_of(self, number):
        found = self.types[self.plain(number)]
        if found.kind == ARRAY:
            of, _, n = struct.unpack("<III", found.tail)
            return n * self.bytes_of(of)
        return 8 if found.kind == PTR else found.size

    def is_unsigned(self, number):
        found = self.types[self.plain(number)]
        return found.kind == PTR or found.kind == INT and not found.tail[3] & 1


def essential(name):
    """Returns the part of a name before ___, which names the type; the part after it names its form."""
    return name.split("___")[0]


class Writer:
    """Adds types to raw type information."""

    def __init__(self, data):
        head, types_at, types, text_at, text = struct.unpack_from("<IIIII", data, 4)
        self.head = data[:4]
        self.types = bytearray(data[head + types_at:head + types_at + types])
        self.text = bytearray(data[head + text_at:head + text_at + text])
        self.n = len(Btf(data).types)

    def data(self):
        return self.head + struct.pack("<IIIII", 24, 0, len(self.types), len(self.types), len(self.text)) + self.types + self.text

    def string(self, text):
        self.text += text.encode() + b"\0"
        return len(self.text) - len(text) - 1

    def add(self, kind, name="", size=0, vlen=0, tail=b""):
        self.types += struct.pack("<III", self.string(name) if name else 0, kind << 24 | vlen, size) + tail
        self.n += 1
        return self.n - 1

    def hook(self, kernel, name):
        """A tracepoint, with the number of its arguments and the names of the structures that they point to."""
        for number in kernel.named[name]:
            proto = kernel.types[kernel.types[kernel.types[number].size].size]
            arguments = [self.argument(kernel, of) for _, of in struct.iter_unpack("<II", proto.tail)]
            tail = b"".join(struct.pack("<II", 0, of) for of in arguments)
            self.add(TYPEDEF, name, self.add(PTR, size=self.add(FUNC_PROTO, vlen=len(arguments), tail=tail)))

    def argument(self, kernel, number):
        of = kernel.types[kernel.plain(number)]
        to = kernel.types[kernel.plain(of.size)] if of.kind == PTR else of
        return self.add(PTR, size=self.add(FWD, to.name)) if to.kind in (STRUCT, FWD) else 0

    def function(self, kernel, name):
        if any(kernel.types[number].kind == FUNC for number in kernel.named[name]):
            self.add(FUNC, name, self.add(FUNC_PROTO))

    def enumerator(self, kernel, name, wanted):
        names = [word for number in kernel.named[name] for word in kernel.enumerators(number)]
        tail = struct.pack("<II", self.string(wanted), names.index(wanted)) if wanted in names else b""
        self.add(ENUM, name, 4, len(tail) // 8, tail)


class Object:
    """The programs of a BPF object, with their instructions and relocations."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.read_sections()
        self.btf = Btf(self.section(".BTF"))
        self.functions = {}  # name: (section, first, end), in instructions
        self.read_functions()
        self.relocations = collections.defaultdict(dict)  # of a section, by instruction
        self.read_relocations()

    def read_sections(self):
        at, = struct.unpack_from("<Q", self.data, 0x28)
        size, n, names = struct.unpack_from("<HHH", self.data, 0x3a)
        heads = [struct.unpack_from("<IIQQQQIIQQ", self.data, at + i * size) for i in range(n)]
        texts = heads[names][4]
        self.sections = [(self.data[texts + h[0]:self.data.index(b"\0", texts + h[0])].decode(), h[4], h[5], h[6]) for h in heads]

    def section(self, name):
        return next(self.data[at:at + size] for own, at, size, _ in self.sections if own == name)

    def read_functions(self):
        texts = self.section(".strtab")
        for name, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", self.section(".symtab")):
            if info & 15 == 2:
                self.functions[texts[name:texts.index(b"\0", name)].decode()] = (self.sections[section][0], value // 8, (value + size) // 8)

    def read_relocations(self):
        data = self.section(".BTF.ext")
        head, = struct.unpack_from("<I", data, 4)
        at, size = struct.unpack_from("<II", data, 24)
        at += head
        end, width = at + size, struct.unpack_from("<I", data, at)[0]
        at += 4
        while at < end:
            name, n = struct.unpack_from("<II", data, at)
            at += 8
            for _ in range(n):
                where, of, access, kind = struct.unpack_from("<IIII", data, at)
                self.relocations[self.btf.string(name)][where // 8] = Relocation(where // 8, of, self.btf.string(access), kind)
                at += width

    def words(self, relocation):
        """Returns the subject of a relocation, for people."""
        name = self.btf.types[self.btf.plain(relocation.type)].name or self.btf.types[relocation.type].name
        if relocation.kind in (ENUM_EXISTS, ENUM_VALUE):
            return f"{name}::{self.btf.enumerators(self.btf.plain(relocation.type))[int(relocation.access)]}"
        return ".".join([name] + [str(step) for step in (self.path(relocation) if relocation.kind <= RSHIFT else ([], 0))[0]])

    def path(self, relocation):
        """The names and indices from a structure to a field, and the field's type."""
        number, steps = self.btf.plain(relocation.type), []
        for index in [int(word) for word in relocation.access.split(":")][1:]:
            if self.btf.types[number].kind == ARRAY:
                steps.append(index)
                of = self.btf.element(number)
            else:
                name, of = self.btf.members(number)[index]
                if name:
                    steps.append(name)
            number = self.btf.plain(of)
        return steps, number

    def is_there(self, relocation, kernel):
        """Whether a kernel has what a relocation is about."""
        local = self.btf.types[relocation.type if relocation.kind in (ID_TARGET, TYPE_EXISTS, TYPE_SIZE) else self.btf.plain(relocation.type)]
        for number in kernel.named[essential(local.name)]:
            if kernel.types[number].kind not in ((ENUM, ENUM64) if local.kind in (ENUM, ENUM64) else (local.kind,)):
                continue
            if relocation.kind in (ENUM_EXISTS, ENUM_VALUE):
                if self.words(relocation).split("::")[1] in kernel.enumerators(number):
                    return True
            elif relocation.kind > RSHIFT or self.field_is_there(relocation, kernel, number):
                return True
        return False

    def field_is_there(self, relocation, kernel, number):
        steps, local = self.path(relocation)
        for step in steps:
            number = kernel.plain(number)
            of = kernel.element(number) if isinstance(step, int) else kernel.member(number, step)
            if of is None:
                return False
            number = of
        return kernel.types[kernel.plain(number)].kind == self.btf.types[local].kind and self.fits(relocation, kernel, local, number)

    def fits(self, relocation, kernel, local, number):
        """libbpf fits the size of a load, if no sign has to be extended."""
        if relocation.kind != BYTE_OFFSET or self.btf.bytes_of(local) == kernel.bytes_of(number) or \
                self.btf.types[local].kind not in (INT, PTR):
            return True
        return self.btf.is_unsigned(local) and kernel.is_unsigned(number)

    def lacks(self, program, kernel):
        """Returns the types and fields that a program needs and the kernel lacks, in words."""
        section, first, end = self.functions[program]
        relocations = self.relocations[section]
        there = {at: self.is_there(relocation, kernel) for at, relocation in relocations.items()
                 if first <= at < end and relocation.kind != ID_LOCAL}
        code = list(struct.iter_unpack("<BBhi", self.section(section)))
        poison = {at for at, is_there in there.items() if not is_there and relocations[at].kind not in ASKS}
        known = {at: int(is_there) for at, is_there in there.items() if relocations[at].kind in ASKS}
        return sorted({self.words(relocations[at]) for at in poison & reached(code, first, known)})


def jump(code, left, right):
    """Whether a conditional jump of two known numbers is taken; None: nobody knows."""
    compare = {0x10: left == right, 0x50: left != right, 0x20: left > right, 0x30: left >= right, 0xa0: left < right, 0xb0: left <= right}
    return compare.get(code & 0xf0)


def reached(code, first, known):
    """The instructions of a function that can run. known: the numbers that some of them load, by instruction."""
    todo, seen = [(first, ())], set()
    while todo:
        at, numbers = state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        op, registers, offset, value = code[at]
        to, source, kind = registers & 15, registers >> 4, op & 7
        numbers = dict(numbers)
        follow = [at + (2 if op == 0x18 else 1)]
        if kind in (5, 6):
            if op == 0x95:
                follow = []
            elif op == 0x85:
                numbers = {number: n for number, n in numbers.items() if number > 5}
            elif op == 0x05:
                follow = [at + 1 + offset]
            else:
                taken = jump(op, numbers[to], value) if to in numbers and not op & 8 else None
                follow = ([at + 1 + offset] if taken is not False else []) + ([at + 1] if not taken else [])
        elif at in known:
            numbers[to] = known[at]
        elif op in (0xbf, 0xbc) and source in numbers:
            numbers[to] = numbers[source]
        elif kind in (0, 1, 4, 7):
            numbers.pop(to, None)
        todo += [(next_at, tuple(sorted(numbers.items()))) for next_at in follow]
    return {at for at, _ in seen}
