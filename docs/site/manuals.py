# SPDX-License-Identifier: Apache-2.0
"""Pages of the programs and their verbs, made of the manuals, which the build makes of the tables of options."""
import re
import subprocess

PROGRAMS = ("diesel-analyze.1", "diesel-top.1", "dieselctl.1", "dieseld.8")
OTHERS = ("dieseld.conf.5", "diesel_loader.3", "libdiesel.3")
FONTS = {"B": "b", "I": "i", "R": "r"}
VERB = re.compile(r"^  ([a-z][a-z-]*)  +\S", re.M)


def escaped(text):
    return re.sub(r"([*_<>|\[\]`#])", r"\\\1", text)


def styled(text, font):
    if not text.strip() or font == "r":
        return escaped(text)
    if font == "i":
        return f"*{escaped(text)}*"
    return f"``{text}``" if "`" in text else f"`{text}`"


def plain(text):
    return text.replace("\\&", "").replace("\\-", "-").replace("\\e", "\\").replace("\\(bu", "*").replace("\\ ", " ")


def inline(text):
    """A line of text with \\fB, \\fI and \\fR."""
    parts, font = [], "r"
    for piece in re.split(r"(\\f[BIR])", text):
        if piece.startswith("\\f"):
            font = FONTS[piece[2]]
        else:
            parts.append(styled(plain(piece), font))
    return "".join(parts)


def macro(name, rest):
    """The text of a line such as `.BR dieseld (8)`."""
    words = [a or b for a, b in re.findall(r'"([^"]*)"|(\S+)', rest)]
    if len(name) == 1:
        return styled(plain(" ".join(words)), FONTS[name])
    return "".join(styled(plain(word), FONTS[name[i % 2]]) for i, word in enumerate(words))


def markdown(roff):
    """The pages' text in Markdown; definition lists stand for tagged paragraphs."""
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
        else:
            text = macro(name[1:], rest) if re.fullmatch(r"\.[BIR]{1,2}", name) else inline(line)
            if term == "term":
                blocks += ["    " * depth + text]
                depth, term = depth + 1, "body"
            else:
                paragraph.append(text)
    end()
    return "\n".join(blocks) + "\n"


def printed(programs, *command):
    return subprocess.run([programs / command[0], *command[1:]], check=True, stdout=subprocess.PIPE, text=True).stdout


def verbs_of(programs, name):
    """The verbs that the program's --help lists, before its options."""
    verbs = []
    for part in printed(programs, name, "--help").split("\n\n")[1:]:
        found = VERB.findall(part)
        if found and "--" in found[0]:
            break
        verbs += found
    return verbs


def verb_parts(programs, name):
    """The manual's part for each verb with options of its own: {verb: roff}."""
    parts, depth, verb = {}, 0, None
    lines = printed(programs, name, "--print-options", "verbs").splitlines()
    for i, line in enumerate(lines):
        depth += (line == ".RS") - (line == ".RE")
        if depth == 0 and line == ".TP":
            verb = plain(lines[i + 1].split()[1])
            parts[verb] = []
        elif line not in (".RS", ".RE") and not (depth == 0 and lines[i - 1] == ".TP"):
            parts[verb].append(line)
    return {verb: "\n".join(part) for verb, part in parts.items()}


def verb_page(programs, name, verb, part):
    help_text = printed(programs, name, verb, "--help")
    usage = re.sub(r"^usage: ", "", help_text.split("\n\n")[0]).replace("\n       ", "\n")
    about, _, options = part.partition("\n.TP\n")
    text = f"# {name} {verb}\n\n```text\n{usage}\n```\n\n{markdown(about)}\n"
    if options:
        return text + "## Options\n\n" + markdown(".TP\n" + options) + f"\n[All of {name}]({name}.md)\n"
    return text + f"## Options\n\n```text\n{help_text}```\n\nThe page of [{name}]({name}.md) has more on each.\n"


def manuals_of(made, manuals):
    """(file name, text) of each manual: the build's where it makes one."""
    for file in PROGRAMS + OTHERS:
        yield file, (made / file if (made / file).exists() else manuals / file).read_text()


def pages(programs, made, manuals):
    """{name of a page: its text}"""
    result = {}
    for file, roff in manuals_of(made, manuals):
        name = file.rsplit(".", 1)[0]
        title = f"{name}({file[-1]})"
        verbs = verbs_of(programs, name) if file in PROGRAMS else []
        if verbs:
            parts = verb_parts(programs, name)
            roff = re.sub(r"^\.SH VERBS\n.*?(?=^\.SH )", "", roff, flags=re.S | re.M)
            for verb in verbs:
                result[f"{name}-{verb}"] = verb_page(programs, name, verb, parts[verb])
        text = markdown(roff)
        if verbs:
            listed = "\n".join(f"- [{name} {verb}]({name}-{verb}.md)" for verb in verbs)
            text = re.sub(r"(?m)^## Description$", lambda _: f"## Verbs\n\n{listed}\n\n## Description", text, count=1)
        result[name] = f"# {title}\n\n{text}"
    return result


def environment(made, manuals):
    text = "# Environment variables\n\nEach program reads the variables of its section. The manual pages have the same lists.\n\n"
    for file, roff in manuals_of(made, manuals):
        found = re.search(r"^\.SH ENVIRONMENT\n(.*?)(?=^\.SH |\Z)", roff, re.S | re.M)
        if found:
            text += f"## {file[:-2]}\n\n{markdown(found[1])}\n"
    return text
