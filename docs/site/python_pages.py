# SPDX-License-Identifier: Apache-2.0
"""Makes the page of diesel_loader: signatures and docstrings of its modules' public names, read without importing them."""
import ast
import re

MODULES = {"diesel_loader": "__init__", "diesel_loader.torch": "torch", "diesel_loader.numpy": "numpy", "diesel_loader.transforms": "transforms/__init__",
           "diesel_loader.checkpoint": "checkpoint/__init__"}


def doc(node):
    """Returns the docstring in Markdown. Lines that begin with `name: `, behind a blank line or another item, are items of a list."""
    out, code, items = [], False, False
    for line in (ast.get_docstring(node) or "").split("\n"):
        begins = not out or not out[-1].strip() or items
        item = re.match(r"(\w+(?:, \w+)*): (.*)", line) if begins else None
        items = bool(line.strip() and (item or items))
        if re.match(r"    \S", line) and (code or not out or not out[-1].strip()):
            out += [] if code else ["```python"]
            code = True
            out.append(line[4:])
            continue
        if code and line.strip():
            out += ["```", ""]
            code = False
        text = re.sub(r"([*_<\[\]])", r"\\\1", item[2] if item else line)
        if item:
            out += ([""] if out and not out[-1].startswith(("- ", "  ")) else []) + [f"- `{item[1]}`: {text}"]
        else:
            out.append(text if not line.startswith("    ") else "  " + text.strip())
    return "\n".join(out + (["```"] if code else [])) + "\n\n"


class Module:
    def __init__(self, root, path):
        self.root, self.path = root, path
        self.tree = ast.parse(path.read_text())
        self.names = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                for name in node.names:
                    self.names[name.asname or name.name] = (node, name.name)

    def public(self):
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                return ast.literal_eval(node.value)
        return []

    def find(self, name):
        for node in self.tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
                return node, self
        if name not in self.names:
            return None
        found, other = self.names[name]
        folder = self.path.parent
        for _ in range(found.level - 1):
            folder = folder.parent
        path = folder.joinpath(*(found.module or other).split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        return Module(self.root, path).find(other) if path.exists() else None


def signature(name, node):
    arguments = ast.unparse(node.args) if node else ""
    arguments = re.sub(r"^self(, )?", "", arguments)
    line = f"{name}({arguments})" + (f" -> {ast.unparse(node.returns)}" if node and node.returns and node.name != "__init__" else "")
    if len(line) > 80:
        line = f"{name}(\n    " + ",\n    ".join(split(arguments)) + ",\n)" + line[len(f"{name}({arguments})"):]
    return f"```python\n{line}\n```\n\n"


def split(arguments):
    parts, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def members(module, node):
    """Returns methods and properties without an underscore, those of base classes of this package first."""
    found = {}
    for base in node.bases:
        at = module.find(ast.unparse(base)) if isinstance(base, ast.Name) else None
        found.update(members(at[1], at[0]) if at else {})
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_") and ast.get_docstring(part):
            found[part.name] = part
    return found


def entry(module, name, node):
    text = f"### {name}\n\n"
    if isinstance(node, ast.FunctionDef):
        return text + signature(name, node) + doc(node)
    start = next((part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)
    text += (signature(name, start) if start else "") + doc(node) + (doc(start) if start and ast.get_docstring(start) else "")
    for member, part in members(module, node).items():
        is_property = any("property" in ast.unparse(mark) for mark in part.decorator_list)
        text += f"#### {name}.{member}\n\n" + ("" if is_property else signature(member, part)) + doc(part)
    return text


def page(root):
    text = "# diesel_loader in Python\n\nThis page is made from the docstrings. [The loader](loader.md) explains what the arguments do together.\n\n"
    for name, file in MODULES.items():
        module = Module(root, root / f"{file}.py")
        text += f"## {name}\n\n{doc(module.tree)}"
        for public in module.public():
            found = module.find(public)
            if found:
                text += entry(found[1], public, found[0])
    return text
