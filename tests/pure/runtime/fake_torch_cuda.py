"""torch.cuda on the host, as far as tests/gpu asks of it: streams, events, graphs that can be replayed."""

import contextlib
import time
import types

import torch
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("cuda", 0)


class RecordedTensors(TorchFunctionMode):
    """Every tensor says it is on cuda:0. While there is a `tape`, operations are put on it, to be run again
    into the same tensors.
    """

    tape = None

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function == torch.Tensor.device.__get__:
            return DEVICE
        if kwargs.get("device") is not None:
            kwargs["device"] = "cpu"
        args = tuple("cpu" if isinstance(argument, torch.device) else argument for argument in args)
        result = function(*args, **kwargs)
        several = result if isinstance(result, tuple) else (result,)
        results = [one for one in several if torch.is_tensor(one)]
        if self.tape is not None and results:
            self.tape.append(lambda: again(function, args, kwargs, results))
        return result


def again(function, args, kwargs, results):
    fresh = function(*args, **kwargs)
    for one, old in zip(fresh if isinstance(fresh, tuple) else (fresh,), results, strict=False):
        if one.data_ptr() != old.data_ptr():
            old.copy_(one)


class Graph:
    def __init__(self):
        self.tape = []

    def replay(self):
        for step in self.tape:
            step()


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.time = time.perf_counter()

    def elapsed_time(self, end):
        return (end.time - self.time) * 1e3


class Stream:
    cuda_stream = 0x77

    def wait_stream(self, other):
        assert isinstance(other, Stream)


def install(monkeypatch, library):
    """Put the stand-ins in place; returns the mode to run under."""
    mode, current = RecordedTensors(), Stream()

    @contextlib.contextmanager
    def graph(captured):
        mode.tape = library.tape = captured.tape
        yield
        mode.tape = library.tape = None

    properties = types.SimpleNamespace(
        name="Stand-in", major=9, minor=0, multi_processor_count=1, total_memory=1, L2_cache_size=1 << 16
    )
    generator = torch.Generator
    stand_ins = {
        "current_device": lambda: 0, "synchronize": lambda: None, "Event": Event, "Stream": Stream,
        "stream": lambda stream: contextlib.nullcontext(), "current_stream": lambda index=0: current,
        "CUDAGraph": Graph, "graph": graph, "empty_cache": lambda: None, "_sleep": lambda cycles: None,
        "get_device_properties": lambda device: properties,
    }  # fmt: skip
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch, "Generator", lambda device=None: generator())
    return mode
