"""CUDA devices, and functions that copy and inspect batches."""

from keepfed.device.batches import (
    dense_parts,
    has_gaps,
    leaves,
    map_leaves,
    map_tensors,
    move,
    record_stream,
    tensors,
)
from keepfed.device.cuda import CudaDevice
from keepfed.device.protocol import BatchDevice
