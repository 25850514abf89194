# SPDX-License-Identifier: Apache-2.0
"""Generates diesel_loader/_abi.py, libdiesel's interface for ctypes, from its headers, and a C file that checks it against them.

    make_abi.py HEADER... ABI.py CHECK.c

Later headers may include earlier ones. Supported are #define of numbers and strings, enums, structs of plain members, and functions. On
anything else, it exits with an error that shows the line. CHECK.c does not compile if a size, offset, number or prototype differs.
"""
import ctypes
import re
import sys

SCALARS = {"int": "c_int", "float": "c_float", "double": "c_double", "char": "c_char", "size_t": "c_size_t",
           **{f"{sign}int{bits}_t": f"c_{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}}
ENDS = {f"U?INT{bits}_MAX": 2 ** bits - 1 for bits in (8, 16, 32, 64)}
TEMPLATE = '''# SPDX-License-Identifier: Apache-2.0
"""The constants, structs and functions of {headers}, by client/python/make_abi.py."""
from __future__ import annotations

from ctypes import (POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int, c_int8, c_int16, c_int32, c_int64,
                    c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

'''


class Refused(Exception):
    """Raised for an unsupported declaration."""


class Declared:
    """A parsed declarator, such as `const char *name[2]`: base type, number of pointers, and array lengths."""

    def __init__(self, base, declarator):
        match = re.fullmatch(r"((?:\*|const\b|\s)*)(\w*)((?:\[\w+\])*)", declarator.strip())
        if not match:
            raise Refused(f"{base} {declarator}")
        stars, self.name, lengths = match.groups()
        self.n_stars, self.lengths = stars.count("*"), re.findall(r"\w+", lengths)
        self.text = f"{base} {stars}{self.name}"
        self.is_const = "const" in base.split()
        self.base = " ".join(word for word in base.split() if word != "const")
        self.struct = self.base.split()[1] if self.base.startswith("struct ") else None


def several(text):
    """Parses declarations such as `uint32_t rank, world` into a list of Declared."""
    match = re.match(r"((?:(?:const|struct|enum)\s+)*\w+)", text)
    if not match:
        raise Refused(text)
    return [Declared(match[1], declarator) for declarator in text[match.end():].split(",")]


def class_name(struct):
    return "".join(word.capitalize() for word in struct.removeprefix("diesel_").split("_"))


class Headers:
    def __init__(self, texts):
        self.constants, self.structs, self.functions = {}, {}, {}
        for text in texts:
            self.header(re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL))

    def header(self, text):
        text = re.sub(r"#ifdef __cplusplus\n.*?#endif", "", text, flags=re.DOTALL)
        lines = text.replace("\\\n", " ").splitlines()
        for line in lines:
            if match := re.match(r"#define\s+(\w+)\s+(.+)", line):
                self.constants[match[1]] = self.value(match[2])
            elif line.startswith("#") and not re.match(r"#(include|pragma once)", line):
                raise Refused(line)
        text = " ".join(" ".join(line for line in lines if not line.startswith("#")).split())
        for statement in re.findall(r"[^;{]*(?:\{[^}]*\})?[^;]*;|.+$", text):
            self.statement(statement.strip())

    def value(self, text):
        """Converts a C number or string literal to Python."""
        text = re.sub(r"UINT(?:32|64)_C\((\w+)\)", r"\1", text.strip())
        text = re.sub(r"\b(0x[\da-fA-F]+|\d+)[uUlL]+\b", r"\1", text)
        for name, end in ENDS.items():
            text = re.sub(rf"\b{name}\b", str(end), text)
        if not re.fullmatch(r'"[^"\\]*"|[\w\s()+*|<-]+', text):
            raise Refused(text)
        return eval(text, {"__builtins__": {}}, self.constants)  # noqa: S307

    def statement(self, text):
        if re.fullmatch(r"struct \w+;", text):
            return
        if match := re.fullmatch(r"enum \w+ \{(.*)\};", text):
            self.enum(match[1])
        elif match := re.fullmatch(r"struct (\w+) \{(.*)\};", text):
            self.structs[match[1]] = self.members(match[2])
        elif match := re.fullmatch(r"(.*?)(\w+)\(([^()]*)\);", text):
            result, name, arguments = match.groups()
            self.functions[name] = several(result)[0], [] if arguments == "void" else [
                declared for one in arguments.split(",") for declared in several(one.strip())]
        else:
            raise Refused(text)

    def enum(self, text):
        number = -1
        for entry in filter(None, (entry.strip() for entry in text.split(","))):
            name, _, given = (part.strip() for part in entry.partition("="))
            number = self.value(given) if given else number + 1
            if not re.fullmatch(r"\w+", name):
                raise Refused(entry)
            self.constants[name] = number

    def members(self, text):
        members = [declared for one in filter(None, (one.strip() for one in text.split(";"))) for declared in several(one)]
        lengths = {declared.name for declared in members}
        return [(declared.name, self.of_member(declared, f"{declared.name}_length" in lengths)) for declared in members]

    def of_member(self, declared, has_length):
        """Returns a member's type: bytes for terminated strings, the class for a struct, an address for other pointers."""
        if declared.n_stars:
            known = declared.struct in self.structs and declared.n_stars == 1
            is_text = declared.base == "char" and declared.n_stars == 1 and not has_length
            made = f"POINTER({class_name(declared.struct)})" if known else "c_char_p" if is_text else "c_void_p"
        else:
            made = self.scalar(declared)
        for length in declared.lengths:
            made += f" * {self.value(length)}"
        return made

    def scalar(self, declared):
        if declared.base.startswith("enum "):
            return "c_int"
        if declared.struct in self.structs:
            return class_name(declared.struct)
        if declared.base not in SCALARS:
            raise Refused(f"{declared.base} {declared.name}")
        return SCALARS[declared.base]

    def of_argument(self, declared, is_result=False):
        """As of_member(). Memory that a function only reads may also be given as bytes or an address."""
        if declared.lengths or declared.n_stars > 2:
            raise Refused(f"{declared.base} {declared.name}")
        if declared.n_stars == 2:
            return "c_void_p" if declared.name and not declared.name.startswith("ret") else "POINTER(c_void_p)"
        if declared.n_stars == 0:
            return "None" if declared.base == "void" and is_result else self.scalar(declared)
        if declared.base == "char":
            return "c_char_p"
        if declared.struct in self.structs:
            return f"POINTER({class_name(declared.struct)})"
        if declared.base in ("void", "uint8_t") or declared.struct or (declared.is_const and not is_result):
            return "c_void_p"
        return f"POINTER({self.scalar(declared)})"

    def module(self, headers):
        made = TEMPLATE.format(headers=", ".join(headers))
        made += "".join(f"{name.removeprefix('DIESEL_')} = {value!r}\n" for name, value in self.constants.items())
        for struct, members in self.structs.items():
            fields = ",\n                ".join(f'("{name}", {type_of})' for name, type_of in members)
            made += f"\n\nclass {class_name(struct)}(Structure):\n    _fields_ = [{fields}]\n"
        made += "\n\nFUNCTIONS: dict[str, tuple[Any, list[Any]]] = {\n"
        for name, (result, arguments) in self.functions.items():
            made += f'    "{name}": ({self.of_argument(result, True)}, [{", ".join(map(self.of_argument, arguments))}]),\n'
        return made + "}\n"

    def check(self, headers, made):
        """Returns a C source that compiles only if the headers match what was parsed."""
        lines = ["/* SPDX-License-Identifier: Apache-2.0 */", *(f'#include "{header}"' for header in headers)]
        for name, value in self.constants.items():
            same = f"sizeof({name}) == {len(value) + 1}" if isinstance(value, str) else f"({name}) == {value}{'u' if value > 0 else ''}"
            lines.append(f'_Static_assert({same}, "{name}");')
        for struct, members in self.structs.items():
            of = made[class_name(struct)]
            lines.append(f'_Static_assert(sizeof(struct {struct}) == {ctypes.sizeof(of)}, "{struct}");')
            for name, _ in members:
                field = getattr(of, name)
                lines += [f'_Static_assert(offsetof(struct {struct}, {name}) == {field.offset}, "{struct}.{name}");',
                          f'_Static_assert(sizeof(((struct {struct} *)0)->{name}) == {field.size}, "{struct}.{name}");']
        lines += (f"{result.text}{name}({', '.join(argument.text for argument in arguments) or 'void'});"
                  for name, (result, arguments) in self.functions.items())
        return "\n".join(lines) + "\n"


def main(*arguments):
    *paths, module, check = arguments
    headers = [re.sub(r".*/include/", "", path) for path in paths]
    texts = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    found = Headers(texts)
    made = {}
    text = found.module(headers)
    exec(text, made)  # noqa: S102
    for path, content in ((module, text), (check, found.check(headers, made))):
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (Refused, NameError) as error:
        sys.exit(f"make_abi.py does not understand: {error}")
