# SPDX-License-Identifier: Apache-2.0
"""Tests files that an operator reads and copies: man pages, completions (by the shells themselves), Kubernetes and Slurm files."""
import concurrent.futures
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../.."))
BIN = os.path.abspath(os.environ.get("DIESEL_BIN", "build/release/bin"))
ANALYZE_VERBS = ("record", "report", "diff", "what-if", "plan", "check", "dump", "truth")
PROGRAMS = ("diesel-analyze", "diesel-top", "dieselctl", "dieseld")
MAN = os.path.join(ROOT, "docs/man")
MADE = os.path.join(BIN, "../made")  # of the tables of options and verbs
# Long lines are fine: they keep related text together in a diff.
NO_MISTAKES = ("input text line longer than 80 bytes", "missing date")

ZSH = r"""
zmodload zsh/zpty
zpty -b shell zsh -f -i
zpty -w shell 'PS1=; stty -echo cols 200 rows 200; fpath=($MADE $fpath); autoload -Uz compinit; compinit -u -d $DUMP; zstyle ":completion:*" list-separator "--"; setopt no_beep list_ambiguous; LISTMAX=1000; bindkey "^I" list-choices; print READY'
zpty -r shell line '*READY*'
zpty -w -n shell "$LINE"$'\t'
# One line at a time; a second of silence behind the list is its end.
silent=0
for ((i = 0; i < 600 && silent < 10; i++)); do
    if zpty -r -t shell line; then
        out+=$line; silent=0
    else
        sleep 0.1
        (( ${#out} > 300 )) && (( silent++ ))
    fi
done
print -r -- $out
zpty -d shell
"""


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **more)


def help_of(*command):
    done = run(os.path.join(BIN, command[0]), *command[1:], "--help")
    assert done.returncode == 0, done.stderr
    return done.stdout


def options_of(*command):
    """Returns the options in its help, without those of another program there ("dieseld --history")."""
    return set(re.findall(r"(?<!dieseld )--[a-z][a-z-]+", help_of(*command)))


def pages():
    """Yields the manuals by name; generated ones take precedence."""
    found = {os.path.basename(page): page for page in glob.glob(os.path.join(MAN, "*"))}
    return found | {os.path.basename(page): page for page in glob.glob(os.path.join(MADE, "*.[158]"))}


def page(name):
    with open(pages()[name]) as file:
        return file.read().replace("\\-", "-")


def verbs():
    return set(re.findall(r"(?m)^  ([a-z]+) +[A-Z]", help_of("dieselctl")))


def key_file(test):
    """Makes a key file that nodes accept."""
    path = os.path.join(test.enterContext(tempfile.TemporaryDirectory()), "cluster.key")
    with open(path, "w") as file:
        file.write("0123456789abcdef" * 2 + "\n")
    os.chmod(path, 0o400)
    return path


class Manual(unittest.TestCase):
    def test_every_program_and_interface_has_a_page(self):
        self.assertLessEqual({"diesel-analyze.1", "diesel-top.1", "dieselctl.1", "dieseld.8", "dieseld.conf.5",
                              "libdiesel.3", "diesel_loader.3"} | {f"dieselctl-{verb}.1" for verb in verbs()} |
                             {f"diesel-analyze-{verb}.1" for verb in ANALYZE_VERBS}, set(pages()))

    def test_mandoc(self):
        if not shutil.which("mandoc"):
            self.skipTest("no mandoc")
        for path in pages().values():
            said = [line for line in run("mandoc", "-T", "lint", path).stdout.splitlines()
                    if not any(known in line for known in NO_MISTAKES)]
            self.assertEqual(said, [])

    def test_man(self):
        if not shutil.which("man"):
            self.skipTest("no man")
        for path in pages().values():
            done = run("man", "--warnings", "-E", "UTF-8", "-l", path, env={**os.environ, "MANPAGER": "cat"})
            self.assertEqual((done.returncode, done.stderr), (0, ""), path)
            self.assertIn("NAME", done.stdout)

    def test_each_program_takes_the_same(self):
        for name in ("dieseld", "dieselctl", "diesel-analyze", "diesel-top"):
            program = os.path.join(BIN, name)
            self.assertEqual(run(program, "-h").stdout, run(program, "--help").stdout)
            self.assertEqual(run(program, "-V").stdout, run(program, "--version").stdout)
            self.assertRegex(run(program, "--nonsense").stderr, rf"no option --nonsense\. Try '{name} --help' for more information\.\n")

    def test_each_verb_prints_the_version(self):
        for program, verb in [("dieselctl", verb) for verb in verbs()] + [("diesel-analyze", verb) for verb in ANALYZE_VERBS]:
            done = run(os.path.join(BIN, program), verb, "-V")
            self.assertEqual((done.returncode, done.stdout), (0, run(os.path.join(BIN, program), "-V").stdout), verb)

    def test_pages_have_what_the_help_has(self):
        for program, name in (("dieseld", "dieseld.8"), ("diesel-top", "diesel-top.1"), ("diesel-analyze", "diesel-analyze.1")):
            for option in options_of(program):
                self.assertIn(option, page(name), name)
        text = page("dieselctl.1")
        for verb in verbs():
            self.assertRegex(text, rf"(?m)^\.B {verb}\b")
            for option in options_of("dieselctl", verb) - {"--help"}:
                self.assertIn(option, text, verb)
                self.assertIn(option, page(f"dieselctl-{verb}.1"))
        for verb in ANALYZE_VERBS:
            for option in options_of("diesel-analyze", verb):
                self.assertIn(option, page(f"diesel-analyze-{verb}.1"))

    def test_a_setting_of_the_file_is_described(self):
        text = page("dieseld.conf.5")
        with open(os.path.join(MADE, "dieseld.conf")) as file:
            shipped = file.read()
        not_settings = {"config", "check-config", "ready-fd", "verbose", "help", "version"}
        for option in set(re.findall(r"--([a-z][a-z-]+)", help_of("dieseld"))) - not_settings:
            self.assertRegex(text, rf"\b{option}\b")
            self.assertRegex(shipped, rf"(?m)^;{option} = ")

    def test_the_shipped_file_is_right_as_it_is_and_with_all_in_force(self):
        with open(os.path.join(MADE, "dieseld.conf")) as file:
            text = file.read()
        for content in (text, re.sub(r"(?m)^;", "", text)):
            with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
                file.write(content.replace("/etc/diesel/cluster.key", key_file(self)))
                file.flush()
                done = run(os.path.join(BIN, "dieseld"), "--check-config", "--config", file.name)
                self.assertEqual(done.returncode, 0, done.stderr)


    def test_the_samples_of_the_manual_are_right(self):
        samples = re.findall(r"(?ms)^\.EX\n(\[dieseld\]\n.*?)^\.EE", page("dieseld.conf.5"))
        self.assertGreater(len(samples), 1)
        for sample in samples:
            with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
                file.write(sample)
                file.flush()
                done = run(os.path.join(BIN, "dieseld"), "--check-config", "--config", file.name)
                self.assertEqual((done.returncode, done.stderr), (0, ""), sample)


class Bash(unittest.TestCase):
    def complete(self, *words):
        """Returns bash's completions of the last word."""
        script = (f'for f in {MADE}/*.bash; do . "$f"; done; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                  'function=$(complete -p "$1" | sed "s/.*-F \\([^ ]*\\).*/\\1/"); "$function" "$1"; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        done = run("bash", "-c", script, "bash", *words, env={**os.environ, "PATH": BIN + ":" + os.environ["PATH"]})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return set(done.stdout.split())

    def test_every_verb_and_option_of_the_help_is_offered(self):
        self.assertLessEqual(verbs(), self.complete("dieselctl", ""))
        for verb in verbs() - {"snapshot", "rebuild"}:
            options = options_of("dieselctl", verb)
            self.assertLessEqual(options, self.complete("dieselctl", verb, "--"), verb)
        for program in ("dieseld", "diesel-top"):
            options = options_of(program)
            self.assertLessEqual(options, self.complete(program, "--"), program)

    def test_every_option_of_diesel_analyze_is_offered_by_the_verbs_that_take_it(self):
        offered = {verb: {word for word in self.complete("diesel-analyze", *verb, "--") if len(word) > 2}
                   for verb in ((), *((verb,) for verb in ANALYZE_VERBS))}
        self.assertLessEqual(options_of("diesel-analyze"), set().union(*offered.values()))
        self.assertLessEqual(set(ANALYZE_VERBS), self.complete("diesel-analyze", ""))

    def test_nothing_is_offered_that_is_not_in_the_manual(self):
        lines = [("dieseld",), ("diesel-top",), *(("dieselctl", verb) for verb in verbs()),
                 ("diesel-analyze",), *(("diesel-analyze", verb) for verb in ANALYZE_VERBS)]
        for words in lines:
            text = page(words[0] + (".8" if words[0] == "dieseld" else ".1"))
            for option in self.complete(*words, "--") - {"--", "--help", "--version"}:
                self.assertTrue(re.search(rf"{option}(?![a-z-])", text), f"{words}: {option}")

    def test_values(self):
        self.assertEqual(self.complete("dieselctl", "set", "--tune", "d"), {"dry-run"})
        self.assertIn("client-workers=", self.complete("dieselctl", "set", ""))
        self.assertEqual(self.complete("dieselctl", "set", "--limit", "cache-ma"), {"cache-max="})
        self.assertEqual(self.complete("dieseld", "--tune", "o"), {"on", "off"})
        self.assertEqual(self.complete("diesel-analyze", "report", "--format", "ht"), {"html"})


class Zsh(unittest.TestCase):
    def complete(self, line):
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "MADE": MADE, "DUMP": os.path.join(folder, "dump"), "LINE": line,
                   "PATH": BIN + ":" + os.environ["PATH"], "TERM": "dumb", "HOME": folder}
            done = run("zsh", "-f", "-c", ZSH, env=env, cwd=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def setUp(self):
        if not shutil.which("zsh"):
            self.skipTest("no zsh")

    def test_verbs(self):
        said = self.complete("dieselctl ")
        for verb in verbs():
            self.assertRegex(said, rf"\b{verb}\b")

    def test_options(self):
        for program in ("dieseld", "diesel-top"):
            said = self.complete(f"{program} --")
            for option in options_of(program):
                self.assertIn(option, said, program)
        for verb in ("what-if", "truth"):
            said = self.complete(f"diesel-analyze {verb} --")
            for option in options_of("diesel-analyze", verb):
                self.assertIn(option, said, verb)
        self.assertIn("client-workers=", self.complete("dieselctl set "))
        self.assertIn("perfetto", self.complete("diesel-analyze report --format "))


class Slurm(unittest.TestCase):
    """Tests the prolog and the epilog by themselves; test_cluster_slurm.py has Slurm run them. The commands that they call are stand-ins,
    except dieselctl."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.socket = os.path.join(self.folder, "dieseld.sock")
        self.stub("logger", "exit 1")
        self.stub("systemctl", f'echo "$@" >>{self.folder}/asked; exit 1')

    def stub(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write("#!/bin/bash\n" + text + "\n")
        os.chmod(path, 0o755)

    def script(self, name, **settings):
        """Returns the script's output. It exits with 0 in any case, and well before the limit here."""
        with open(os.path.join(ROOT, f"packaging/slurm/{name}.sh")) as file:
            text, n = re.subn(r"(?m)^PATH=.*$", f"PATH={self.folder}:{BIN}:/usr/bin:/bin", file.read())
        self.assertEqual(n, 1)
        fd, path = tempfile.mkstemp(dir=self.folder)
        os.write(fd, text.encode())
        os.close(fd)
        done = run("bash", path, env={"SLURM_JOB_ID": "7", "DIESEL_SOCKET": self.socket, "DIESEL_EPILOG_FOLDER": self.folder + "/kept", **settings})
        self.assertEqual((done.returncode, done.stdout), (0, ""), (name, settings, done.stderr))
        return done.stderr

    def daemon(self):
        process = subprocess.Popen([os.path.join(BIN, "dieseld"), "--socket", self.socket, "--metrics", "off", "--cache", "64M",
                                    "--ready-fd", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.stdout.close()
        return process

    def report(self):
        path, = glob.glob(self.folder + "/kept/job-7-*.txt")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path) as file:
            return file.read()

    def test_values_that_are_wrong(self):
        trap = os.path.join(self.folder, "trap")
        values = ("", "0.5", "abc", "-1", "61", "9" * 30, "08", "a b", f"x[$(touch {trap})]", "1\n2")
        with concurrent.futures.ThreadPoolExecutor(len(values)) as pool:
            for value, said in zip(values, pool.map(lambda value: self.script("prolog", DIESEL_PROLOG_WAIT_S=value), values)):
                self.assertIn("without dieseld: dieselctl status: no dieseld at", said)
                self.assertEqual("expected whole seconds from 0 to 60" in said, value != "", said)
        self.assertFalse(os.path.exists(trap))
        self.assertIn("without dieseld", self.script("prolog", DIESEL_PROLOG_WAIT_S="0"))

    def test_a_daemon_that_answers(self):
        self.daemon()
        share = {"DIESEL_PROLOG_CACHE_SHARE": "abc", "SLURM_MEM_PER_NODE": "100"}
        self.assertEqual(self.script("prolog", **share), "")
        self.assertEqual(self.script("epilog", **share), "")
        self.assertIn("no jobs", self.report())
        self.assertFalse(os.path.exists(self.folder + "/asked"))
        limits = json.loads(run(os.path.join(BIN, "dieselctl"), "status", "--json", "--socket", self.socket).stdout)["tune"]["limits"]
        self.assertEqual(limits["cache-max"], 64 << 20)

    def test_a_daemon_that_is_stopped(self):
        self.daemon().send_signal(signal.SIGSTOP)
        self.assertIn("did not answer within", self.script("prolog", DIESEL_PROLOG_WAIT_S="1"))
        self.assertEqual(self.script("epilog"), "")

    def test_commands_that_hang(self):
        self.stub("systemctl", "sleep 1000")
        self.assertIn("without dieseld", self.script("prolog", DIESEL_PROLOG_WAIT_S="0"))
        self.stub("logger", "sleep 1000")
        self.assertIn("without dieseld", self.script("prolog", DIESEL_PROLOG_WAIT_S="0"))
        self.stub("dieselctl", f"trap '' TERM; while [ -e {self.folder} ]; do sleep 1; done")
        names = ("prolog", "epilog")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for name, said in zip(names, pool.map(lambda name: self.script(name, DIESEL_PROLOG_WAIT_S="0"), names)):
                self.assertIn(f"diesel-{name}: ended early", said)

    def test_a_service_is_started_again_if_it_failed(self):
        for active, enabled, starts in (("failed", "enabled", True), ("failed", "enabled-runtime", True), ("inactive", "enabled", False),
                                        ("failed", "disabled", False), ("failed", "masked", False), ("inactive", "masked", False),
                                        ("activating", "enabled", False), ("deactivating", "enabled", False), ("", "", False)):
            self.unit(active, enabled)
            said = self.script("prolog", DIESEL_PROLOG_WAIT_S="0")
            self.assertEqual("starting it" in said, starts, (active, enabled))
            self.assertEqual(os.path.exists(self.folder + "/asked"), starts, (active, enabled))
            if starts:
                with open(self.folder + "/asked") as file:
                    self.assertEqual(file.read(), "reset-failed dieseld.service\nstart --no-block dieseld.service\n")
                os.unlink(self.folder + "/asked")

    def unit(self, active, enabled, job=""):
        self.stub("systemctl", f'case "$*" in *ActiveState*) printf "ActiveState={active}\\nUnitFileState={enabled}\\n{job}" ;; '
                  f'*) echo "$*" >>{self.folder}/asked ;; esac; echo >>{self.folder}/called')

    def waits(self):
        """Within a second it may check only once, when other processes take the cores."""
        return any(self.waited(bound) for bound in (1, 5, 20))

    def waited(self, bound=1):
        """Returns whether the prolog tried more than once: before each try it reads the unit's state again."""
        os.path.exists(self.folder + "/called") and os.unlink(self.folder + "/called")
        self.assertIn("without dieseld", self.script("prolog", DIESEL_PROLOG_WAIT_S=str(bound)))
        with open(self.folder + "/called") as file:
            return len(file.readlines()) > 1

    def test_nobody_waits_for_what_nobody_starts(self):
        job = "Job=17\\n"  # a start job of systemd, as while the node boots
        for active, enabled, job, waits in (("inactive", "enabled", "", False), ("inactive", "disabled", "", False),
                                            ("inactive", "masked", "", False), ("inactive", "", "", False), ("failed", "disabled", "", False),
                                            ("inactive", "enabled", job, True), ("activating", "enabled", "", True),
                                            ("deactivating", "enabled", "", True), ("active", "enabled", "", True), ("", "", "", True)):
            self.unit(active, enabled, job)
            self.assertEqual(self.waits() if waits else self.waited(), waits, (active, enabled, job))
        # A daemon that is no service has left its socket, and may be restarting.
        self.unit("inactive", "")
        self.daemon().kill()
        self.assertTrue(os.path.exists(self.socket))
        self.assertTrue(self.waits())

    def test_the_epilog_follows_no_link(self):
        self.daemon()
        os.mkdir(self.folder + "/kept")
        mine = os.path.join(self.folder, "mine")
        with open(mine, "w") as file:
            file.write("mine")
        os.symlink(mine, f"{self.folder}/kept/job-7-{os.uname().nodename.split('.')[0]}.txt")
        self.assertEqual(self.script("epilog"), "")
        self.assertIn("no jobs", self.report())
        with open(mine) as file:
            self.assertEqual(file.read(), "mine")
        # An impossible folder and a job without a number are no failure.
        self.assertIn("File exists", self.script("epilog", DIESEL_EPILOG_FOLDER=mine))
        self.assertEqual(self.script("epilog", SLURM_JOB_ID="../7"), "")
        self.assertEqual(len(os.listdir(self.folder + "/kept")), 1)


class Debian(unittest.TestCase):
    """Tests the package's script by itself, with stand-ins for the system's commands; test_package_clean.py has dpkg run it."""

    def configure(self, enabled, policy=None, before="", active=True, booted=True, said=""):
        """Returns the calls of systemctl, where is-enabled prints `enabled` and policy-rc.d exits with `policy`. A masked unit cannot be
        enabled."""
        with tempfile.TemporaryDirectory() as folder:
            fails = ("is-active" if not active else "", "enable" if enabled.startswith("masked") else "")
            for name, text in (("systemctl", f'[ $1 != is-enabled ] || echo {enabled}; echo "$1" >>{folder}/asked; '
                                             f'[ $1 != "{fails[0]}" ] && [ $1 != "{fails[1]}" ]'),
                               *((name, "") for name in ("ldconfig", "getent", "install")),
                               *([("policy-rc.d", f'echo "$@" >>{folder}/policy; exit {policy}')] if policy is not None else [])):
                with open(os.path.join(folder, name), "w") as file:
                    file.write("#!/bin/sh\n" + text + "\n")
                os.chmod(os.path.join(folder, name), 0o755)
            with open(os.path.join(ROOT, "packaging/debian/postinst")) as file:
                text = file.read().replace("/run/systemd/system", folder if booted else folder + "/none")
            text = text.replace("/usr/sbin/policy-rc.d", folder + "/policy-rc.d")
            done = run("sh", "-c", text, "postinst", "configure", before, env={"PATH": folder + ":/usr/bin:/bin"})
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", said))
            if policy is not None and enabled != "masked":
                with open(folder + "/policy") as file:
                    self.assertEqual(file.read(), "dieseld " + ("restart" if before else "start") + "\n")
            with open(folder + "/asked") as file:
                return [line for line in file.read().split() if line not in ("is-enabled", "is-active", "daemon-reload")]

    def test_who_starts_the_service(self):
        self.assertEqual(self.configure("disabled"), ["enable", "start"])
        self.assertEqual(self.configure("enabled", before="0.1.0"), ["try-restart"])
        # Like docs/how-to/pilot.md on a node that first only observes: no start, and no line about a failure.
        self.assertEqual(self.configure("masked"), [])
        self.assertEqual(self.configure("masked-runtime"), [])
        self.assertEqual(self.configure("masked-runtime", before="0.1.0"), [])
        self.assertEqual(self.configure("disabled", policy=101), ["enable"])
        self.assertEqual(self.configure("enabled", policy=101, before="0.1.0"), [])
        self.assertEqual(self.configure("disabled", policy=0), ["enable", "start"])
        self.assertEqual(self.configure("disabled", policy=104), ["enable", "start"])

    def test_a_service_that_stays_disabled_is_told_of(self):
        """Like after `apt remove` and another install: dpkg cannot distinguish that from an upgrade, nor from `systemctl disable`."""
        line = "diesel: dieseld is disabled as before, and does not run: systemctl enable --now dieseld\n"
        self.assertEqual(self.configure("disabled", before="0.1.0", active=False, said=line), ["try-restart"])
        self.assertEqual(self.configure("disabled", before="0.1.0", active=False, booted=False, said=line), [])
        self.assertEqual(self.configure("disabled", before="0.1.0"), ["try-restart"])
        self.assertEqual(self.configure("enabled", before="0.1.0", active=False), ["try-restart"])
        self.assertEqual(self.configure("masked", before="0.1.0", active=False), [])
        self.assertEqual(self.configure("disabled", active=False), ["enable", "start"])


class Field:
    """An object of a pod for expressions in CEL, or nothing: .name, and .opt(name).or_value(another)."""

    def __init__(self, value):
        self.value = value

    def __getattr__(self, name):
        return self.opt(name).plain()

    def opt(self, name):
        return Field(None if self.value is None else self.value.get(name))

    def or_value(self, another):
        return wrapped(another) if self.value is None else self.plain()

    def plain(self):
        return wrapped(self.value)


class Items(list):
    def all(self, holds):
        return all(map(holds, self))

    def filter(self, holds):
        return Items(filter(holds, self))

    def map(self, function):
        return Items(map(function, self))

    def __add__(self, other):
        return Items([*self, *other])


class Text(str):
    def matches(self, expression):
        return bool(re.search(expression, self))


def wrapped(value):
    if isinstance(value, list):
        return Items(map(wrapped, value))
    return Text(value) if isinstance(value, str) else Field(value) if isinstance(value, dict) else value


def cel(expression, names):
    """Returns the value of an expression, with the subset of CEL that the policies use."""
    for pattern, new in ((r"\.(all|filter|map)\((\w+), ", r".\1(lambda \2: "), (r"\.\?(\w+)", r".opt('\1')"), ("orValue", "or_value"),
                         (r"!(?!=)", " not "), ("&&", " and "), (r"\|\|", " or "), (r"\btrue\b", "True"), (r"\bfalse\b", "False"),
                         (r"has\((\w+)\.(\w+)\)", r"(\1.opt('\2').value is not None)")):
        expression = re.sub(pattern, new, expression)
    return eval(expression.strip(), {"size": len, **names})  # text of this repository, printed above


class Unit(unittest.TestCase):
    def test_how_exposed_the_service_is(self):
        """By systemd's own score, of 10. test_package_clean.py checks the effect."""
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze")
        done = run("systemd-analyze", "security", "--offline=true", "--no-pager", os.path.join(ROOT, "packaging/dieseld.service"))
        if "unrecognized option" in done.stderr:
            self.skipTest("an older systemd-analyze")
        exposure = re.search(r"exposure level for dieseld.service: ([\d.]+)", done.stdout)
        self.assertTrue(exposure, done.stdout + done.stderr)
        self.assertLessEqual(float(exposure[1]), 1.5, done.stdout)

    def test_who_goes_first_when_something_is_short(self):
        """Jobs have precedence over the daemon, a killed helper does not stop the daemon, and it writes no core dump."""
        with open(os.path.join(ROOT, "packaging/dieseld.service")) as file:
            unit = dict(re.findall(r"(?m)^(\w+)=(.*)$", file.read()))
        self.assertEqual((unit["OOMPolicy"], unit["LimitCORE"], unit["MemorySwapMax"]), ("continue", "0", "0"))
        self.assertGreater(int(unit["OOMScoreAdjust"]), 0)
        self.assertLess(int(unit["MemoryHigh"].rstrip("%")), int(unit["MemoryMax"].rstrip("%")))
        for weight in ("CPUWeight", "IOWeight"):
            self.assertLess(int(unit[weight]), 100)

    def test_the_socket_of_metrics_goes_with_the_service(self):
        with open(os.path.join(ROOT, "packaging/dieseld.service")) as file:
            service = file.read()
        with open(os.path.join(ROOT, "packaging/dieseld-metrics.socket")) as file:
            socket = file.read()
        self.assertIn("\nSockets=dieseld-metrics.socket\n", service)
        for line in ("PartOf=dieseld.service", "FileDescriptorName=metrics", "ListenStream=127.0.0.1:9467"):
            self.assertIn(f"\n{line}\n", socket)
        self.assertRegex(help_of("dieseld"), r"ADDRESS:PORT, or\s+off\s+\(default: 127.0.0.1:9467\)")


def rules():
    import yaml
    with open(os.path.join(ROOT, "packaging/prometheus/diesel.rules.yaml")) as file:
        return yaml.safe_load(file)


class Alerts(unittest.TestCase):
    def setUp(self):
        try:
            import yaml  # noqa: F401
        except ImportError:
            self.skipTest("no python3-yaml")

    def test_each_has_a_line_that_says_what_to_do(self):
        with open(os.path.join(ROOT, "docs/reference/alerts.md")) as file:
            section = file.read()
        group, = rules()["groups"]
        for rule in group["rules"]:
            self.assertRegex(section, rf"(?m)^\| .*`{rule['alert']}`.* \| \S")
            anchor = "storage-too-slow" if rule["alert"] == "DieselStorageTooSlow" else "alerts"
            self.assertEqual(rule["annotations"]["runbook"], f"docs/reference/alerts.md#{anchor}")
            self.assertIn(rule["labels"]["severity"], {"page", "ticket", "info"})
            # A problem that all nodes share is one alert for all of them.
            self.assertIn("$value }} nodes" if rule["alert"] == "DieselStorageTooSlow" else "$labels.instance", rule["annotations"]["summary"])
        self.assertEqual(set(re.findall(r"`(Diesel\w+)`", section)), {rule["alert"] for rule in group["rules"]})

    def test_they_are_of_metrics_that_there_are(self):
        sources = ""
        for path in glob.glob(os.path.join(ROOT, "daemon/run/metrics*.c")):
            with open(path) as file:
                sources += file.read()
        for rule in rules()["groups"][0]["rules"]:
            for name in re.findall(r"\b(?:diesel|process)_\w+", rule["expr"]):
                self.assertRegex(sources, rf'"{name}[{{"\\ ]', rule["alert"])

    def test_the_prometheus_operator_has_the_same(self):
        import yaml
        with open(os.path.join(ROOT, "packaging/kubernetes/components/monitoring/rules.yaml")) as file:
            self.assertEqual(yaml.safe_load(file)["spec"], rules())

    def test_promtool(self):
        if not shutil.which("promtool"):
            self.skipTest("no promtool")
        done = run("promtool", "check", "rules", os.path.join(ROOT, "packaging/prometheus/diesel.rules.yaml"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def fires(self, alert, series, minutes=60):
        """Returns how many of the alert fire after these series, a value per minute."""
        import json
        import yaml
        given = [{"series": name, "values": values} for name, values in series.items()]
        # A wrong expectation, so that promtool prints the actual alerts.
        expected = [{"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": [{"exp_labels": {"never": "so"}}]}]
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "rules.yml"), "w") as file:
                yaml.safe_dump(rules(), file)
            with open(os.path.join(folder, "test.yml"), "w") as file:
                json.dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m",
                           "tests": [{"interval": "1m", "input_series": given, "alert_rule_test": expected}]}, file)
            done = run("promtool", "test", "rules", os.path.join(folder, "test.yml"))
        self.assertIn("exp:", done.stdout + done.stderr)
        got = (done.stdout + done.stderr).split("got:", 1)[1]
        return got.count(f'alertname="{alert}"')

    def test_when_they_fire(self):
        if not shutil.which("promtool"):
            self.skipTest("no promtool")
        at = 'instance="a",training_job="1",rank="0"'
        waits = {f'diesel_stall_seconds_total{{{at},stall="fetch"}}': "0+29.7x70", f"diesel_trainer_seconds_total{{{at}}}": "0+60x70"}
        # The share is known for half of the time, and was 99 % of that, and then 10 % of all of it.
        self.assertTrue(self.fires("DieselStorageTooSlow", {**waits, f'diesel_stall_known_seconds_total{{{at},stall="fetch"}}': "0+30x70"}))
        # All nodes and jobs wait for one storage: one alert.
        several = {name.replace('instance="a",training_job="1"', f'instance="{node}",training_job="{job}"'): values for node in "abc" for job in (1, 2)
                   for name, values in {**waits, f'diesel_stall_known_seconds_total{{{at},stall="fetch"}}': "0+30x70"}.items()}
        self.assertEqual(self.fires("DieselStorageTooSlow", several), 1)
        waits[f'diesel_stall_seconds_total{{{at},stall="fetch"}}'] = "0+6x70"
        self.assertFalse(self.fires("DieselStorageTooSlow", {**waits, f'diesel_stall_known_seconds_total{{{at},stall="fetch"}}': "0+60x70"}))
        start = 'process_start_time_seconds{job="dieseld",instance="a"}'
        self.assertFalse(self.fires("DieselRestarts", {start: "1000x70"}))
        self.assertTrue(self.fires("DieselRestarts", {start: "1000+1x70"}))
        # Three restarts may be planned, and jobs continue after each: no alert.
        self.assertTrue(self.fires("DieselRestarts", {start: "1000x40 1100x5 1200x5 1300x20"}))
        self.assertNotIn("page", {rule["labels"]["severity"] for rule in rules()["groups"][0]["rules"] if rule["alert"] == "DieselRestarts"})
        up, sessions = 'up{job="dieseld",instance="a"}', 'diesel_sessions{job="dieseld",instance="a"}'
        self.assertTrue(self.fires("DieselDown", {up: "1x30 0x40", sessions: "2x30"}, minutes=35))
        # A lost scrape, and a node that is restarted without a job.
        self.assertFalse(self.fires("DieselDown", {up: "1x30 0 1x40", sessions: "2x70"}, minutes=32))
        self.assertFalse(self.fires("DieselDown", {up: "1x30 0x40", sessions: "0x30"}, minutes=35))
        # A node whose last job ended minutes before its shutdown, and one that jobs used until then, after others had ended.
        self.assertFalse(self.fires("DieselDown", {up: "1x20 0x40", sessions: "1x9 0x10 stale _x40"}, minutes=23))
        self.assertTrue(self.fires("DieselDown", {up: "1x20 0x40", sessions: "1x9 0x8 1x1 stale _x40"}, minutes=23))
        self.assertFalse(self.fires("DieselAway", {up: "1x30 0x3 1x40"}, minutes=35))
        self.assertTrue(self.fires("DieselAway", {up: "1x30 0x40"}))
        self.assertTrue(self.fires("DieselNotReady", {'diesel_ready{instance="a"}': "1x30 0x40"}))
        self.assertFalse(self.fires("DieselDown", {up: "1x70", sessions: "2x70"}))
        self.assertTrue(self.fires("DieselReloadRefused", {'diesel_config_last_reload_successful{instance="a"}': "0x70"}))
        self.assertTrue(self.fires("DieselNodesFail", {'diesel_cluster_failures_total{instance="a",kind="late"}': "0+10x70",
                                                       'diesel_cluster_chunks_in_total{instance="a"}': "0+50x70"}))
        self.assertFalse(self.fires("DieselNodesFail", {'diesel_cluster_failures_total{instance="a",kind="late"}': "0+1x70",
                                                        'diesel_cluster_chunks_in_total{instance="a"}': "0+50x70"}))


class Cluster(unittest.TestCase):
    def admitted(self, path="/run/diesel", read_only=True, kind="containers", security=None, **more):
        """Returns whether the policy admits a pod that mounts this folder of its node."""
        import yaml
        with open(os.path.join(ROOT, "packaging/kubernetes/admission.yaml")) as file:
            policy, binding = yaml.safe_load_all(file)
        # The policy refuses no pod before the operator has seen the warnings, and keeps no pod from ending.
        self.assertEqual((binding["spec"]["policyName"], binding["spec"]["validationActions"]), (policy["metadata"]["name"], ["Warn", "Audit"]))
        rules = policy["spec"]["matchConstraints"]["resourceRules"]
        self.assertEqual([(rule["operations"], rule["resources"]) for rule in rules],
                         [(["CREATE"], ["pods"]), (["UPDATE"], ["pods/ephemeralcontainers"])])
        mounts = [{"name": "diesel", "mountPath": "/x", **({"readOnly": True} if read_only else {})}]
        inner = {"name": "inner", "volumeMounts": mounts, **({"securityContext": security} if security else {})}
        spec = {"containers": [{"name": "outer", "image": "x", **({"securityContext": security} if security else {})}],
                "volumes": [{"name": "other", "emptyDir": {}}, {"name": "diesel", "hostPath": {"path": path}}], **more}
        spec[kind] = [*spec.get(kind, []), inner]
        names = {"object": wrapped({"spec": spec}), "variables": Field({})}
        for variable in policy["spec"]["variables"]:
            names["variables"].value[variable["name"]] = cel(variable["expression"], names)
        return all([cel(item["expression"], names) for item in policy["spec"]["validations"]])

    def test_who_may_mount_the_folder_of_the_socket(self):
        try:
            import yaml  # noqa: F401
        except ImportError:
            self.skipTest("no python3-yaml")
        nobody = {"runAsNonRoot": True, "allowPrivilegeEscalation": False}
        self.assertTrue(self.admitted(hostUsers=False))
        self.assertTrue(self.admitted(security=nobody))
        self.assertTrue(self.admitted(security={"allowPrivilegeEscalation": False}, securityContext={"runAsNonRoot": True}))
        for kind in ("containers", "initContainers", "ephemeralContainers"):
            self.assertFalse(self.admitted(hostUsers=False, kind=kind, read_only=False))
        for path in ("/", "//", "/.", "/run", "/run/", "/var", "/var/run", "/var//run/./diesel", "/run/diesel/", "//run/diesel",
                     "/run/./diesel/.", "/run/diesel/dieseld.sock", "/var/run/diesel/x"):
            self.assertFalse(self.admitted(path, hostUsers=False, read_only=False), path)
        # Root of the node: by default, by one container, by another's processes.
        for more in ({}, {"hostUsers": True}, {"security": {"runAsNonRoot": True}}, {"security": {"allowPrivilegeEscalation": False}},
                     {"security": nobody, "hostPID": True}, {"hostUsers": False, "security": {"privileged": True}},
                     {"security": {**nobody, "runAsNonRoot": False}, "securityContext": {"runAsNonRoot": True}}):
            self.assertFalse(self.admitted(**more), more)
        for path in ("/data", "/runs", "/run/dieselx", "/run/other", "/var/lib", "/var/runx", "/home/run/diesel", "/run/diesel.old"):
            self.assertTrue(self.admitted(path, read_only=False), path)

    def test_kubernetes(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml")
        with open(os.path.join(ROOT, "packaging/kubernetes/dieseld.yaml")) as file:
            found = {document["kind"]: document for document in yaml.safe_load_all(file)}
        self.assertEqual(set(found), {"Namespace", "PriorityClass", "ConfigMap", "DaemonSet", "NetworkPolicy"})
        self.assertEqual((found["PriorityClass"]["metadata"]["name"], found["PriorityClass"]["preemptionPolicy"]),
                         (found["DaemonSet"]["spec"]["template"]["spec"]["priorityClassName"], "Never"))
        spec = found["DaemonSet"]["spec"]
        pod, labels = spec["template"]["spec"], spec["template"]["metadata"]["labels"]
        self.assertEqual(spec["selector"]["matchLabels"], labels)
        self.assertEqual(found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], labels)
        container, = pod["containers"]
        self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, {v["name"] for v in pod["volumes"]})
        # Root of a pod is not an administrator, and its use of the socket cannot fail the daemon's probe.
        self.assertRegex(found["ConfigMap"]["data"]["dieseld.conf"], r"(?m)^ *admin-user = none$")
        self.assertIn("httpGet", container["livenessProbe"])
        with open(os.path.join(ROOT, "packaging/kubernetes/dieseld.yaml")) as file:
            mounts = re.findall(r"#.*mountPath: /run/diesel.*", file.read())
        self.assertEqual([mount for mount in mounts if "readOnly: true" not in mount], [])
        self.assertEqual(len(mounts), 1)
        # The capabilities are the unit's, and the image's program accepts the configuration unchanged.
        with open(os.path.join(ROOT, "packaging/dieseld.service")) as file:
            unit = set(re.search(r"(?m)^CapabilityBoundingSet=(.*)$", file.read()).group(1).split())
        self.assertEqual({"CAP_" + name for name in container["securityContext"]["capabilities"]["add"]}, unit)
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(found["ConfigMap"]["data"]["dieseld.conf"])
            file.flush()
            done = run(os.path.join(BIN, "dieseld"), "--check-config", "--config", file.name)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_kubernetes_with_nodes_that_share(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml")
        folder = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "kubernetes")
        shutil.copytree(os.path.join(ROOT, "packaging/kubernetes"), folder)
        key = os.path.join(folder, "cluster.key")
        with open(key, "w") as file:
            file.write("0123456789abcdef" * 2 + "\n")
        os.chmod(key, 0o400)
        with open(os.path.join(folder, "cluster.yaml")) as file:
            patch = yaml.safe_load(file)["spec"]["template"]["spec"]
        container, = patch["containers"]
        volume, = patch["volumes"]
        mount, = container["volumeMounts"]
        self.assertEqual((mount["name"], volume["secret"]["defaultMode"]), (volume["name"], 0o400))
        fields = {item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"] for item in container["env"]}
        self.assertEqual(fields, {"NODE_NAME": "spec.nodeName", "POD_IP": "status.podIP"})
        self.assertEqual(set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))), set(fields))
        # Arguments of the pod's program, with the matching configuration.
        with open(os.path.join(folder, "dieseld.yaml")) as file:
            config, = (d["data"]["dieseld.conf"] for d in yaml.safe_load_all(file) if d["kind"] == "ConfigMap")
        with open(os.path.join(folder, "dieseld.conf"), "w") as file:
            file.write(config)
        given = {"/etc/diesel/dieseld.conf": os.path.join(folder, "dieseld.conf"), mount["mountPath"] + "/cluster.key": key}
        args = [given.get(word, word.replace("$(POD_IP)", "10.1.2.3").replace("$(NODE_NAME)", "node-1")) for word in container["args"]]
        self.assertLessEqual(set(given.values()), set(args))
        done = run(os.path.join(BIN, "dieseld"), "--check-config", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "redis.yaml")) as file:
            redis = list(yaml.safe_load_all(file))
        self.check_ports(args, container, redis)
        if shutil.which("kubectl"):
            self.check_kustomized(yaml, folder, container, volume)

    def test_memory_of_the_pod(self):
        """Its limit covers the cache, all decoders at work, a reader for each of some datasets, and the rest."""
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml")
        with open(os.path.join(ROOT, "packaging/kubernetes/dieseld.yaml")) as file:
            found = {document["kind"]: document for document in yaml.safe_load_all(file)}
        container, = found["DaemonSet"]["spec"]["template"]["spec"]["containers"]
        gib, mib = 1 << 30, 1 << 20
        settings = dict(re.findall(r"(?m)^ *([a-z-]+) = (\S+)$", found["ConfigMap"]["data"]["dieseld.conf"]))
        cache, workers = int(settings["cache"].removesuffix("G")) * gib, int(settings["workers-max"])
        with open(os.path.join(ROOT, "daemon/sandboxed/codec_run.c")) as file:
            decoder = int(re.search(r"#define MEMORY_BYTES \(UINT64_C\((\d+)\) << 20\)", file.read())[1]) * mib
        limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) * gib
        self.assertGreaterEqual(limit, cache + workers * decoder + gib)
        self.assertEqual(container["resources"]["requests"]["memory"], container["resources"]["limits"]["memory"])
        # The manual's table has the same sum.
        with open(os.path.join(ROOT, "docs/how-to/memory.md")) as file:
            rows = re.findall(r"(?m)^ *\| (\d+) GiB \| (\d+) \| (\d+)G \|$", file.read())
        self.assertGreaterEqual(len(rows), 3)
        for all_of_it, decoders, of_cache in rows:
            self.assertEqual(int(all_of_it) * gib, int(of_cache) * gib + int(decoders) * decoder + gib)

    def test_what_a_pod_of_the_node_is(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml")
        with open(os.path.join(ROOT, "packaging/kubernetes/dieseld.yaml")) as file:
            found = {document["kind"]: document for document in yaml.safe_load_all(file)}
        spec = found["DaemonSet"]["spec"]
        pod = spec["template"]["spec"]
        container, = pod["containers"]
        # A new image or configuration ends no job by itself.
        self.assertEqual(spec["updateStrategy"], {"type": "OnDelete"})
        probes = {name: container[name + "Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
        self.assertEqual(probes, {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"})
        labels = found["Namespace"]["metadata"]["labels"]
        self.assertEqual({labels["pod-security.kubernetes.io/" + mode] for mode in ("enforce", "audit", "warn")}, {"privileged"})
        # The socket for administrators is in a folder that no other pod mounts.
        admin, = re.findall(r"(?m)^ *admin-socket = (\S+)$", found["ConfigMap"]["data"]["dieseld.conf"])
        mount, = (m for m in container["volumeMounts"] if m["mountPath"] == os.path.dirname(admin))
        volume, = (v for v in pod["volumes"] if v["name"] == mount["name"])
        self.assertIn("emptyDir", volume)

    def test_schema(self):
        """Checks by Kubernetes' own schema, like `./dev lint`, which installs the tool."""
        tool = os.path.join(ROOT, "build/kubernetes/bin/kubernetes-validate")
        if not os.access(tool, os.X_OK):
            self.skipTest("no kubernetes-validate: ./dev lint gets it")
        files = [os.path.join(ROOT, "packaging/kubernetes", name) for name in ("node/dieseld.yaml", "redis.yaml", "admission.yaml")]
        if shutil.which("kubectl"):
            files.append(os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "observe.yaml"))
            with open(files[-1], "w") as file:
                file.write(self.kustomized(os.path.join(ROOT, "packaging/kubernetes/observe")))
        done = run(tool, "--strict", "--quiet", *files)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def kustomized(self, folder):
        done = run("kubectl", "kustomize", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_pods_that_only_observe_and_a_pilot(self):
        if not shutil.which("kubectl"):
            self.skipTest("no kubectl")
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml")
        def parts(folder):
            found = list(yaml.safe_load_all(self.kustomized(folder)))
            daemons, = (d for d in found if d["kind"] == "DaemonSet")
            config, = (d["data"]["dieseld.conf"] for d in found if d["kind"] == "ConfigMap")
            return daemons["spec"]["template"]["spec"], config
        plain, _ = parts(os.path.join(ROOT, "packaging/kubernetes/node"))
        observes, config = parts(os.path.join(ROOT, "packaging/kubernetes/observe"))
        nodes = {**plain["nodeSelector"], "diesel-pilot": "true"}
        self.assertEqual(observes["nodeSelector"], nodes)
        container, = observes["containers"]
        resources = container["resources"]
        self.assertEqual((resources["requests"]["memory"], resources["limits"]), ("128Mi", {"cpu": "50m", "memory": "128Mi"}))
        # Everything else is as in the pod that serves, including the probes' paths.
        before, = plain["containers"]
        for name in ("startupProbe", "livenessProbe"):
            self.assertEqual({**container[name], "failureThreshold": before[name]["failureThreshold"]}, before[name])
        changed = ("args", "resources", "startupProbe", "livenessProbe")
        self.assertEqual({**container, **{name: before[name] for name in changed}}, before)
        self.assertIn("--observe", container["args"])
        # The limits equal the unit's.
        with open(os.path.join(ROOT, "packaging/systemd/observe.conf")) as file:
            unit = file.read()
        self.assertIn("\nMemoryMax=128M\n", unit)
        self.assertIn("\nCPUQuota=5%\n", unit)
        self.assertEqual(re.search(r"(?m)^ExecStart=/usr/bin/dieseld (.*)$", unit)[1].split(), container["args"])
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(config)
            file.flush()
            args = [word.replace("/etc/diesel/dieseld.conf", file.name) for word in container["args"]]
            done = run(os.path.join(BIN, "dieseld"), "--check-config", *args)
            self.assertEqual(done.returncode, 0, done.stderr)
        # The next stage: the same nodes, and they serve.
        folder = self.enterContext(tempfile.TemporaryDirectory())
        shutil.copytree(os.path.join(ROOT, "packaging/kubernetes"), os.path.join(folder, "diesel"))
        with open(os.path.join(folder, "diesel/cluster.key"), "w") as file:
            file.write("0123456789abcdef" * 2 + "\n")
        # Chooses the nodes as the comment shows.
        with open(os.path.join(ROOT, "packaging/kubernetes/node/kustomization.yaml")) as file:
            patch = "\n".join(re.findall(r"(?m)^# +(- \{op: .*\})$", file.read()))
        for base in ("../diesel/node", "../diesel"):
            os.makedirs(os.path.join(folder, "site"), exist_ok=True)
            with open(os.path.join(folder, "site/kustomization.yaml"), "w") as file:
                yaml.safe_dump({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [base],
                                "components": ["../diesel/components/pilot"],
                                "patches": [{"target": {"kind": "DaemonSet", "name": "dieseld"}, "patch": patch}]}, file)
            pilot, _ = parts(os.path.join(folder, "site"))
            self.assertEqual(pilot["nodeSelector"], {"pool": "training", "diesel-pilot": "true"})
            self.assertNotIn("--observe", pilot["containers"][0]["args"])
            self.assertEqual(pilot["containers"][0]["resources"], before["resources"])

    def test_a_site_of_its_own(self):
        """Kustomizations on top of ours, for separate nodes and for nodes that share, with monitoring, and with another image by its
        digest."""
        if not shutil.which("kubectl"):
            self.skipTest("no kubectl")
        try:
            import yaml
        except ImportError:
            self.skipTest("no python3-yaml")
        folder = self.enterContext(tempfile.TemporaryDirectory())
        shutil.copytree(os.path.join(ROOT, "packaging/kubernetes"), os.path.join(folder, "diesel"))
        with open(os.path.join(folder, "diesel/cluster.key"), "w") as file:
            file.write("0123456789abcdef" * 2 + "\n")
        digest = "sha256:" + "0" * 64
        for base in ("../diesel/node", "../diesel"):
            site = os.path.join(folder, "site")
            os.makedirs(site, exist_ok=True)
            with open(os.path.join(site, "kustomization.yaml"), "w") as file:
                yaml.safe_dump({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": "diesel",
                                "resources": [base], "components": ["../diesel/components/monitoring", "../diesel/components/seccomp"],
                                "images": [{"name": "diesel", "newName": "registry.example/diesel", "digest": digest}]}, file)
            done = run("kubectl", "kustomize", site)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = list(yaml.safe_load_all(done.stdout))
            daemons, = (d for d in found if d["kind"] == "DaemonSet")
            monitor, = (d for d in found if d["kind"] == "PodMonitor")
            pod = daemons["spec"]["template"]
            self.assertEqual(pod["spec"]["containers"][0]["image"], "registry.example/diesel@" + digest)
            self.assertEqual(monitor["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"])
            before, = pod["spec"]["initContainers"]
            self.assertEqual(before["image"], pod["spec"]["containers"][0]["image"])
            self.assertEqual(pod["spec"]["containers"][0]["securityContext"]["seccompProfile"],
                             {"type": "Localhost", "localhostProfile": "diesel/dieseld.json"})
            self.assertIn(monitor["spec"]["podMetricsEndpoints"][0]["port"], {port["name"] for port in pod["spec"]["containers"][0]["ports"]})
            self.assertEqual({d["metadata"].get("namespace") for d in found if d["kind"] not in ("Namespace", "PriorityClass")}, {"diesel"})
            self.assertEqual("Secret" in {d["kind"] for d in found}, base == "../diesel")

    def check_ports(self, args, container, redis):
        """Checks that the policies and the service permit dieseld's listeners and Redis."""
        service, = (d for d in redis if d["kind"] == "Service")
        deployment, = (d for d in redis if d["kind"] == "Deployment")
        policies = {d["metadata"]["name"]: d["spec"] for d in redis if d["kind"] == "NetworkPolicy"}
        url, port = (args[args.index(option) + 1] for option in ("--cluster", "--cluster-listen"))
        meta = service["metadata"]
        self.assertEqual(url, f"redis://{meta['name']}.{meta['namespace']}.svc:{service['spec']['ports'][0]['port']}")
        self.assertEqual(service["spec"]["selector"], deployment["spec"]["template"]["metadata"]["labels"])
        self.assertEqual(policies["diesel-redis"]["podSelector"]["matchLabels"], service["spec"]["selector"])
        listens = int(port.rsplit(":", 1)[1])
        self.assertEqual([item["containerPort"] for item in container["ports"]], [listens])
        of = policies["dieseld-cluster"]
        self.assertEqual([item["port"] for rule in of["ingress"] for item in rule["ports"]], [listens])
        self.assertEqual([item["port"] for rule in of["egress"] for item in rule["ports"]], [listens, 6379, 53, 53])

    def check_kustomized(self, yaml, folder, container, volume):
        done = run("kubectl", "kustomize", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = list(yaml.safe_load_all(done.stdout))
        daemons, = (d for d in found if d["kind"] == "DaemonSet")
        secret, = (d for d in found if d["kind"] == "Secret")
        pod = daemons["spec"]["template"]["spec"]
        merged, = pod["containers"]
        self.assertEqual(merged["args"], container["args"])
        # The DaemonSet's ports without it are still there.
        self.assertLessEqual({"metrics", "cluster"}, {port["name"] for port in merged["ports"]})
        self.assertLessEqual({"DIESEL_SOCKET", "POD_IP"}, {item["name"] for item in merged["env"]})
        self.assertEqual({mount["name"] for mount in merged["volumeMounts"]}, {v["name"] for v in pod["volumes"]})
        named, = (v["secret"]["secretName"] for v in pod["volumes"] if v["name"] == volume["name"])
        self.assertEqual(named, secret["metadata"]["name"])

    def test_scripts(self):
        if not shutil.which("shellcheck"):
            self.skipTest("no shellcheck")
        scripts = glob.glob(os.path.join(ROOT, "packaging/slurm/*.sh"))
        scripts += [os.path.join(ROOT, "packaging/debian", name) for name in ("postinst", "prerm", "postrm")]
        scripts.append(os.path.join(HERE, "package_clean.sh"))
        done = run("shellcheck", *scripts)
        self.assertEqual(done.returncode, 0, done.stdout)

    def verify_unit(self, *drop_ins):
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze")
        with tempfile.TemporaryDirectory() as folder:
            unit = os.path.join(folder, "dieseld.service")
            os.mkdir(unit + ".d")
            for name, to in (("dieseld.service", unit), *((name, os.path.join(unit + ".d", "cluster.conf")) for name in drop_ins)):
                with open(os.path.join(ROOT, "packaging", name)) as file:
                    text = file.read().replace("/usr/bin/dieseld", os.path.join(BIN, "dieseld"))
                with open(to, "w") as file:
                    file.write(text)
            done = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
        said = [line for line in done.stderr.splitlines() if "dieseld.service" in line]
        self.assertEqual((done.returncode, said), (0, []), done.stderr)

    def test_unit(self):
        self.verify_unit()

    def test_unit_that_only_observes(self):
        self.verify_unit("systemd/observe.conf")
        with open(os.path.join(ROOT, "packaging/systemd/observe.conf")) as file:
            command, = re.findall(r"(?m)^ExecStart=/usr/bin/dieseld (.*)$", file.read())
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write("[dieseld]\n")
            file.flush()
            done = run(os.path.join(BIN, "dieseld"), "--check-config", *command.replace("/etc/diesel/dieseld.conf", file.name).split())
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_unit_of_a_node_that_shares(self):
        self.verify_unit("systemd/cluster.conf")
        with open(os.path.join(ROOT, "packaging/systemd/cluster.conf")) as file:
            command, = re.findall(r"(?m)^ExecStart=/usr/bin/dieseld (.*)$", file.read())
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write(f"[dieseld]\ncluster = redis://redis.example:6379\ncluster-key = {key_file(self)}\n")
            file.flush()
            words = command.replace("${DIESEL_NODE_ADDRESS}", "10.0.0.1").replace("/etc/diesel/dieseld.conf", file.name).split()
            done = run(os.path.join(BIN, "dieseld"), "--check-config", *words)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    for program in PROGRAMS:
        if not os.access(os.path.join(BIN, program), os.X_OK):
            print(f"skipped: {program} is not built")
            raise SystemExit(77)
    unittest.main(verbosity=2)
