# SPDX-License-Identifier: Apache-2.0
"""Code that `diesel-analyze truth` puts in front of a PyTorch job: a clock around every DataLoader, and,
on request, batches from memory instead of the loader's batches.

Python imports a module of this name at its start if PYTHONPATH names its folder. This module then imports
the sitecustomize that it hides. Environment variables control it:

    DIESEL_TRUTH_OUT    file that gets one line per process that iterated over a DataLoader
    DIESEL_TRUTH_MODE   clock: only measure. synthetic: batches of the shapes of each loader's first one, from
                        memory, without workers and without touching the dataset. learn: measure, and write the
                        files that the job reads to DIESEL_TRUTH_FILES, one path per line
    DIESEL_TRUTH_STEPS  the job ends (SystemExit 0) when it asks for a batch after this many

The line: `steps N seconds S wait S loaders N mode M truncated 0|1 compiling S pid P`. `seconds` runs from the first
request for a batch to the end of the last step; `wait` is the part of it spent in requests. `compiling` is
the part in torch.compile, by PyTorch's own callbacks (since 2.4; nan: no callbacks). The time of making
synthetic batches is in none of them.

Without these variables, nothing changes. This module does not import torch: its hook waits until the job
does.
"""
import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import math
import os
import sys
import threading
import time

LOADER = "torch.utils.data.dataloader"
COMPILER = "torch._dynamo.callback"
VARIANTS = 4  # number of synthetic batches per loader; a single one would stay in the CPU's caches
SEED = 20260


def chain():
    """Runs the sitecustomize that this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class Clock:
    """Times requests for batches. One clock serves all loaders of a process."""

    def __init__(self, mode, steps_max, out):
        self.mode, self.steps_max, self.out = mode, steps_max, out
        self.pid = os.getpid()
        self.steps = self.loaders = 0
        self.wait = self.excluded = 0.0
        self.begin = self.end = self.compiles_since = None
        self.compiling = 0.0
        self.compiling_known = False
        self.truncated = self.written = False
        atexit.register(self.write)

    def ask(self):
        """Ends a step and begins a wait. Returns the time."""
        now = time.monotonic()
        if self.steps:
            self.end = now - self.excluded
        if self.steps_max and self.steps >= self.steps_max:
            self.truncated = True
            self.write()
            raise SystemExit(0)
        self.begin = self.begin or now - self.excluded
        return now

    def answer(self, asked, is_batch):
        now = time.monotonic()
        if is_batch:
            self.steps += 1
            self.wait += now - asked

    def exclude(self, since):
        self.excluded += time.monotonic() - since

    def compile_begin(self, *_):
        if os.getpid() == self.pid:
            self.compiles_since = time.monotonic()

    def compile_end(self, *_):
        if os.getpid() == self.pid and self.compiles_since and self.begin:
            self.compiling += time.monotonic() - self.compiles_since
        self.compiles_since = None

    def compiled(self):
        """Returns the seconds spent compiling. nan: PyTorch can compile, but does not report its time."""
        return self.compiling if self.compiling_known or "torch._dynamo.convert_frame" not in sys.modules else math.nan

    def write(self):
        if self.written or os.getpid() != self.pid or not self.loaders:
            return
        self.written = True
        seconds = self.end - self.begin if self.end else 0.0
        line = (f"steps {self.steps} seconds {seconds:.6f} wait {self.wait:.6f} loaders {self.loaders} "
                f"mode {self.mode} truncated {int(self.truncated)} compiling {self.compiled():.6f} pid {self.pid}\n")
        with open(self.out, "a", encoding="ascii") as file:
            file.write(line)


class Timed:
    """Iterates over a loader's own batches, and times each request."""

    def __init__(self, inner, clock):
        self._inner, self._clock = inner, clock

    def __iter__(self):
        return self

    def __next__(self):
        asked = self._clock.ask()
        try:
            batch = next(self._inner)
        except StopIteration:
            self._clock.answer(asked, False)
            raise
        self._clock.answer(asked, True)
        return batch

    def __len__(self):
        return len(self._inner)

    def __getattr__(self, name):
        return getattr(self._inner, name)


class Variant:
    """A batch to hand out repeatedly, restored if the job changed it in place."""

    def __init__(self, batch):
        self.batch = batch
        self.tensors = list(tensors_of(batch))
        self.pristine = [tensor.clone() for tensor in self.tensors]
        self.versions = [tensor._version for tensor in self.tensors]

    def restore(self):
        changed = False
        for i, tensor in enumerate(self.tensors):
            if tensor._version != self.versions[i]:
                tensor.data.copy_(self.pristine[i])
                self.versions[i] = tensor._version
                changed = True
        return changed


class Synthetic:
    """Hands out variants of one batch, as many as the loader has batches."""

    def __init__(self, variants, n_batches, clock):
        self._variants, self._left, self._clock, self._at = variants, n_batches, clock, 0

    def __iter__(self):
        return self

    def __next__(self):
        since = time.monotonic()
        variant = self._variants[self._at % len(self._variants)]
        if variant.restore():
            self._clock.exclude(since)
        asked = self._clock.ask()
        if self._left == 0:
            self._clock.answer(asked, False)
            raise StopIteration
        if self._left is not None:
            self._left -= 1
        self._at += 1
        self._clock.answer(asked, True)
        return variant.batch

    def __len__(self):
        if self._left is None:
            raise TypeError("the loader has no length")
        return self._left


class Learner:
    """Writes the paths of the regular files that the job opens for reading, one per line.

    An audit hook reports the files that Python opens. Files that libraries open (LMDB, HDF5) stay open or
    mapped, so a thread lists the open files of the process and its children regularly. Neither way sees a
    file that a library opens, reads and closes at once: such a job needs --data."""

    SCAN_INTERVAL_S = 0.05
    SKIP_SUFFIXES = (".py", ".pyc", ".so", ".pth", ".egg-link")

    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.seen = set()
        self.python = os.path.realpath(sys.executable)
        self.skip = tuple({"/proc/", "/sys/", "/dev/", "/usr/lib/", os.path.join(sys.prefix, "lib"),
                           os.path.join(sys.base_prefix, "lib")})
        self.active = False

    def start(self, scan):
        if self.active:
            return
        self.active = True
        sys.addaudithook(self.audit)
        if scan:
            threading.Thread(target=self.scan, name="diesel-truth", daemon=True).start()

    def audit(self, event, arguments):
        if event == "open" and not isinstance(arguments[0], int) and not arguments[2] & os.O_ACCMODE:
            self.add(arguments[0])

    def add(self, path):
        try:
            path = os.path.abspath(os.fsdecode(path))
            if path in self.seen or path.startswith(self.skip) or path.endswith(self.SKIP_SUFFIXES):
                return
            self.seen.add(path)
            os.write(self.fd, os.fsencode(path) + b"\n")
        except (OSError, TypeError, ValueError):
            pass  # the job handles its own invalid path

    def scan(self):
        while True:
            for pid in family(os.getpid()):
                try:
                    self.scan_process(pid)
                except OSError:
                    pass  # the process has ended
            time.sleep(self.SCAN_INTERVAL_S)

    def scan_process(self, pid):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            link = f"/proc/{pid}/fd/{fd}"
            if not os.lstat(link).st_mode & 0o200:  # open for reading only
                self.add_regular(os.readlink(link))
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                self.add_regular(line.rstrip("\n").partition("/")[2], "/")

    def add_regular(self, path, root=""):
        path = root + path
        if path.startswith("/") and path not in self.seen and ".so." not in path and path != self.python \
                and os.path.isfile(path):
            self.add(path)


def family(pid):
    """Yields the process and its descendants."""
    yield pid
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = file.read().split()
    except OSError:
        return
    for child in children:
        yield from family(int(child))


def tensors_of(batch):
    import torch
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from tensors_of(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from tensors_of(value)


def shuffled(tensor):
    """Returns random values with the distribution of the tensor's own values, because constants and
    denormal numbers would change the device's speed. Keeps integers other than uint8, which may be lengths
    or positions."""
    import torch
    fresh = tensor.clone()
    if tensor.numel() > 1 and tensor.layout == torch.strided and (
            tensor.is_floating_point() or tensor.dtype == torch.uint8):
        flat = tensor.reshape(-1)
        fresh.copy_(flat[torch.randint(flat.numel(), (flat.numel(),))].reshape(tensor.shape))
    return fresh.pin_memory() if tensor.is_pinned() else fresh


def variant_of(batch):
    """Returns the same structure with other values. Parts that are not tensors stay unchanged."""
    import torch
    if isinstance(batch, torch.Tensor):
        return shuffled(batch)
    if isinstance(batch, dict):
        values = {key: variant_of(value) for key, value in batch.items()}
        return values if type(batch) is dict else type(batch)(values)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(variant_of(value) for value in batch))
    if type(batch) in (list, tuple):
        return type(batch)(variant_of(value) for value in batch)
    return batch


def first_batch(loader, make_iterator):
    """Returns the loader's first batch, made in the usual way. None: the loader is empty. Its workers end
    before the return."""
    iterator = make_iterator(loader)
    batch = next(iterator, None)
    if hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()
    if getattr(loader, "_iterator", None) is iterator:  # persistent workers
        loader._iterator = None
    return batch


def synthetic_iterator(loader, make_iterator, clock):
    import torch
    since = time.monotonic()
    variants = loader.__dict__.get("_diesel_truth_variants")
    if variants is None:
        random_state = torch.get_rng_state()
        batch = first_batch(loader, make_iterator)
        variants = [] if batch is None else [Variant(variant_of(batch)) for _ in range(VARIANTS)]
        torch.set_rng_state(random_state)
        loader.__dict__["_diesel_truth_variants"] = variants
    try:
        n_batches = len(loader)
    except TypeError:
        n_batches = None
    clock.exclude(since)
    if not variants:
        return Timed(iter(()), clock)
    return Synthetic(variants, n_batches, clock)


def patch(module, clock, learner):
    import multiprocessing
    import torch
    if learner and multiprocessing.parent_process():
        learner.start(scan=False)  # a worker that was spawned, not forked
    make_iterator = module.DataLoader.__iter__
    # A job that does not seed itself reads the same files in every run. torch.manual_seed would import more of a torch
    # that is being imported.
    torch._C.default_generator.manual_seed(SEED)

    def __iter__(self):
        if os.getpid() != clock.pid:
            return make_iterator(self)
        clock.loaders += 1
        if learner:
            learner.start(scan=True)
        if clock.mode == "synthetic":
            return synthetic_iterator(self, make_iterator, clock)
        return Timed(make_iterator(self), clock)

    module.DataLoader.__iter__ = __iter__


def watch_compiler(module, clock):
    try:
        module.callback_handler.register_start_callback(clock.compile_begin)
        module.callback_handler.register_end_callback(clock.compile_end)
        clock.compiling_known = True
    except AttributeError:
        pass  # an older PyTorch, which does not report compiling


class Finder(importlib.abc.MetaPathFinder):
    """Finds a module with the other finders, and calls `ready` once the module is loaded."""

    def __init__(self, target, ready):
        self.target, self.ready = target, ready

    def find_spec(self, name, path, target=None):
        if name != self.target:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                self.ready(module)

            spec.loader.exec_module = exec_module
        return spec


def install():
    environment = os.environ
    if not environment.get("DIESEL_TRUTH_OUT"):
        return
    clock = Clock(environment.get("DIESEL_TRUTH_MODE", "clock"), int(environment.get("DIESEL_TRUTH_STEPS", "0")),
                  environment["DIESEL_TRUTH_OUT"])
    learner = Learner(environment["DIESEL_TRUTH_FILES"]) if clock.mode == "learn" else None
    sys.meta_path.insert(0, Finder(LOADER, lambda module: patch(module, clock, learner)))
    sys.meta_path.insert(0, Finder(COMPILER, lambda module: watch_compiler(module, clock)))


install()
chain()
