# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch.distributed.checkpoint (DCP): a storage writer that returns after the snapshot, and the loading of a
whole state."""
from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import os
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from ..on_demand import dieselctl
from . import folder, image, ranks
from .bucket import METADATA, SCHEME, Bucket, Downloaded, is_bucket, split
from .persist import RECORD
from .persister import Ended
from .restoring import Undo, check_names
from .snapshot import Image, Saver
from .structure import merged, rebuild, structure_of
from .tensors import Pickled

log = logging.getLogger("diesel_loader")
_STRUCTURE = "diesel_structure"   # attribute of DCP's metadata
_EXECUTORS = ("AsyncCheckpointExecutor", "ThreadPoolExecutor")   # names of torch's threads, and of those of older versions


@dataclasses.dataclass
class _Place:
    """Where a rank writes. attempt: the same on all ranks, and another one in each save."""
    rank: int
    attempt: str


class _Items:
    """The file of one rank: an archive for each tensor, as DCP's own writer makes it, and other values as they are."""

    def __init__(self, plan: SavePlan, planner: SavePlanner, name: str) -> None:
        self._items: list[tuple[Any, Pickled | bytes]] = []
        self._name = name
        self.results: list[WriteResult] = []
        for item in plan.items:
            try:
                data = planner.resolve_data(item)
            except MemoryError:
                raise
            except Exception as error:
                raise TypeError(f"{item.index.fqn} of the state cannot be saved ({error})") from None
            if item.type == WriteItemType.BYTE_IO:
                assert isinstance(data, io.BytesIO)
                self._items.append((item, data.getvalue()))
                continue
            assert isinstance(data, torch.Tensor)
            tensor: Any = data.detach()
            if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
                tensor = tensor.clone()   # a part of a larger one, which would be saved whole
            self._items.append((item, Pickled(tensor)))

    def bound(self) -> int:
        sizes = (len(data) + RECORD.size if isinstance(data, bytes) else data.bound() for _, data in self._items)
        return sum(sizes) + image.ALIGNMENT * len(self._items) + RECORD.size

    def fill(self, memory: memoryview) -> Image:
        at, records, parts = 0, [], []
        for item, data in self._items:
            begin = -(-at // image.ALIGNMENT) * image.ALIGNMENT
            if begin > at:
                memory[at:begin] = bytes(begin - at)   # of an earlier snapshot
            if isinstance(data, bytes):
                at = begin + len(data)
                memory[begin:at] = data
            else:
                filled = data.fill(memory, begin)
                at = filled.size
                records += filled.records
                parts += filled.parts
            info = _StorageInfo(self._name, begin, at - begin)
            self.results.append(WriteResult(index=item.index, size_in_bytes=at - begin, storage_data=info))
        return Image(at, records, parts)


class Writer(StorageWriter):
    """A storage_writer for torch.distributed.checkpoint.save() and async_save(): the call returns when the state is in
    shared memory, and another process writes it.

        writer = Writer()
        dcp.save(state, checkpoint_id="checkpoints/step-100", storage_writer=writer)

    The folder gets its name when all ranks' files and .metadata are on disk. Until then it is a hidden one next to it, so
    that dcp.load() never finds half a checkpoint. checkpoint_id may be s3://BUCKET/PREFIX: then Reader reads it, and takes it for
    whole when its manifest is there, which comes last. A save waits for the one before. Its failure is one line in the log, and
    wait() raises it. Use the same Writer for all saves: it keeps its memory.

    With async_save() it is the stager too, and copies just once.
    """

    _synchronize_after_execute = True

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._path = None if path is None else _place(path)
        self._saver = Saver(poll=self._poll)
        self._pid = os.getpid()
        self._order = threading.local()  # of the save that this thread runs: async_save() begins threads of its own
        self._n_ranks, self._save_id, self._number = 1, "", 0
        self._failure: str | None = None
        self._copied = threading.Event()
        self._before: set[threading.Thread] = set()
        self._torch: threading.Thread | None = None   # that runs async_save()

    # For DCP, in the order of its calls

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self._leave_parents()
        if checkpoint_id is not None:
            self._path = _place(checkpoint_id)
        self._save_id = uuid.uuid4().hex
        self._torch = threading.current_thread()   # this is the first that a save calls

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._path is None:
            raise ValueError("Writer has no place for the checkpoint: pass checkpoint_id= to save(), or a path to Writer()")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        assert self._path is not None
        if not is_bucket(self._path):
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        attempt = uuid.uuid4().hex
        self._n_ranks = len(plans)
        return [dataclasses.replace(plan, storage_data=_Place(i, attempt)) for i, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        with self._saver.lock:
            return self._write_data(plan, planner)

    def _write_data(self, plan, planner):
        self._wait_for_last()
        if self._saver.is_writing:
            raise OSError(self._failure)
        self._failure = None   # of an earlier save
        self._number += 1
        order = self._order.of_save = self._ordered(plan.storage_data, _file_of(self._path, plan.storage_data))
        items = _Items(plan, planner, order["file"])
        try:
            self._saver.send(order, self._saver.take(items.bound(), items.fill))
        except Ended as error:
            raise OSError(f"{self._path}: the process that writes checkpoints {error}") from None
        finally:
            self._copied.set()
        self._saver.tell()
        done = Future()
        done.set_result(items.results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        order = self._order.of_save
        metadata.storage_data = {result.index: result.storage_data for of_rank in results for result in of_rank}
        metadata.storage_meta = self.storage_meta()
        order = {**order, "ranks": self._n_ranks, "about": {**order["about"], "ranks": self._n_ranks}}
        try:
            with self._saver.lock:
                self._saver.send_commit(order, pickle.dumps(metadata))
        except Ended as error:
            raise OSError(f"{self._path}: the process that writes checkpoints {error}") from None

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(checkpoint_id=self._path, save_id=self._save_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return "://" not in os.fspath(checkpoint_id) or is_bucket(os.fspath(checkpoint_id))

    def _ordered(self, place, file):
        where, name = os.path.split(self._path)
        return {"folder": where, "program": dieselctl() if is_bucket(where) else None, "name": name, "number": self._number,
                "rank": place.rank, "attempt": place.attempt, "later": True, "spread_s": self._saver.spread_s(), "remove": [],
                "file": file, "about": {"number": self._number, "step": 0, "written": time.time(), "kind": "dcp"}}

    # As AsyncStager

    @property
    def should_synchronize_after_execute(self) -> bool:
        return self._synchronize_after_execute

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Copies nothing: torch's thread does, right into shared memory, and synchronize_staging() waits for it."""
        self._copied.clear()
        self._before, self._torch = set(threading.enumerate()), None
        return state_dict

    def synchronize_staging(self) -> None:
        while not self._copied.wait(0.01):
            new = set(threading.enumerate()) - self._before
            if not any(thread is self._torch if self._torch else thread.name.startswith(_EXECUTORS) for thread in new):
                return   # the save failed before it came to copying; its future says why

    # For those who want to know

    def wait(self) -> None:
        """Returns when the last checkpoint is on disk. Raises OSError if it could not be written. After async_save(), take the result of
        its future first: until then torch's thread may have more to write."""
        self._leave_parents()
        self._wait_for_last()
        failure, self._failure = self._failure, None
        if failure:
            raise OSError(failure)

    def close(self) -> None:
        """Returns when everything is written. The Writer can be used again."""
        self._leave_parents()
        self._wait_for_last()
        self._saver.close()

    def _leave_parents(self):
        """In a forked process: what the parent has under way is not ours."""
        if os.getpid() != self._pid:
            self._saver.forget()
            self._saver, self._pid, self._failure = Saver(poll=self._poll), os.getpid(), None

    def _wait_for_last(self):
        with self._saver.lock:
            self._saver.wait(self._poll)
            if self._saver.is_writing:
                self._fail(f"{self._path}: {self._saver.silence()}. {self._saver.cure}")

    def _poll(self, timeout_s):
        try:
            for reply in self._saver.replies(timeout_s):
                if reply["error"]:
                    self._fail(reply["error"])
                self._saver.tell(newest=reply["do"] == "commit" and not reply["error"])
        except (Ended, OSError) as error:
            self._fail(f"{self._path}: the process that writes checkpoints {error}")

    def _fail(self, why):
        self._failure = why
        self._saver.n_failed += 1
        self._saver.tell()
        log.warning("a checkpoint is not written: %s", why)


class _RunWriter(Writer):
    """A Checkpointer's, with its process and its names."""

    def __init__(self, saver: Saver, order: dict[str, Any], state: dict[str, Any]) -> None:
        super().__init__(os.path.join(order["folder"], order["name"]))
        self._saver, self._asked, self._state = saver, order, state
        self._structure: dict[Any, Any] = {}

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return dataclasses.replace(super().prepare_local_plan(plan), storage_data=structure_of(self._state))

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        self._structure = merged([plan.storage_data for plan in plans])
        return super().prepare_global_plan(plans)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        vars(metadata)[_STRUCTURE] = self._structure
        super().finish(metadata, results)

    def _ordered(self, place, file):
        self._asked.update(rank=place.rank, attempt=place.attempt, file=file)
        return self._asked


@contextlib.contextmanager
def _by_rank() -> Iterator[None]:
    """Turns DCP's exception, which is no Exception, into an OSError of the first rank that failed."""
    from torch.distributed.checkpoint.api import CheckpointException
    try:
        yield
    except CheckpointException as error:
        rank, (why, _) = min(error.failures.items())
        raise OSError(f"rank {rank}: {why}") from why


def save(state: dict[str, Any], saver: Saver, order: dict[str, Any]) -> None:
    """Takes a snapshot of all ranks' states. All of them call it."""
    with _by_rank():
        dcp.save(state, storage_writer=_RunWriter(saver, order, state))


class _Files(FileSystem):
    """path_of(file, path): as of place.Folder."""

    def __init__(self, path_of: Callable[[str, str], str]) -> None:
        self._path_of = path_of

    @contextlib.contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        place, file = os.path.split(path)
        with open(self._path_of(file, place), mode) as stream:
            yield stream


class Unreadable(OSError):
    """The checkpoint is damaged, or of a later version: an older one may be whole."""


class Reader(FileSystemReader):
    """A storage_reader for torch.distributed.checkpoint.load(): of a folder, or of s3://BUCKET/PREFIX, of which each rank reads the
    objects that it needs to memory, and compares them with their checksums.

        dcp.load(state, storage_reader=Reader("s3://training/step-100"))
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.reset(path)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(checkpoint_id)
        if checkpoint_id is None:
            return
        self._place = place = _place(checkpoint_id)
        self.fs = FileSystem()
        if is_bucket(place):
            where, name = split(place)
            self._bucket = Bucket(where, dieselctl())
            self._files = Downloaded(self._bucket, name)
            self.fs = _Files(self._path_of)

    def _path_of(self, file, _):
        try:
            return self._files.path(file)
        except (folder.Damaged, folder.Foreign) as wrong:
            self._close()
            raise Unreadable(f"checkpoint {self._place} cannot be read: {wrong}") from None

    def verify_metadata(self) -> None:
        """In a bucket. Raises OSError: Unreadable if it is damaged."""
        try:
            self._path_of(METADATA, None)
        finally:
            self._close()

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        try:
            return super().read_data(plan, planner)
        finally:
            self._close()

    def _close(self):
        if isinstance(self.fs, _Files):
            self._files.close()
            self._bucket.close()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return is_bucket(os.fspath(checkpoint_id)) or FileSystemReader.validate_checkpoint_id(checkpoint_id)


def load(path: str, objects: dict[str, Any], path_of: Callable[[str, str], str], undo: Undo) -> dict[str, Any]:
    """Returns the state, whatever number of ranks it was saved by. Sharded tensors of the objects keep their sharding and
    are loaded in place; others are read whole. path_of: as of place.Folder. undo: gets what puts the former back."""
    reader = FileSystemReader(path)
    reader.fs = _Files(path_of)
    metadata, wanted = ranks.together(lambda: _wanted(path, objects, reader, undo), f"restore {path}")
    with _by_rank():
        dcp.load(wanted, storage_reader=reader)
    state = unflatten_state_dict({name: wanted[name] for name in metadata.planner_data if name in wanted}, metadata.planner_data)   # in the job's order
    rebuild(state, vars(metadata)[_STRUCTURE])
    return state


def _wanted(path, objects, reader, undo):
    """Returns (DCP's metadata, the flat state to load into)."""
    for name, obj in objects.items():
        _remember(name, obj, undo)
    present, _ = flatten_state_dict(_states(objects))
    metadata = reader.read_metadata()
    check_names(path, objects, {place[0] for place in (*metadata.planner_data.values(), *vars(metadata)[_STRUCTURE]) if place})
    wanted: dict[str, Any] = {}
    for name, kind in metadata.state_dict_metadata.items():
        if isinstance(kind, BytesStorageMetadata):
            wanted[name] = None
        else:
            mine = present.get(name)
            if _is_sharded(mine) and mine.size() != kind.size:
                raise ValueError(f"{path} does not fit: {name} has the shape {tuple(kind.size)} there, and {tuple(mine.size())} in this job. "
                                 f"Nothing was restored")
            wanted[name] = mine if _is_sharded(mine) else torch.empty(kind.size, dtype=kind.properties.dtype)
    return metadata, wanted


def _place(path):
    text = os.fspath(path)
    if is_bucket(text):
        text = text.rstrip("/")
        if text.count("/") < 3:
            raise ValueError(f"{text!r} has no name for a checkpoint: pass {SCHEME}BUCKET/NAME")
        return text
    if "://" in text or text.startswith("s3:/"):
        raise ValueError(f"a checkpoint cannot be in {text!r}: pass a folder that all ranks share, or {SCHEME}BUCKET/NAME as a text")
    return os.path.abspath(text)


def _file_of(path, place):
    # Nothing keeps a rank of an earlier attempt from going on in a bucket.
    return f"__{place.rank}_0-{place.attempt}.distcp" if is_bucket(path) else f"__{place.rank}_0.distcp"


def _remember(name, obj, undo):
    """Remembers an object with sharded tensors. A model's are copied to the memory of the CPU, which has more space."""
    if isinstance(obj, torch.nn.Module):
        flat, _ = flatten_state_dict(obj.state_dict())
        tensors = [value.to_local() if _is_sharded(value) else value for value in flat.values() if isinstance(value, torch.Tensor)]
        if any(map(_is_sharded, flat.values())):
            with contextlib.suppress(RuntimeError):   # no memory for copies
                copies = [tensor.detach().to("cpu", copy=True) for tensor in tensors]
                undo.add(name, lambda: [tensor.detach().copy_(before) for tensor, before in zip(tensors, copies)])
    elif _has_shards(obj):
        undo.remember(name, obj)


def _has_shards(obj):
    return isinstance(obj, torch.optim.Optimizer) and any(_is_sharded(param) for group in obj.param_groups for param in group["params"])


def _states(objects):
    for obj in objects.values():
        if _has_shards(obj):
            # Its state must be there, sharded as the parameters are, to be loaded into.
            from torch.distributed.checkpoint.state_dict import _init_optim_state
            _init_optim_state(obj)
    return {name: obj.state_dict() for name, obj in objects.items()}


def _is_sharded(tensor):
    return hasattr(tensor, "device_mesh")
