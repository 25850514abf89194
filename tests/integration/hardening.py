# SPDX-License-Identifier: Apache-2.0
"""Traces of hardening that the linker and the compiler must leave in an installed file (cmake/DieselTargets.cmake),
read from the file itself."""
import re
import struct

PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_GNU_STACK, PT_GNU_RELRO = 2, 3, 4, 0x6474e551, 0x6474e552
DT_STRTAB, DT_STRSZ, DT_FLAGS, DT_BIND_NOW, DT_FLAGS_1, DT_TEXTREL = 5, 10, 30, 24, 0x6ffffffb, 22
DF_TEXTREL, DF_BIND_NOW, DF_1_NOW = 4, 8, 1
ET_DYN, EM_X86_64 = 3, 62
PF_X = 1
SHT_DYNSYM = 11


class File:
    """A 64-bit little-endian ELF file."""

    def __init__(self, data):
        assert data[:6] == b"\x7fELF\x02\x01", "not such a file"
        self.data = data
        self.type, self.machine = struct.unpack_from("<HH", data, 16)
        start, = struct.unpack_from("<Q", data, 32)
        size, n = struct.unpack_from("<HH", data, 54)
        self.segments = [struct.unpack_from("<IIQQQQ", data, start + i * size) for i in range(n)]

    def segment(self, kind):
        return next((s for s in self.segments if s[0] == kind), None)

    def dynamic(self):
        _, _, offset, _, _, size = self.segment(PT_DYNAMIC)
        return dict(struct.iter_unpack("<QQ", self.data[offset:offset + size]))

    def imported(self):
        """Returns the names that it imports from other files."""
        tables, (start, size, n) = [], (*struct.unpack_from("<Q", self.data, 40), *struct.unpack_from("<HH", self.data, 58))
        sections = [struct.unpack_from("<IIQQQQIIQQ", self.data, start + i * size) for i in range(n)]
        for section in sections:
            if section[1] == SHT_DYNSYM:
                tables.append((section[4], section[5], sections[section[6]][4]))
        names = set()
        for offset, length, strings in tables:
            for name, _, _, defined_in, _, _ in struct.iter_unpack("<IBBHQQ", self.data[offset:offset + length]):
                if name and not defined_in:
                    names.add(self.data[strings + name:self.data.index(b"\0", strings + name)].decode())
        return names


def has_canaries(file):
    """For functions linked statically that are called on damage: returns whether functions read the word at %fs:0x28 that they put on their
    stack."""
    return file.machine == EM_X86_64 and len(re.findall(rb"\x64\x48[\x8b\x2b\x3b\x33].\x25\x28\0\0\0", file.data, re.S)) > 100


def problems(data, checks=True):
    """Returns the hardening that a program or library lacks, in words. checks: whether it calls the checked functions of
    _FORTIFY_SOURCE."""
    file = File(data)
    dynamic, imported, stack = file.dynamic(), file.imported(), file.segment(PT_GNU_STACK)
    holds = {
        "it is not position independent": file.type == ET_DYN,
        "symbols are bound lazily (-z now)": (DT_BIND_NOW in dynamic or dynamic.get(DT_FLAGS, 0) & DF_BIND_NOW
                                              or dynamic.get(DT_FLAGS_1, 0) & DF_1_NOW),
        "its tables stay writable (-z relro)": file.segment(PT_GNU_RELRO),
        "its stack is executable": stack and not stack[1] & PF_X,
        "its code is relocated": DT_TEXTREL not in dynamic and not dynamic.get(DT_FLAGS, 0) & DF_TEXTREL,
        "it has no stack protector": "__stack_chk_fail" in imported or has_canaries(file),
        "nothing in it is fortified": not checks or any(re.fullmatch(r"__\w+_chk", name) for name in imported - {"__stack_chk_fail"}),
        # On x86 each function that can be called through a pointer begins with endbr64.
        "its branches are not protected": file.machine != EM_X86_64 or data.count(b"\xf3\x0f\x1e\xfa") > 100,
    }
    return [what for what, good in holds.items() if not good]


def is_elf(data):
    return data[:4] == b"\x7fELF"
