# SPDX-License-Identifier: Apache-2.0
"""The grammar: random scripts that use a DataLoader as users do. A number always makes the same script."""
import random

SIZES = {"equal": 23, "ragged": 23, "even": 24, "images": 23}

FUNCTIONS = '''
def double(x):
    return x * 2

def to_float(x):
    return x.float() / 4

def pixels(image):
    return torch.from_numpy(numpy.array(image)).permute(2, 0, 1)

def dark(image):
    return pixels(image) // 2

def first(x):
    return x[:1].clone()

def last(x):
    return x[-1:].clone()

class Add:
    def __init__(self, amount):
        self.amount = amount

    def __call__(self, x):
        return x.float() + self.amount

def negated(label):
    return -label

def as_dict(samples):
    return {"x": torch.stack([x for x, _ in samples]), "y": torch.tensor([y for _, y in samples])}

def as_is(samples):
    return list(samples)

def as_tuple(samples):
    return tuple(map(list, zip(*samples)))

class Backwards(torch.utils.data.Sampler):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n - 1, -1, -1))

    def __len__(self):
        return self.n

class Pairs:
    """A batch sampler that is told the epoch."""
    epoch = 0

    def __init__(self, n):
        self.n = n

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([[(i + self.epoch) % self.n, (i + self.epoch + 1) % self.n] for i in range(0, self.n - 1, 2)])

    def __len__(self):
        return self.n // 2
'''

CLASSES = {
    "Mine": '''
class Mine(Folder):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x * 2, y + 100
''',
    "Listed": '''
class Listed(Folder):
    def __getitems__(self, indices):
        return [(self[i][0], self[i][1] + 50) for i in indices]
''',
    "Fewer": '''
class Fewer(Folder):
    def __len__(self):
        return 9
''',
    "Quiet": '''
class Quiet(Folder):
    def hello(self):
        return "nothing of the samples"
''',
    "MySubset": '''
class MySubset(Subset):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + 1, y
    def __getitems__(self, indices):
        return [self[i] for i in indices]
''',
    "Wrapper": '''
class Wrapper(torch.utils.data.Dataset):
    def __init__(self, data):
        self.data = data
    def __len__(self):
        return len(self.data)
    def __getitem__(self, i):
        x, y = self.data[i]
        return x + 7, y
''',
}


class Script:
    """One of the scripts, in `text`."""

    def __init__(self, number, trained=True):
        self.random, self.lines, self.used, self.n_epochs = random.Random(number), [], [], 0
        self.tag, self.trained = 0, trained
        self.seeded = self.random.random() < 0.5
        if self.seeded:
            self.say(f"torch.manual_seed({self.random.randrange(9)})")
        what = [self.loops] * 12 + [self.resumed, self.told_epochs, self.of_ranks] + ([self.of_a_framework] * 2 if trained else [])
        self.random.choice(what)()
        self.text = FUNCTIONS + "".join(CLASSES[name] for name in self.used) + "\n" + "\n".join(self.lines) + "\n"

    def say(self, *lines):
        self.lines += lines

    def may(self, likely=0.3):
        return self.random.random() < likely

    def name(self):
        self.n_epochs += 1
        return f'"{self.n_epochs}"'

    # The data

    def make_data(self, kinds=("equal", "ragged", "even", "images"), plainly=False):
        """Writes the definition of `data`. Facts about it stay in attributes."""
        one = self.random.choice
        self.kind, self.n, self.is_in_order = one(kinds), 0, True
        self.n = SIZES[self.kind]
        transforms = {"equal": ["double", "to_float", "Add(3)", "first"], "even": ["double", "Add(1)", "last"], "ragged": ["first", "last"],
                      "images": ["pixels", "dark"]}[self.kind]
        self.transforms = transforms
        needs = self.kind in ("ragged", "images")
        self.transform = one(transforms) if needs or self.may(0.5) else None
        options = [f"transform={self.transform}"] if self.transform else []
        options += ["target_transform=negated"] if self.may(0.2) else []
        kind = "Folder"
        if not plainly and self.may(0.2):
            kind = self.use(one(("Mine", "Listed", "Fewer", "Quiet") if self.kind != "images" else ("Listed", "Quiet")))
        self.say(f'data = {kind}({", ".join([f"data_of({self.kind!r})", *options])})', "whole = data")
        self.of_subset = False
        if not plainly and self.may(0.35):
            self.part()

    def use(self, name):
        if name not in self.used:
            self.used.append(name)
        return name

    def part(self):
        """Takes some of the samples, in an order of its own."""
        kind = self.random.choice(("Subset", "Subset", "MySubset", "sorted", "split", "twice", "Concat", "Wrapper", "nested"))
        indices = self.random.sample(range(self.n), self.random.randrange(8, self.n))
        self.of_subset = True
        if kind in ("Concat", "Wrapper"):
            self.of_subset = False
            self.say("data = torch.utils.data.ConcatDataset([data, data])" if kind == "Concat" else f"data = {self.use('Wrapper')}(data)")
        elif kind == "split":
            self.say(f"data, other = torch.utils.data.random_split(data, [{self.n - 7}, 7], torch.Generator().manual_seed(4))")
            self.n -= 7
        elif kind == "twice":
            self.say(f"data = Subset(data, [3, 5, 3, 8, 1, 9, 0, 7, 4])")
            self.n = 9
        else:
            self.say(f"data = {self.use('MySubset') if kind == 'MySubset' else 'Subset'}(data, {sorted(indices) if kind == 'sorted' else indices})")
            self.n = len(indices)
            if kind == "nested":
                self.say(f"data = Subset(data, range(0, {self.n}, 2))")
                self.n = (self.n + 1) // 2

    # The loader

    def make_loader(self, name="loader", **fixed):
        """Writes the definition of the loader. Returns whether its order is a shuffle."""
        one, options = self.random.choice, dict(fixed)
        shuffled, sized, n = False, True, self.n
        order = one(("plain", "shuffle", "shuffle", "shuffle", "random", "sequential", "weighted", "replaced", "backwards", "list", "batches",
                     "pairs", "few", "single")) if "order" not in options else options.pop("order")
        if order == "shuffle":
            options["shuffle"], shuffled = "True", True
        elif order == "random":
            options["sampler"], shuffled = "torch.utils.data.RandomSampler(data)", True
        elif order == "sequential":
            options["sampler"] = "torch.utils.data.SequentialSampler(data)"
        elif order == "weighted":
            options["sampler"] = f"torch.utils.data.WeightedRandomSampler([i % 3 + 1.0 for i in range({n})], {n}, generator=torch.Generator().manual_seed(1))"
        elif order == "replaced":
            options["sampler"] = f"torch.utils.data.RandomSampler(data, replacement=True, num_samples={n + 5}, generator=torch.Generator().manual_seed(2))"
        elif order == "few":
            options["sampler"] = f"torch.utils.data.RandomSampler(data, num_samples={n - 3}, generator=torch.Generator().manual_seed(2))"
        elif order == "backwards":
            options["sampler"] = f"Backwards({n})"
        elif order == "list":
            options["sampler"] = str(self.random.sample(range(n), n))
        elif order == "batches":
            options["batch_sampler"] = f"torch.utils.data.BatchSampler(Backwards({n}), 4, {one((True, False))})"
            sized = False
        elif order == "pairs":
            options["batch_sampler"], sized = f"Pairs({n})", False
        elif order == "single":
            options["batch_size"], sized = "None", False
            if self.may():
                options["shuffle"], shuffled = "True", True
        if sized:
            options.setdefault("batch_size", str(one((1, 2, 4, 5, 7, 30))))
            if self.may():
                options["drop_last"] = "True"
        if self.may(0.7):
            options.setdefault("num_workers", str(one((0, 0, 0, 1, 2))))
        if options.get("num_workers", "0") != "0" and self.may(0.4):
            options["persistent_workers"] = "True"
        if "batch_size" not in options or options["batch_size"] != "None":
            collate = one((None, None, None, "as_dict", "as_is", "as_tuple"))
            if collate:
                options.setdefault("collate_fn", collate)
        if shuffled and self.may(0.25) and order == "shuffle":
            options["generator"] = f"torch.Generator().manual_seed({self.random.randrange(5)})"
        self.options, self.shuffled = options, shuffled
        self.say(f'{name} = DataLoader(data, {", ".join(f"{key}={value}" for key, value in options.items())})')

    def what(self):
        return f", shuffled=True, tag={self.tag}" if self.shuffled else ""

    # Loops over a loader

    def loops(self):
        self.make_data()
        self.make_loader()
        if self.may():
            self.lengths()
        deeds = [self.whole_epoch] * 4 + [self.stopped] * 2 + [self.peek, self.zipped_two, self.twice, self.lengths,
                                                                                     self.listed, self.worker_functions, self.another]
        if "persistent_workers" not in self.options:  # in PyTorch these have one iterator, old functions, and fewer draws
            deeds += [self.replaced, self.replaced, self.zipped, self.nested, self.in_turns, self.kept_open, self.seeded_again, self.state_back]
        for _ in range(self.random.randrange(2, 6)):
            self.random.choice(deeds)()

    def whole_epoch(self):
        self.say(f"epoch({self.name()}, loader{self.what()})")

    def stopped(self):
        self.say(f"epoch({self.name()}, loader, {self.random.randrange(1, 4)}{self.what()})")

    def peek(self):
        self.say(f"take({self.name()}, [next(iter(loader))], loader{self.what()})")

    def zipped(self):
        a, b = self.name(), self.name()
        self.say("pairs = list(zip(loader, loader))", f"take({a}, [a for a, _ in pairs], loader{self.what()})",
                 f"take({b}, [b for _, b in pairs], loader{self.what()})")

    def zipped_two(self):
        was = self.options, self.shuffled
        self.make_loader("second", order="shuffle" if self.may() else "plain", batch_size=self.options.get("batch_size", "4"))
        theirs, (self.options, self.shuffled) = self.what(), was
        a, b = self.name(), self.name()
        self.say("pairs = list(zip(loader, second))", f"take({a}, [a for a, _ in pairs], loader{self.what()})",
                 f"take({b}, [b for _, b in pairs], second{theirs})")

    def nested(self):
        outer, inner = self.name(), self.name()
        self.say("outer, inner = [], []", "for batch in loader:", "    outer.append(batch)", "    inner += itertools.islice(loader, 2)",
                 "    if len(outer) == 3:", "        break", f"take({outer}, outer, loader{self.what()})")
        self.say(f"take({inner}, inner[:2], loader{self.what()})")

    def twice(self):
        self.say("batches = iter(loader)", f"take({self.name()}, batches, loader{self.what()})", 'note("rest", len(list(batches)))')

    def in_turns(self):
        a, b = self.name(), self.name()
        self.say("one, two = iter(loader), iter(loader)", "first_of = [next(one), next(one, None)]", "second_of = list(two)",
                 f"take({a}, [*(x for x in first_of if x is not None), *one], loader{self.what()})",
                 f"take({b}, second_of, loader{self.what()})")

    def kept_open(self):
        self.say("left = iter(loader)", "next(left)")
        self.whole_epoch()

    def another(self):
        """Makes a loader with the same arguments."""
        self.say(f'loader = DataLoader(data, {", ".join(f"{key}={value}" for key, value in self.options.items())})')
        self.whole_epoch()

    def lengths(self):
        self.say('note("lengths", (len(loader), len(loader.dataset), len(data)))')
        if self.may(0.5):
            self.say('note("what it is", (loader.batch_size, loader.drop_last))')
        if self.may(0.5):
            self.say('note("samplers", (len(loader.sampler), len(loader.batch_sampler or ())))')

    def listed(self):
        if self.shuffled:
            self.say('note("numbers", sorted(loader.sampler))')
        else:
            self.say('note("numbers", list(loader.sampler))')
        if self.may(0.5):
            self.say('note("sizes", [len(batch) for batch in loader.batch_sampler or ()])')

    def replaced(self):
        """Replaces an attribute, which counts from the next epoch on."""
        self.tag += 1
        transform = self.random.choice(self.transforms)
        ways = ["whole.transform = {0}", "data.dataset.transform = {0}" if self.of_subset else "data.transform = {0}",
                "whole.target_transform = negated"]
        if self.transform == "Add(3)" and not self.of_subset:
            ways += ["whole.transform.amount += 5"] * 2
        ways += ["loader.collate_fn = as_is", "loader.collate_fn = as_dict", "loader.num_workers = 0"] + (["loader.timeout = 30", "loader.num_workers = 2"] if self.options.get("num_workers", "0") != "0" else [])
        if not self.of_subset:
            ways += ["loader.dataset.transform = {0}"] * 2
        else:
            ways += ["data.indices = list(data.indices)[::-1]", "data.indices = list(data.indices)[:-2]"]
        ways += ["loader.batch_size = 3", "loader.drop_last = True", "loader.sampler = Backwards(5)", "loader.dataset = whole"] if self.may(0.3) else []
        ways += ["loader.worker_init_fn = print"] if self.options.get("num_workers", "0") == "0" else []
        self.say(self.random.choice(ways).format(transform))
        self.whole_epoch()

    def seeded_again(self):
        """Sets a new seed: epochs of several iterators at a time draw in another order here than in PyTorch."""
        who, seed = "loader.generator" if "generator" in self.options else "torch", len(self.lines) + 20
        self.say(f"{who}.manual_seed({seed})")
        self.whole_epoch()
        if self.may(0.5):
            self.whole_epoch()
        self.say(f"{who}.manual_seed({seed})")
        self.whole_epoch()
        self.say(f"{who}.manual_seed({seed + 1000})")

    def state_back(self):
        """Restores the generator's state, as when resuming."""
        if "generator" in self.options:
            return
        self.say("state = torch.get_rng_state()")
        self.whole_epoch()
        self.say("torch.set_rng_state(state)")
        self.whole_epoch()

    def worker_functions(self):
        if self.kind == "images" or self.of_subset or self.shuffled:
            return
        self.tag += 1
        self.say("def told(i):", "    global offset", "    offset = i * 0 + 10", "offset = 0", "def with_offset(x):",
                 "    info = torch.utils.data.get_worker_info()",
                 "    return x[:1].float() + offset + (100 * info.num_workers + 1000 * (0 <= info.id < info.num_workers) if info else 0)",
                 "workers = Folder(data_of(%r), transform=with_offset)" % self.kind,
                 f"epoch({self.name()}, DataLoader(workers, batch_size=5, num_workers={self.random.choice((0, 1, 2))}, worker_init_fn=told))")

    # Epochs

    def resumed(self):
        """Breaks an epoch off, and continues it in another loader."""
        self.make_data(kinds=("equal", "even", "images"), plainly=True)
        self.make_loader(order=self.random.choice(("plain", "shuffle")), batch_size=self.random.choice("2457"), num_workers=str(self.random.choice((0, 0, 1))))
        options = ", ".join(f"{key}={value}" for key, value in self.options.items() if key != "generator")
        k = self.random.randrange(0, 3)
        whole, head, rest, after = self.name(), self.name(), self.name(), self.name()
        self.say(f"make = lambda: DataLoader(data, {options})", "state = torch.get_rng_state()", f"epoch({whole}, make(){self.what()})",
                 "torch.set_rng_state(state)", "loader = make()", "batches = iter(loader)",
                 f"done = list(itertools.islice(batches, {k}))",
                 f"kept = loader.state_dict() if side.is_ours else {k}", "del batches", "torch.set_rng_state(state)", "loader = make()",
                 "if side.is_ours:", "    loader.load_state_dict(kept)", "    rest = iter(loader)", "else:",
                 "    rest = itertools.islice(loader, kept, None)",
                 f"take({head}, done, loader{self.what()})", f"take({rest}, [*done, *rest], loader{self.what()})",
                 f"epoch({after}, loader{self.what()})")

    def told_epochs(self):
        """Uses DistributedSampler without a group: each rank's loader in one process."""
        self.make_data(kinds=("even",), plainly=True)
        shuffled = self.may(0.7)
        batch, world, self.tag = self.random.choice((1, 4, 5, 12)), self.random.choice((2, 3)), 1
        to = self.random.choice(("sampler", "loader.sampler", "loader.batch_sampler.sampler"))
        more = self.random.choice(("", ", drop_last=True", ", num_workers=1", ", collate_fn=as_dict"))
        more += self.random.choice(("", ", seed=3"))
        told = [self.random.randrange(3) for _ in range(3)]
        of_sampler = ", drop_last=True" if self.may() else ""
        seed = ", seed=3" if ", seed=3" in more else ""
        more = more.replace(", seed=3", "")
        self.say(f"sampler_of = torch.utils.data.distributed.DistributedSampler", f"for e in {told}:", "    batches, sizes = [], []",
                 f"    for rank in range({world}):",
                 f"        sampler = sampler_of(data, {world}, rank, shuffle={shuffled}{seed}{of_sampler})",
                 f"        loader = DataLoader(data, batch_size={batch}, sampler=sampler{more})",
                 f"        {to}.set_epoch(e)", "        share = list(loader)", "        sizes.append((len(loader), len(share)))",
                 "        batches += share", '    note("sizes", sizes)',
                 f'    take(f"epoch {{e}}", batches, loader{", shuffled=True, tag=1" if shuffled else ""})')

    def of_ranks(self):
        self.make_data(kinds=("even",), plainly=True)
        shuffled, batch, self.tag = self.may(0.7), self.random.choice((2, 4, 6)), 1
        told = [0, 1, self.random.randrange(2)] if self.may(0.7) else [0, 0]
        drop = self.random.choice(("", ", drop_last=True"))
        self.say("def train(rank):", f"    sampler = torch.utils.data.distributed.DistributedSampler(data, shuffle={shuffled})",
                 f"    loader = DataLoader(data, batch_size={batch}, sampler=sampler{drop})",
                 *([f"    if rank == {self.random.randrange(2)}:", "        next(iter(loader))"] if self.may(0.4) else []), f"    for e in {told}:",
                 "        sampler.set_epoch(e)", f'        epoch(f"epoch {{e}}", loader{", shuffled=True, tag=1" if shuffled else ""})',
                 "ranks(2, train)")

    def of_a_framework(self):
        self.make_data(kinds=("equal", "even"), plainly=True)
        batch, shuffled = self.random.choice((4, 5)), self.may(0.7)
        what = ", shuffled=True, tag=1" if shuffled else ""
        workers = self.random.choice((0, 0, 1))
        self.say("import trained", f"make = lambda: DataLoader(data, batch_size={batch}, shuffle={shuffled}, num_workers={workers}, collate_fn=trained.collate)")
        call = self.random.choice((f"trained.lightning(make, max_epochs={self.random.choice((1, 2, 3))})",
                                   "trained.lightning(make, max_epochs=2, limit_train_batches=3)",
                                   "trained.lightning(make, max_epochs=2, reload_dataloaders_every_n_epochs=1)",
                                   "trained.lightning(make, max_epochs=2, overfit_batches=2)",
                                   "trained.lightning(make, max_epochs=2, accumulate_grad_batches=2, gradient_clip_val=1.0)",
                                   "trained.lightning_resumed(make)",
                                   "trained.lightning_validated(make)", "trained.lightning_predicted(make)",
                                   f"trained.trainer(make, num_train_epochs={self.random.choice((1, 2))})",
                                   "trained.trainer(make, max_steps=8)", "trained.trainer_resumed(make, 7)", "trained.trainer_resumed(make, 3)",
                                   "trained.trainer(make, num_train_epochs=2, gradient_accumulation_steps=2)",
                                   "trained.accelerated(make)", "trained.accelerated_skips(make)", "trained.accelerated_skips(make, tell=False)",
                                   "trained.accelerated_state(make)", "trained.accelerated_gathers(make)"))
        self.say(f"for name, batches, order in {call}:",
                 f"    take(name, batches, make(){', shuffled=order != %r, tag=order' % 'exact' if shuffled else ''})")
