# SPDX-License-Identifier: Apache-2.0
"""Makes pages of the programs and their verbs from the manuals, which the build makes from the tables of options."""
import re

PROGRAMS = ("diesel-analyze.1", "diesel-top.1", "dieselctl.1", "dieseld.8")
OTHERS = ("dieseld.conf.5", "diesel_loader.3", "libdiesel.3")
FONTS = {"B": "b", "I": "i", "R": "r"}


def escaped(text):
    return re.sub(r"([*_<>|\[\]`#])", r"\\\1", text)


def styled(text, font):
    if not text.strip() or font == "r":
        return escaped(text)
    if text != text.strip():
        return re.sub(r"\S(.*\S)?", lambda found: styled(found[0], font), text)
    if font == "i":
        return f"*{escaped(text)}*"
    return f"``{text}``" if "`" in text else f"`{text}`"


def plain(text):
    return text.replace("\\&", "").replace("\\-", "-").replace("\\e", "\\").replace("\\(bu", "*").replace("\\ ", " ")


def inline(text):
    """Returns a line of text in Markdown; its fonts are \\fB, \\fI and \\fR."""
    parts, font = [], "r"
    for piece in re.split(r"(\\f[BIR])", text):
        if piece.startswith("\\f"):
            font = FONTS[piece[2]]
        else:
            parts.append(styled(plain(piece), font))
    return "".join(parts)


def macro(name, rest):
    """Returns the text of a line such as `.BR dieseld (8)`."""
    words = [a or b for a, b in re.findall(r'"([^"]*)"|(\S+)', rest)]
    if len(name) == 1:
        return inline(f"\\f{name}{' '.join(words)}")
    return "".join(styled(plain(word), FONTS[name[i % 2]]) for i, word in enumerate(words))


def markdown(roff):
    """Returns the pages' text in Markdown; definition lists stand for tagged paragraphs."""
    blocks, paragraph, stack, depth, term, code = [], [], [], 0, None, False

    def end():
        nonlocal paragraph, term
        if paragraph:
            text, pad = " ".join(paragraph), "    " * depth
            if term == "body":
                blocks.append("    " * (depth - 1) + ":   " + text)
                term = None
            else:
                blocks.append(pad + text)
            blocks.append("")
        paragraph = []

    for line in roff.splitlines():
        name, _, rest = line.partition(" ")
        if line.startswith('.\\"') or name == ".TH":
            continue
        if name in (".EE", ".fi"):
            blocks += ["    " * depth + "```", ""]
            code = False
        elif code:
            blocks.append("    " * depth + plain(re.sub(r"\\f[BIR]", "", line)))
        elif name in (".EX", ".nf"):
            end()
            blocks.append("    " * depth + "```text")
            code = True
        elif name in (".SH", ".SS"):
            end()
            depth, stack, title = 0, [], plain(rest.strip('"'))
            blocks += [("## " if name == ".SH" else "### ") + escaped(title.capitalize() if title.isupper() else title), ""]
        elif name == ".TP":
            end()
            depth, term = len(stack), "term"
        elif name == ".RS":
            end()
            stack.append(depth)
            depth = len(stack)
        elif name == ".RE":
            end()
            depth = stack.pop() if stack else 0
        elif name == ".PP":
            end()
            depth = len(stack)
        elif name in (".IP", ".br"):
            end()
            if rest.startswith("\\(bu"):
                paragraph.append("-")
        else:
            text = macro(name[1:], rest) if re.fullmatch(r"\.[BIR]{1,2}", name) else inline(line)
            if term == "term":
                blocks += ["    " * depth + text]
                depth, term = depth + 1, "body"
            else:
                paragraph.append(text)
    end()
    return "\n".join(blocks) + "\n"


def manuals_of(made, manuals):
    """Yields (file name, text) of each manual: the one from the build, if the build makes it."""
    for file in PROGRAMS + OTHERS:
        yield file, (made / file if (made / file).exists() else manuals / file).read_text()


def verb_page(title, roff):
    synopsis, rest = re.search(r"^\.SH SYNOPSIS\n(.*?)^\.SH DESCRIPTION\n(.*)", roff, re.S | re.M).groups()
    return f"# {title}\n\n{markdown(synopsis)}\n{markdown(rest)}"


def pages(made, manuals):
    """Returns {name of a page: its text}. A verb that has a manual has a page."""
    result = {}
    for file, roff in manuals_of(made, manuals):
        name = file[:-2]
        verbs = {path.stem: f"{name} {path.stem[len(name) + 1:]}" for path in sorted(made.glob(f"{name}-*.1"))}
        listed = "".join(f"- [{title}]({page}.md)\n" for page, title in verbs.items())
        text = markdown(re.sub(r"(?<=^\.SH VERBS\n).*?(?=^\.SH )", "", roff, flags=re.S | re.M))
        result[name] = f"# {name}({file[-1]})\n\n" + text.replace("## Verbs\n", f"## Verbs\n\n{listed}")
        result |= {page: verb_page(title, (made / f"{page}.1").read_text()) for page, title in verbs.items()}
    return result


def environment(made, manuals):
    text = "# Environment variables\n\nEach program reads the variables of its section. The manual pages have the same lists.\n\n"
    for file, roff in manuals_of(made, manuals):
        found = re.search(r"^\.SH ENVIRONMENT\n(.*?)(?=^\.SH |\Z)", roff, re.S | re.M)
        if found:
            text += f"## {file[:-2]}\n\n{markdown(found[1])}\n"
    return text
