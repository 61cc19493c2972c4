"""Runs an engine's own ZmqEventPublisher, as taken from its wheel, on commands from stdin.

    publish.py MODULE ENDPOINT REPLAY_ENDPOINT RANK

Commands, each answered by a line "done": "publish N" (N batches of one stored block, numbered on from the last),
"burn" (a batch that cannot be encoded: its sequence number is never sent), "clear".
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import time
import types
from unittest.mock import MagicMock


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for everything else of the engine, none of which a publisher uses."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("sglang", "vllm"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: MagicMock(name=f"{spec.name}.{name}")
        return module

    def exec_module(self, module):
        pass


def load(path):
    sys.meta_path.insert(0, Stubs())
    spec = importlib.util.spec_from_file_location("kv_events", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["kv_events"] = module
    spec.loader.exec_module(module)
    return module


def stored(events, number):
    """A block of four tokens; fields that a version does not have are left out."""
    fields = {
        "block_hashes": [number + 1],
        "parent_block_hash": None,
        "token_ids": list(range(4 * number, 4 * number + 4)),
        "block_size": 4,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    }
    known = events.BlockStored.__struct_fields__
    return events.BlockStored(**{name: value for name, value in fields.items() if name in known})


def main():
    path, endpoint, replay, rank = sys.argv[1:]
    events = load(path)
    publisher = events.ZmqEventPublisher(int(rank), endpoint=endpoint, replay_endpoint=replay, topic="kv-events")
    number = 0
    print("ready", flush=True)
    for line in sys.stdin:
        command, *values = line.split()
        if command == "publish":
            for _ in range(int(values[0])):
                publisher.publish(events.KVEventBatch(ts=time.time(), events=[stored(events, number)]))
                number += 1
        elif command == "burn":
            broken = stored(events, number)
            broken.block_hashes = [object()]
            publisher.publish(events.KVEventBatch(ts=time.time(), events=[broken]))
        elif command == "clear":
            publisher.publish(events.KVEventBatch(ts=time.time(), events=[events.AllBlocksCleared()]))
        print("done", flush=True)
    publisher.shutdown()


main()
