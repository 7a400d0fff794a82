"""A CUDA device, and batches as it sees them."""

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
