# SPDX-License-Identifier: Apache-2.0
"""Tests which share of the samples a process gets: from its arguments, torch.distributed or the launcher's environment."""
import json
import logging
import os
import pathlib
import tempfile
import threading
import unittest
from unittest import mock

# Imported first: skips where modules are missing.
from torch_support import Daemon, grouped, pack
from forked import Script
import torch.distributed

import diesel_loader.torch as diesel
from diesel_loader.ranks import agreement, dealing, membership

N_SAMPLES, BATCH = 61, 4
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID",
             "SLURM_STEP_NUM_TASKS")

# Arguments: dataset, file of the rendezvous (or none). Prints len() before and after, and every sample that it gets.
JOB = f"""
import json, sys, torch.distributed as dist, diesel_loader.torch as diesel
loader = diesel.DataLoader(sys.argv[1], batch_size={BATCH}, shuffle=True, seed=3)
before = len(loader)
if len(sys.argv) > 2:
    dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=int(sys.argv[3]), world_size=2)
batches = [data for data, _ in loader]
print(json.dumps([before, len(loader), len(batches), [bytes(item.tolist()).hex() for data in batches for item in data]]))
"""


# Arguments: dataset, file of the rendezvous, rank, keyword arguments and state of this rank, seed of torch. The state also holds whether
# the rank reads a batch first, and the epoch that it sets then. Prints the numbers of two epochs, or the error.
RANK = """
import json, logging, os, sys, torch, torch.distributed as dist, diesel_loader.torch as diesel
from diesel_loader.ranks import dealing
from torch_support import grouped
path, file, rank, options, state, seed = sys.argv[1:]
dist.init_process_group("gloo", init_method="file://" + file, rank=int(rank), world_size=2)
torch.manual_seed(int(seed))
loader = diesel.DataLoader(path, **grouped({"batch_size": 4, "shuffle": True, "return_ids": True, **json.loads(options)}))
state, said, log = json.loads(state), [], logging.Handler()
log.emit = lambda record: said.append(record.getMessage())
logging.getLogger("diesel_loader").addHandler(log)
if state.pop("looks", False):
    next(iter(loader))
if "told" in state:
    loader.set_epoch(state.pop("told"))
if state:
    loader.load_state_dict({**loader.state_dict(), **state})
try:
    numbers = [[n for *_, ids in loader for n in ids.tolist()] for _ in range(2)]
    print(json.dumps(said or numbers))
except ValueError as error:
    print(json.dumps(str(error)))
"""


def find(group=None, **environment):
    return membership.find({name: str(value) for name, value in environment.items()}, group)


class FindTest(unittest.TestCase):
    """Tests only membership.find(), which is pure."""

    def test_nothing_says_that_there_are_ranks(self):
        self.assertEqual(find(), (0, 1))
        self.assertEqual(find(LOCAL_RANK=0), (0, 1))
        self.assertEqual(find(WORLD_SIZE=1), (0, 1))

    def test_torchrun(self):
        self.assertEqual(find(RANK=5, WORLD_SIZE=8, LOCAL_RANK=1, GROUP_RANK=1, LOCAL_WORLD_SIZE=4), (5, 8))

    def test_lightning_sets_no_rank(self):
        self.assertEqual(find(LOCAL_RANK=1, NODE_RANK=0, WORLD_SIZE=2), (1, 2))
        self.assertEqual(find(LOCAL_RANK=0, NODE_RANK=0, WORLD_SIZE=2), (0, 2))

    def test_a_rank_of_another_node_needs_the_ranks_of_a_node(self):
        self.assertEqual(find(LOCAL_RANK=1, NODE_RANK=2, LOCAL_WORLD_SIZE=4, WORLD_SIZE=16), (9, 16))
        self.assertEqual(find(LOCAL_RANK=1, GROUP_RANK=2, LOCAL_WORLD_SIZE=4, WORLD_SIZE=16), (9, 16))
        self.assertEqual(find(LOCAL_RANK=1, LOCAL_WORLD_SIZE=4, WORLD_SIZE=4), (1, 4))
        with self.assertRaisesRegex(ValueError, "LOCAL_WORLD_SIZE"):
            find(LOCAL_RANK=1, NODE_RANK=2, WORLD_SIZE=16)

    def test_a_local_rank_without_its_node_is_not_taken_for_a_rank(self):
        with self.assertRaisesRegex(ValueError, "NODE_RANK"):
            find(LOCAL_RANK=0, WORLD_SIZE=2)

    def test_slurm(self):
        self.assertEqual(find(WORLD_SIZE=4, SLURM_PROCID=3, SLURM_STEP_NUM_TASKS=4), (3, 4))
        self.assertEqual(find(SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=1), (0, 1))
        with self.assertRaisesRegex(ValueError, "srun started 4 tasks"):  # four ranks, or four jobs?
            find(SLURM_PROCID=3, SLURM_STEP_NUM_TASKS=4)
        self.assertEqual(find(RANK=0, WORLD_SIZE=2, SLURM_PROCID=3, SLURM_STEP_NUM_TASKS=4), (0, 2))

    def test_torch_distributed_goes_first(self):
        self.assertEqual(find((1, 2)), (1, 2))
        self.assertEqual(find((1, 2), LOCAL_RANK=0, WORLD_SIZE=2), (1, 2))  # nothing contradicts it
        self.assertEqual(find((3, 4), SLURM_PROCID=3, SLURM_STEP_NUM_TASKS=4), (3, 4))

    def test_contradictions_are_refused_in_one_line(self):
        for group, environment, words in (
                (None, {"WORLD_SIZE": 2}, "WORLD_SIZE is 2, but"),
                (None, {"RANK": 1}, "RANK is 1, but WORLD_SIZE is not set"),
                (None, {"LOCAL_RANK": 1}, "LOCAL_RANK is 1, but WORLD_SIZE is not set"),
                (None, {"RANK": 2, "WORLD_SIZE": 2}, "rank 2 is not within world size 2"),
                (None, {"RANK": "one", "WORLD_SIZE": 2}, "RANK must be a number, not 'one'"),
                (None, {"RANK": 0, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "WORLD_SIZE": 2}, "LOCAL_RANK is 1"),
                ((0, 2), {"RANK": 1, "WORLD_SIZE": 2}, "RANK is 1, but the process group's rank is 0"),
                ((0, 2), {"RANK": 0, "WORLD_SIZE": 4}, "WORLD_SIZE is 4, but the process group's world size is 2")):
            with self.assertRaisesRegex(ValueError, words) as caught:
                find(group, **environment)
            self.assertNotIn("\n", str(caught.exception))
            self.assertIn("rank and world_size", str(caught.exception))  # names the fix

    def test_a_world_size_is_known_before_the_rank(self):
        self.assertEqual(membership.world_size({"WORLD_SIZE": "8", "NODE_RANK": "1", "LOCAL_RANK": "0"}, None), 8)
        self.assertEqual(membership.world_size({"WORLD_SIZE": "8"}, (1, 2)), 2)
        self.assertEqual(membership.world_size({}, None), 1)


class DealingTest(unittest.TestCase):
    """Tests the default of lanes, which is pure."""

    def test_a_lane_for_each_rank(self):
        for lanes, drift, world_size, shuffle, found in ((None, None, 1, True, (1, 0)), (None, None, 8, True, (8, 0)), (None, 4, 12, True, (12, 4)),
                                                         (None, None, 8, False, (1, 0)), (3, None, 8, True, (3, 0)), (3, 1, 8, False, (3, 1))):
            self.assertEqual(dealing.in_force(lanes, drift, world_size, shuffle), found)

    def test_a_window_for_each_lane(self):
        for window, lanes, is_fair, found in ((0, 1, True, 8), (0, 2, True, 2), (0, 64, True, 2), (5, 1, True, 5), (1, 8, False, 1), (0, 8, False, 8), (0, 1, False, 8)):
            self.assertEqual(dealing.window(window, lanes, mock.Mock(is_fair=is_fair)), found)


class LoaderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        (cls.folder / "raw" / "class").mkdir(parents=True)
        for i in range(N_SAMPLES):
            (cls.folder / "raw" / "class" / f"{i:02d}.bin").write_bytes(bytes([i]) * 16)
        cls.dataset = pack(cls.folder / "raw", cls.folder / "packed")
        cls.daemon = cls.enterClassContext(Daemon(cls.folder))

    def setUp(self):
        kept = {name: os.environ.pop(name) for name in LAUNCHERS if name in os.environ}
        self.addCleanup(os.environ.update, kept)

    def set(self, **environment):
        os.environ.update({name: str(value) for name, value in environment.items()})
        for name in environment:
            self.addCleanup(os.environ.pop, name, None)

    def two(self, *environments, distributed=False):
        """Returns the output of two processes with these variables of their own."""
        arguments = [str(self.dataset), *([str(self.folder / f"meet{self.id()}")] if distributed else [])]
        jobs = [Script(JOB, *arguments, *([rank] if distributed else []),
                       environment={**os.environ, **{name: str(value) for name, value in own.items()}})
                for rank, own in enumerate(environments)]
        outputs = [job.communicate()[0] for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [0, 0])
        return [json.loads(output) for output in outputs]

    def check(self, shares, before):
        self.assertEqual([share[:3] for share in shares], [[before, 8, 8]] * 2)
        every = [sample for share in shares for sample in share[3]]
        self.assertEqual(sorted(every), sorted((bytes([i]) * 16).hex() for i in range(N_SAMPLES)))

    def test_lightnings_ddp_sets_local_rank_and_world_size(self):
        self.check(self.two({"LOCAL_RANK": 0, "NODE_RANK": 0, "WORLD_SIZE": 2},
                            {"LOCAL_RANK": 1, "NODE_RANK": 0, "WORLD_SIZE": 2}), before=8)

    def test_made_before_torch_distributed_and_the_variables(self):
        """Lightning's main process sets the variables for its children after the loader exists."""
        if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
            self.skipTest("needs torch.distributed with gloo")
        self.check(self.two({}, {}, distributed=True), before=16)

    def test_lightnings_main_process_and_its_child(self):
        first, second = self.two({}, {"LOCAL_RANK": 1, "NODE_RANK": 0, "WORLD_SIZE": 2}, distributed=True)
        self.assertEqual((first[0], second[0]), (16, 8))
        self.check([[16, *first[1:]], [16, *second[1:]]], before=16)

    def ranks(self, *each):
        """Returns the output of two ranks, each given (options, state, seed of torch)."""
        with tempfile.TemporaryDirectory() as folder:
            jobs = [Script(RANK, self.dataset, f"{folder}/rendezvous", rank, json.dumps(options), json.dumps(state), seed)
                    for rank, (options, state, seed) in enumerate(each)]
            return [json.loads(job.communicate()[0]) for job in jobs]

    def test_ranks_that_do_not_agree_say_so(self):
        """Each rank reports it, before the first batch. A difference in the set position is reported before the second."""
        if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
            self.skipTest("needs torch.distributed with gloo")
        one, other = {"seed": 1, "window_chunks": 3, "lanes": 3}, {"seed": 2, "batch_size": 5, "drop_last": True, "drift": 3}
        for said in self.ranks((one, {}, 0), (other, {}, 0)):
            for name in ("seed", "window_chunks", "global_batch_size", "drop_last", "lanes", "drift"):
                self.assertRegex(said, f"ranks do not agree on the order.*[( ]{name} is")
        for said in self.ranks((one, {"samples": 24}, 0), (one, {"samples": 16}, 0)):
            self.assertRegex(said, r"ranks do not agree on the order \(batch is")

    def test_a_rank_that_looks_while_another_compares_agrees_to_nothing_else(self):
        """Rank 1 is slow: after each of its steps in the store, rank 0 has time to look."""
        store, ended, said = torch.distributed.HashStore(), threading.Event(), {}

        class Slow:
            def __getattr__(self, name):
                def call(*arguments):
                    try:
                        return getattr(store, name)(*arguments)
                    finally:
                        ended.wait(0.1)
                return call

        def check(rank, store):
            try:
                said[rank] = agreement.check(store, "loader", "first", (rank, 2), {"seed": rank}, "path", 60)
            except ValueError as error:
                said[rank] = str(error)
            ended.set()

        threads = [threading.Thread(target=check, args=each) for each in enumerate((store, Slow()))]
        threads[0].start()
        while not store.add("loader/first/n", 0):
            pass
        threads[1].start()
        for thread in threads:
            thread.join()
        for rank in range(2):
            self.assertRegex(str(said[rank]), "ranks do not agree on the order .seed is 1 on rank 1 and 0 on rank 0")

    def test_a_rank_that_began_alone_hears_of_the_difference_later(self):
        store = torch.distributed.HashStore()
        self.assertFalse(agreement.check(store, "loader", "first", (0, 2), {"seed": 0}, "path", 0))
        store.compare_set("loader/first", "", json.dumps({"rank": 0, "seed": 0}))  # rank 1 compared before rank 0 withdrew
        with self.assertRaisesRegex(ValueError, "seed is 1 on rank 1"):
            agreement.check(store, "loader", "first", (1, 2), {"seed": 1}, "path", 0)
        with self.assertRaisesRegex(ValueError, "seed is 1 on rank 1"):
            agreement.check(store, "loader", 0, (0, 2), {"seed": 0}, "path", 0)

    def test_ranks_with_other_lanes_say_so(self):
        if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
            self.skipTest("needs torch.distributed with gloo")
        for said in self.ranks(({"seed": 1, "lanes": 2}, {}, 0), ({"seed": 1, "lanes": 3}, {}, 0)):
            self.assertRegex(said, "ranks do not agree on the order.*lanes is 2 on rank 0 and 3 on rank 1|lanes is 3 on rank 1 and 2 on rank 0")

    def test_a_rank_may_look_at_a_batch_alone(self):
        """Tests an epoch that was not set, and another one than is set then. No rank waits meanwhile."""
        if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
            self.skipTest("needs torch.distributed with gloo")
        for told in ({}, {"told": 3}):
            shares = self.ranks(({"seed": 1}, {"looks": True, **told}, 0), ({"seed": 1}, told, 0))
            for epoch in range(2):
                self.assertEqual(sorted(shares[0][epoch] + shares[1][epoch]), list(range(N_SAMPLES)))

    def test_ranks_of_torchrun_agree_without_a_group(self):
        """The ranks use the store of torchrun's agent, which is this process here."""
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.set(TORCHELASTIC_USE_AGENT_STORE=True, MASTER_ADDR="127.0.0.1", MASTER_PORT=store.port)
        job = JOB.replace("seed=3", "seed=int(sys.argv[2])").replace("if len(sys.argv) > 2", "if False")
        for seeds, words in (((1, 1), None), ((1, 2), "ranks do not agree on the order.*[( ]seed is")):
            self.set(TORCHELASTIC_RESTART_COUNT=seeds[1])
            jobs = [Script(job, self.dataset, seed, environment={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"})
                    for rank, seed in enumerate(seeds)]
            for said, errors in [job.communicate() for job in jobs]:
                self.assertRegex(errors, words or "^$")
                self.assertEqual(not said, bool(words), errors)

    def test_ranks_have_one_seed_where_none_is_given(self):
        if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
            self.skipTest("needs torch.distributed with gloo")
        shares = self.ranks(({}, {}, 5), ({}, {}, 6))
        for epoch in range(2):
            self.assertEqual(sorted(shares[0][epoch] + shares[1][epoch]), list(range(N_SAMPLES)))
        self.assertEqual(self.ranks(({}, {}, 5), ({}, {}, 7)), shares)

    def test_a_share_by_the_environment_alone_is_told(self):
        self.set(RANK=1, WORLD_SIZE=2)
        with self.assertLogs("diesel_loader", "WARNING") as log:
            self.assertEqual(len(list(diesel.DataLoader(self.dataset, batch_size=BATCH))), 8)
        self.assertIn("rank 1 of 2, by the launcher's variables", log.output[0])

    def test_a_state_goes_on_with_other_steps(self):
        """The other steps need not be whole steps."""
        def numbers(world, batch_size, state=None, n=100):
            loaders = [diesel.DataLoader(self.dataset, batch_size, True, seed=3, batches=diesel.Batches(return_ids=True), job=diesel.Job(rank=rank, world_size=world))
                       for rank in range(world)]
            for loader in loaders:
                if state:
                    loader.load_state_dict(state)
            got = [i for loader in loaders for _, batch in zip(range(n), loader) for i in batch[2].tolist()]
            return got, loaders[0].state_dict()

        for begun in ((2, 3), (3, 2), (1, 5), (4, 7)):
            head, state = numbers(2, 3, n=3)
            rest, _ = numbers(*begun, state)
            self.assertEqual(sorted(head + rest), list(range(N_SAMPLES)))

    def test_a_state_is_of_the_ranks_that_there_are_when_it_is_iterated(self):
        first = diesel.DataLoader(self.dataset, 7, True, seed=3, batches=diesel.Batches(return_ids=True))
        seen = next(iter(first))[2].tolist()
        loaders = [diesel.DataLoader(self.dataset, 5, True, seed=3, batches=diesel.Batches(return_ids=True)) for _ in range(3)]
        for loader in loaders:
            loader.load_state_dict(first.state_dict())
        for rank, loader in enumerate(loaders):
            self.set(RANK=rank, WORLD_SIZE=3)
            seen += [i for *_, numbers in loader for i in numbers.tolist()]
        self.assertEqual(sorted(seen), list(range(N_SAMPLES)))

    def test_lanes_follow_the_ranks_that_there_are_when_it_is_iterated(self):
        dataset = diesel.Dataset(self.dataset)
        for world_size in (1, 4):
            lanes = {"shuffled": diesel.DataLoader(dataset, shuffle=True), "stored": diesel.DataLoader(dataset),
                     "given": diesel.DataLoader(dataset, order=diesel.Order(lanes=3))}
            sampler = diesel.ChunkShuffleSampler(dataset)
            self.set(RANK=world_size - 1, WORLD_SIZE=world_size)
            self.assertEqual({name: loader.state_dict()["lanes"] for name, loader in lanes.items()},
                             {"shuffled": world_size, "stored": 1, "given": 3})
            self.assertEqual(lanes["shuffled"].state_dict()["window_chunks"], 2 if world_size > 1 else 8)
            self.assertEqual(sampler.state_dict()["lanes"], world_size)
            self.assertEqual(lanes["shuffled"].sampler.state_dict()["lanes"], world_size)
            next(iter(lanes["shuffled"]))
            self.assertEqual(lanes["shuffled"]._stream.dealt, (world_size, 0))

    def test_a_dataset_in_the_order_of_its_classes_is_told(self):
        source = self.folder / "classes"
        for i in range(2000):
            (source / f"class{i % 10}").mkdir(parents=True, exist_ok=True)
            (source / f"class{i % 10}" / f"{i}.bin").write_bytes(i.to_bytes(4, "little") * 4000)
        for order, is_fair in (("random", True), ("source", False)):
            packed = pack(source, self.folder / order, "--chunk-size", "4M", "--order", order)
            self.assertEqual(diesel.Dataset(str(packed)).is_fair, is_fair)
            for options, says in (({"shuffle": True}, not is_fair), ({"shuffle": True, "window_chunks": 32}, False), ({}, False)):
                loader = diesel.DataLoader(str(packed), **grouped({"rank": 0, "world_size": 2, **options}))
                with self.assertLogs("diesel_loader", "WARNING") as log:
                    logging.getLogger("diesel_loader").warning("one line at least")
                    for _ in range(2):
                        next(iter(loader))
                self.assertEqual(sum("pack it again" in line for line in log.output), says, (order, options, log.output))
                if options == {"shuffle": True}:
                    self.assertEqual(loader.state_dict()["window_chunks"], 2 if is_fair else 8)

    def test_decided_when_iterated(self):
        loader = diesel.DataLoader(self.dataset, batch_size=BATCH)
        self.assertEqual((loader.rank, loader.world_size, len(loader), len(list(loader))), (0, 1, 16, 16))
        self.set(RANK=1, WORLD_SIZE=2)
        self.assertEqual((loader.rank, loader.world_size, len(loader), len(list(loader))), (1, 2, 8, 8))
        loader.close()

    def test_an_iterator_keeps_its_ranks(self):
        loader = diesel.DataLoader(self.dataset, batch_size=BATCH)
        batches = iter(loader)
        next(batches)
        self.set(RANK=1, WORLD_SIZE=2)
        self.assertEqual(len(batches), 15)
        self.assertEqual(len(list(batches)), 15)

    def test_arguments_go_before_everything(self):
        self.set(RANK=1, WORLD_SIZE=2)
        loader = diesel.DataLoader(self.dataset, batch_size=BATCH, job=diesel.Job(rank=0, world_size=1))
        self.assertEqual(len(list(loader)), 16)

    def test_a_contradiction_is_refused_when_iterated(self):
        self.set(WORLD_SIZE=2)
        loader = diesel.DataLoader(self.dataset, batch_size=BATCH)
        self.assertEqual(len(loader), 8)
        with self.assertRaisesRegex(ValueError, "WORLD_SIZE is 2, but"):
            iter(loader)

    def test_fewer_samples_than_ranks(self):
        with self.assertRaisesRegex(ValueError, "fewer than the 100 ranks"):
            diesel.DataLoader(self.dataset, job=diesel.Job(rank=0, world_size=100))
        loader = diesel.DataLoader(self.dataset)
        self.set(RANK=1, WORLD_SIZE=100)
        with self.assertRaisesRegex(ValueError, "fewer than the 100 ranks"):
            iter(loader)

    def test_an_iterator_that_gave_nothing_took_no_epoch(self):
        """Lightning calls iter() to learn whether the loader can be iterated."""
        loader = diesel.DataLoader(self.dataset, batch_size=BATCH, shuffle=True, seed=0)
        plain = [data.tolist() for data, _ in loader]
        loader.set_epoch(0)
        iter(loader)
        self.assertEqual([data.tolist() for data, _ in loader], plain)
        state = {**loader.state_dict(), "epoch": 0, "samples": 14 * BATCH}
        loader.load_state_dict(state)
        iter(loader)
        self.assertEqual([data.tolist() for data, _ in loader], plain[14:])


if __name__ == "__main__":
    unittest.main()
