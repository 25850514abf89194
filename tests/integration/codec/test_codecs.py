# SPDX-License-Identifier: Apache-2.0
"""Tests user codecs: the example, built from the installed header as by a user, codecs that misbehave, and the right to name a codec."""
import contextlib
import json
import os
import pathlib
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
import support  # noqa: E402
from serving import Daemon, grouped, pack  # noqa: E402

try:
    import numpy
    import torch
except ImportError as error:
    support.skip(f"needs {error.name}")

import diesel_loader
import diesel_loader.numpy
from diesel_loader.torch import Batches, DataLoader
from diesel_loader.transforms import Compose

BAD = pathlib.Path(__file__).with_name("bad_codec.c")
BUILD = pathlib.Path(support.program("dieseld")).parents[1]
DAMAGED = 0xff


def install_header(folder):
    """Installs the header that the package puts in /usr/include."""
    subprocess.run(["cmake", f"-DCMAKE_INSTALL_PREFIX={folder}", "-P", BUILD / "daemon/sandboxed/cmake_install.cmake"], check=True,
                   stdout=subprocess.DEVNULL)
    return folder / "include"


def wav(values, rate=16000):
    """Returns a WAV file of 16-bit PCM: int16 [frames, channels]."""
    data = values.astype("<i2").tobytes()
    head = struct.pack("<HHIIHH", 1, values.shape[1], rate, 2 * values.shape[1] * rate, 2 * values.shape[1], 16)
    pieces = b"LIST" + struct.pack("<I", 3) + b"abc\0" + b"fmt " + struct.pack("<I", 16) + head
    body = b"WAVE" + pieces + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def recording(i):
    """Returns the i-th recording: 50 to 290 frames, of one channel or two."""
    return numpy.random.default_rng(i).integers(-32768, 32768, (50 + 10 * i, 1 + i % 2))


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.folder = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory(prefix="diesel-codecs-")))
        os.chmod(cls.folder, 0o755)
        cls.include = install_header(cls.folder)

    @classmethod
    def build(cls, source, name, *options):
        path = cls.folder / name
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-shared", "-fPIC", "-I", cls.include,
                        *options, "-o", path, source], check=True)
        os.chmod(path, 0o644)
        return str(path)

    @classmethod
    def serve(cls, *codecs, options=()):
        named = (o for path in codecs for o in ("--codec", path))
        cls.daemon = cls.stack.enter_context(Daemon(cls.folder, "--metrics", "off", *options, *named))

    def loader(self, path, *args, kind=DataLoader, **options):
        loader = kind(str(path), transform=diesel_loader.codec(*args), **grouped({"batch_size": 4, "return_ids": True, **options}))
        self.addCleanup(loader.close)
        return loader

    def samples(self, loader):
        return {int(number): sample for samples, _, numbers in loader for sample, number in zip(samples, numbers)}


class Example(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for i in range(25):
            path = cls.folder / "src" / f"class{i // 13}" / f"{i:02d}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wav(recording(i)))
        cls.path = pack(cls.folder / "src", cls.folder / "sounds.diesel", "--order", "source")
        cls.serve(cls.build(ROOT / "examples/codec/wav.c", "wav.so"))

    def test_values(self):
        loader = self.loader(self.path, "wav", "length=100", native="require")
        self.assertEqual(str(loader.plan()), "dieseld  codec('wav', 'length=100')  (float32 [100])")
        samples = self.samples(loader)
        self.assertEqual(len(samples), 25)
        for i, sample in samples.items():
            self.assertEqual((sample.dtype, sample.shape), (torch.float32, (100,)))
            whole = recording(i).astype("float32").mean(axis=1) / 32768
            if len(whole) <= 100:
                wanted = numpy.pad(whole, (0, 100 - len(whole)))
                self.assertTrue(numpy.array_equal(sample.numpy(), wanted), i)
            else:
                self.assertTrue(any(numpy.array_equal(sample.numpy(), whole[k:k + 100]) for k in range(len(whole) - 99)), i)

    def test_a_sample_is_the_same_whoever_asks(self):
        args = ("wav", "length=60")
        first = self.samples(self.loader(self.path, *args, seed=3))
        for options in ({"batch_size": 7, "shuffle": True}, {"kind": diesel_loader.numpy.DataLoader}):
            other = self.samples(self.loader(self.path, *args, seed=3, **options))
            self.assertEqual(other.keys(), first.keys())
            for i, sample in other.items():
                self.assertTrue(numpy.array_equal(sample, first[i]), (i, options))
        loader = self.loader(self.path, *args, seed=3)
        list(loader)
        second = self.samples(loader)  # the next epoch, in which longer ones begin elsewhere
        self.assertGreater(sum(not numpy.array_equal(second[i], first[i]) for i in range(5, 25)), 15)
        self.assertTrue(all(numpy.array_equal(second[i], first[i]) for i in range(2)))

    def test_numpy(self):
        samples, labels, _ = next(iter(self.loader(self.path, "wav", kind=diesel_loader.numpy.DataLoader)))
        self.assertEqual((type(samples), samples.dtype, samples.shape), (numpy.ndarray, numpy.float32, (4, 16000)))
        self.assertEqual(labels.tolist(), [0, 0, 0, 0])

    def test_what_is_asked_wrongly(self):
        with self.assertRaisesRegex(ValueError, r'^dieseld has no codec "flac"; its codecs are wav$'):
            self.loader(self.path, "flac")
        with self.assertRaisesRegex(ValueError, r"^codec wav: invalid options: must be length=N"):
            self.loader(self.path, "wav", "length=none")
        for name in ("", "../wav", "/tmp/wav.so", "WAV", ".wav"):
            with self.assertRaisesRegex(ValueError, "a codec's name must be"):
                self.loader(self.path, name)
        with self.assertRaisesRegex(ValueError, "a codec's name must be a text of less than 32"):
            self.loader(self.path, "w" * 32)
        with self.assertRaisesRegex(ValueError, "a codec's options must be a text of less than 448"):
            self.loader(self.path, "wav", "l" * 448)
        with self.assertRaisesRegex(ValueError, r"only dieseld can run codec\('wav'\), and here it cannot: native=False"):
            self.loader(self.path, "wav", native=False)
        with self.assertRaisesRegex(ValueError, "must be the first"):
            DataLoader(str(self.path), transform=Compose([torch.nn.Identity(), diesel_loader.codec("wav")]))
        with self.assertRaisesRegex(TypeError, "only dieseld can run"):
            diesel_loader.codec("wav")(b"")

    def test_what_stands_behind_it_runs_in_python(self):
        both = Compose([diesel_loader.codec("wav", "length=60"), torch.abs])
        for workers in (0, 1):
            loader = DataLoader(str(self.path), transform=both, batch_size=4, batches=Batches(return_ids=True), num_workers=workers, seed=3)
            self.addCleanup(loader.close)
            self.assertEqual([step.where for step in loader.plan().steps], ["dieseld", "Python"])
            plain = self.samples(self.loader(self.path, "wav", "length=60", seed=3))
            for i, sample in self.samples(loader).items():
                self.assertTrue(torch.equal(sample, plain[i].abs()))

    def test_one_field_of_samples_is_decoded(self):
        path = self.folder / "pairs.diesel"
        with diesel_loader.create(path) as writer:
            for i in range(25):
                writer.put(f"{i:02d}", {"text": f"said {i}", "sound": wav(recording(i))})
        plain = self.samples(self.loader(self.path, "wav", "length=100", seed=3))
        for batch in DataLoader(path, 4, transform={"sound": diesel_loader.codec("wav", "length=100")}, seed=3, batches=Batches(return_ids=True)):
            for i, sound, text in zip(batch["__id__"].tolist(), batch["sound"], batch["text"]):
                self.assertEqual(text, f"said {i}")
                self.assertTrue(torch.equal(sound, plain[i]))

    def test_status(self):
        wanted = [{"name": "wav", "path": str(self.folder / "wav.so")}]
        self.assertEqual(json.loads(json.dumps(diesel_loader.status()))["codecs"], wanted)
        text = subprocess.run([support.program("dieselctl"), "status"], check=True, capture_output=True, text=True).stdout
        self.assertIn(f"codec     wav, from {self.folder}/wav.so\n", text)


class Misbehaving(Case):
    """24 samples of 16 bytes; number 10 begins with 0xff, where the codec does what its options say."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "src").mkdir()
        for i in range(24):
            (cls.folder / "src" / f"{i:02d}.bin").write_bytes(cls.stored(i))
        cls.path = pack(cls.folder / "src", cls.folder / "bytes.diesel", "--order", "source")
        cls.others = {"old.so": ("-DABI=2",), "plain.so": ("-DNO_SYMBOL",), "undefined.so": ("-DUNDEFINED",),
                      "again.so": (), "name.so": ('-DCODEC_NAME="../Bad"',)}
        others = [cls.build(BAD, name, *options) for name, options in cls.others.items()]
        (cls.folder / "text.so").write_text("no shared object")
        cls.serve(cls.build(BAD, "bad.so"), *others, str(cls.folder / "text.so"), str(cls.folder / "none.so"))

    @staticmethod
    def stored(i):
        return bytes([DAMAGED if i == 10 else i] * 16)

    def check(self, samples, wanted):
        self.assertEqual(sorted(samples), wanted)
        for i, sample in samples.items():
            self.assertEqual(sample.shape, (2, 8))
            self.assertEqual(sample.numpy().tobytes(), self.stored(i))

    def fails(self, options, why, kind=diesel_loader.DamagedData):
        """Checks that all batches except that of number 10 come, and that its error gives the reason."""
        batches, samples, n_failed = iter(self.loader(self.path, "bad", options)), {}, 0
        while True:
            try:
                data, _, numbers = next(batches)
                samples.update(zip(numbers.tolist(), data))
            except StopIteration:
                break
            except kind as error:
                n_failed += 1
                self.assertRegex(str(error), rf"bytes\.diesel: 10\.bin: {why}; batch 2 of epoch 0")
        self.assertEqual(n_failed, 1)
        self.check(samples, [i for i in range(24) if not 8 <= i < 12])

    def test_samples_that_it_refuses(self):
        self.fails("refuse", "codec bad: it begins with 0xff")

    def test_it_crashes(self):
        self.fails("crash", "the sample crashes the processes that decode it")
        self.fails("far-beyond", "the sample crashes the processes that decode it")

    def test_what_it_may_not_do(self):
        self.fails("file", "the sample crashes the processes that decode it")
        self.fails("thread", "the sample crashes the processes that decode it")

    def test_what_it_answers(self):
        self.fails("beyond", r"codec bad: the codec's decode\(\) writes outside of its output", OSError)
        self.fails("before", r"codec bad: the codec's decode\(\) writes outside of its output", OSError)
        self.fails("other", r"codec bad: the codec's decode\(\) returned 7, which is neither 0 nor a negative errno", OSError)

    def test_memory(self):
        self.check(self.samples(self.loader(self.path, "bad", "memory")), list(range(24)))

    def test_others_go_on_without_the_sample(self):
        for options in ("crash", "beyond", "refuse"):
            with self.assertLogs("diesel_loader") as log:
                loader = self.loader(self.path, "bad", options, damaged="skip")
                self.check(self.samples(loader), [i for i in range(24) if i != 10])
            self.assertEqual(loader.n_damaged, 1)
            self.assertIn("10.bin is damaged: it is left out", log.output[0])

    def test_it_cannot_be_opened(self):
        for options, why in (("open-crash", "the codec crashes the process that loads it"), ("open-nonsense", "must have at most 7 dimensions"),
                             ("open-other", r"the codec's open\(\) returned 5"), ("open-refuse", r"no such\\x0aoption$")):
            with self.assertRaisesRegex((OSError, ValueError), "codec bad: .*" + why):
                self.loader(self.path, "bad", options)

    def test_when_it_hangs(self):
        """Hangs in both ways at once, each limited to some seconds of CPU time. Others are served meanwhile."""
        asking = threading.Thread(target=lambda: self.assertRaisesRegex(
            OSError, "takes too long", self.loader, self.path, "bad", "open-hang"))
        asking.start()
        decoding = threading.Thread(target=self.fails, args=("hang", "decoding takes too long", TimeoutError))
        decoding.start()
        self.check(self.samples(self.loader(self.path, "bad")), list(range(24)))
        asking.join()
        decoding.join()

    def test_what_is_not_loaded(self):
        codecs = diesel_loader.status()["codecs"]
        self.assertEqual([codec["name"] for codec in codecs], ["bad"] + [None] * 7)
        for codec, why in zip(codecs[1:], (
                "the codec was built for version 2 of diesel_codec.h, but dieseld supports version 1", "the file has no symbol diesel_codec_v1",
                "the dynamic linker reports: undefined symbol: nobody_has_this", f"its codec name, bad, is already used by {self.folder}/bad.so",
                "a codec's name must be", "the dynamic linker reports: .*", "No such file or directory")):
            self.assertRegex(codec["problem"], f"^{codec['path']} is not loaded: {why}")


JOB = """
import sys
import diesel_loader, diesel_loader.numpy
loader = diesel_loader.numpy.DataLoader(sys.argv[1], transform=diesel_loader.codec("bad", "hang"), batch_size=4)
print("begins", flush=True)
next(iter(loader))
print("has a batch", flush=True)
"""


@unittest.skipUnless(os.geteuid() == 0, "needs root: to be another user")
class Neighbours(Case):
    def decoders_work(self):
        """Returns whether a decoder of this daemon used CPU time, beyond its start-up."""
        stats = {}
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                head, _, rest = path.read_text().rpartition(") ")
                pid, _, name = head.partition(" (")
                stats[int(pid)] = (name, int(rest.split()[1]), int(rest.split()[11]))
        ours = {pid for pid, (_, parent, _) in stats.items() if parent == self.daemon.process.pid}
        return any(name == "dieseld-codec" and parent in ours and ticks > 10 for name, parent, ticks in stats.values())

    def test_one_whose_samples_take_for_ever(self):
        """There is one worker. Another user's epoch must end before the first batch of the hostile user's ten jobs."""
        for name, first in (("slow", DAMAGED), ("quick", 0)):
            (self.folder / name).mkdir()
            for i in range(24):
                (self.folder / name / f"{i:02d}.bin").write_bytes(bytes([first] + 15 * [i]))
            pack(self.folder / name, self.folder / f"{name}.diesel", "--order", "source")
        self.serve(self.build(BAD, "bad.so"), options=("--workers", "1", "--tune", "off"))
        jobs = [subprocess.Popen([sys.executable, "-c", JOB, self.folder / "slow.diesel"], stdout=subprocess.PIPE, text=True,
                                 user=12345, group=12345, extra_groups=[]) for _ in range(10)]
        for job in jobs:
            self.addCleanup(lambda job=job: (job.kill(), job.communicate()))
            self.assertEqual(job.stdout.readline(), "begins\n")
        while not self.decoders_work():
            time.sleep(0.05)
        samples = self.samples(self.loader(self.folder / "quick.diesel", "bad"))
        self.assertEqual(sorted(samples), list(range(24)))
        self.assertEqual(select.select([job.stdout for job in jobs], [], [], 0)[0], [])


@unittest.skipUnless(os.geteuid() == 0, "needs root: files of other users")
class Hostile(Case):
    """Tests files that others can change, which also serve as examples of the messages of `--check-config`."""

    def refused(self, path, why):
        self.assertRegex(self.check_config(path), f"^dieseld: error: {path} is not loaded: {why}.*\n$")

    def check_config(self, path):
        """Returns the complaints of --check-config. Serving does not depend on a codec."""
        run = subprocess.run([support.program("dieseld"), "--check-config", "--codec", path], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stdout), (0, "the configuration is valid\n"), run.stderr)
        return run.stderr

    def test_who_may_change_it(self):
        (self.folder / "theirs").mkdir()
        path = self.build(BAD, "theirs/bad.so")
        self.assertEqual(self.check_config(path), "")
        os.chown(path, 65534, 65534)
        self.refused(path, r"the codec \S+ belongs to user 65534")
        os.chown(path, 0, 0)
        os.chmod(path, 0o664)
        self.refused(path, "others may write to the codec")
        os.chmod(path, 0o644)
        os.chmod(self.folder / "theirs", 0o777)
        self.refused(path, "others may write to the folder")
        os.chmod(self.folder / "theirs", 0o755)
        os.chown(self.folder / "theirs", 65534, 0)
        self.refused(path, r"the folder \S+ belongs to user ")
        os.chown(self.folder / "theirs", 0, 0)
        os.symlink(path, self.folder / "link.so")
        self.refused(self.folder / "link.so", f"the path contains symbolic links. Use the path without them: {path}")
        os.mkfifo(self.folder / "fifo.so")
        self.refused(self.folder / "fifo.so", "not a regular file")

    def test_one_that_others_can_change_is_never_loaded(self):
        """The codec's constructor would leave a trace."""
        source = self.folder / "trace.c"
        source.write_text(f"""#include <stdio.h>
__attribute__((constructor)) static void trace(void) {{ fclose(fopen("{self.folder}/trace", "w")); }}
""")
        path = self.build(source, "trace.so")
        os.chown(path, 65534, 65534)
        self.serve(path)
        self.assertFalse((self.folder / "trace").exists())
        self.assertRegex(diesel_loader.status()["codecs"][0]["problem"], "belongs to user ")
        (self.folder / "src").mkdir()
        (self.folder / "src" / "one").write_bytes(b"1")
        with self.assertRaisesRegex(ValueError, 'dieseld has no codec "trace", and no other codec'):
            self.loader(pack(self.folder / "src", self.folder / "one.diesel"), "trace")


if __name__ == "__main__":
    unittest.main(verbosity=2)
