# SPDX-License-Identifier: Apache-2.0
"""Makes the page of libdiesel: the comments of its header as text, above the declarations that they describe."""
import re
import textwrap

TITLE = re.compile(r"^(?:struct|enum) (diesel_\w+)|\b(diesel_\w+)\(", re.M)


def prose(comment):
    lines = [re.sub(r"^\s*\*? ?", "", line) for line in comment[2:-2].strip("* \n").split("\n")]
    return "\n".join(line.replace("_", r"\_").replace("*", r"\*").replace("<", "&lt;") if not line.startswith(("    ", "\t")) else line for line in lines)


def page(header):
    """Returns the page. Blocks between blank lines stay together: a comment, and the declarations below it."""
    text = ["# libdiesel in C", "", "This page shows the header `client/diesel.h`. [libdiesel(3)](libdiesel.md) has an overview, and [libdiesel.md](../how-to/libdiesel.md) has an example program.", ""]
    body = header[header.index("#pragma once") + len("#pragma once"):]
    body = re.sub(r"^#(?:if|endif|ifdef|ifndef|else)[^\n]*\n|^extern \"C\" \{\n|^\}\n", "", body, flags=re.M)
    blocks = re.findall(r"(/\*.*?\*/)|((?:(?!^/\*)[^\n]*\n)+)", body, re.S | re.M)
    about = []
    for comment, code in blocks:
        if comment:
            text += about
            about = [prose(comment), ""]
            continue
        for part in re.split(r"\n\n(?=\S)", textwrap.dedent(code).strip("\n")):
            if not part.strip():
                continue
            found = TITLE.search(part) if not part.startswith("#") else None
            title = found and (found[1] or found[2] + "()")
            if title and f"## {title}" not in text:
                text += [f"## {title}", ""]
            text += about
            about = []
            text += ["```c", part.strip("\n"), "```", ""]
    return "\n".join(text)
