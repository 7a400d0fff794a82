"""CUDA devices, and the interface of all devices."""

from keepfed.device.cuda import CudaDevice
from keepfed.device.protocol import BatchDevice
