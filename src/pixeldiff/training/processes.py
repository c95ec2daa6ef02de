"""The processes that train one network together; torchrun starts them, and each takes its part of every batch."""

from __future__ import annotations

import ctypes
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Before any group exists: DistributedDataParallel would import it later, and its default arguments would then keep the
# group, whose threads live on while Python ends and may abort it.
import torch.distributed.nn.functional


class Processes:
    """This process among those that torchrun started, or alone; made once for all stages."""

    def __init__(self) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        cuda = torch.cuda.is_available()
        self.device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else "cpu")
        if self.world > 1 and not dist.is_initialized():
            # The others wait while the first process evaluates, so the timeout is long.
            dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(hours=2))

    def all_reduce(self, loss: float, stop: bool) -> tuple[float, bool]:
        """Return the mean loss over all processes, and whether any of them should stop."""
        if self.world == 1:
            return loss, stop
        values = torch.tensor([loss, float(stop)], device=self.device, dtype=torch.float64)
        dist.all_reduce(values)
        return values[0].item() / self.world, values[1].item() > 0

    def broadcast(self, value: Any) -> Any:
        """Return the value of the first process in all of them."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.world > 1 and kind is None:  # after an error the others may never arrive here
            dist.destroy_process_group()


def keep_memory() -> None:
    """Let glibc keep freed blocks, so that the maps of a wide network are not paged in again at every step."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return  # not glibc
    m_trim_threshold, m_mmap_max = -1, -4
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, -1)  # never, also above 2 GB
