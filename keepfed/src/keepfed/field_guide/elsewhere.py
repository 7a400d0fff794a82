"""Frequent messages that have nothing to do with loading data, each with the next step."""

_SHAPES = "the shapes of the model and of its input differ. Print both before the layer."
_RANKS = (
    "the ranks cannot connect. Check the address and port of the first node, firewalls, and "
    "whether an earlier run still uses the port."
)
_WEIGHTS = (
    "the checkpoint belongs to a different model. Compare its keys and shapes with the model."
)

ELSEWHERE = {
    "CUDA out of memory": "GPU memory is full. Reduce the batch size or the model, or use "
    "gradient accumulation or activation checkpointing.",
    "CUBLAS_STATUS_ALLOC_FAILED": "GPU memory is full. Reduce the batch size.",
    "shapes cannot be multiplied": _SHAPES,
    "Expected more than 1 value per channel": "BatchNorm needs more than one sample per batch. Set "
    "`drop_last=True`, or use a larger batch.",
    "must match the size of tensor": _SHAPES,
    "loading state_dict for": _WEIGHTS,
    "Missing key(s) in state_dict": _WEIGHTS,
    "ModuleNotFoundError: No module named": "a package is not installed in this environment. "
    "Install it with the Python that runs the program.",
    "ImportError: cannot import name": "the versions of two packages do not fit. Compare them with "
    "the requirements of the program.",
    "modified by an inplace operation": "autograd found a changed tensor. Replace operations such "
    "as `x += y` by `x = x + y`.",
    "Trying to backward through the graph a second time": "autograd graph is used twice. Call "
    "`.detach()` on what you keep from the last step.",
    "does not require grad and does not have a grad_fn": "the loss is cut off from the parameters. "
    "Look for `.detach()`, `torch.no_grad()` or `.item()` in the step.",
    "Address already in use": _RANKS,
    "errno: 98": _RANKS,
    "RendezvousConnectionError": _RANKS,
    "client socket has timed out": _RANKS,
    "RendezvousTimeoutError": _RANKS,
    "NCCL error in": "communication between the GPUs failed. Run again with NCCL_DEBUG=INFO, which "
    "prints the reason.",
    "unhandled system error": "communication between the GPUs failed. Run again with "
    "NCCL_DEBUG=INFO, which prints the reason.",
    "Detected call of 'lr_scheduler.step()' before 'optimizer.step()'": "the order of two calls in "
    "the loop is wrong. Call `optimizer.step()` first.",
    "device-side assert triggered": "a kernel received a wrong value, often a class index that is "
    "too large. Run again with CUDA_LAUNCH_BLOCKING=1, and check that labels are from 0 to n - 1.",
    "Your input ran out of data": "this is a tf.data pipeline of TensorFlow. Add `.repeat()`, or "
    "lower `steps_per_epoch`.",
    "OutOfRangeError: End of sequence": "this is a tf.data pipeline of TensorFlow. Add "
    "`.repeat()`, or lower `steps_per_epoch`.",
    "no kernel image is available for execution": "this version of torch was not built for this "
    "GPU. Install a version that supports it.",
    "CUDA driver version is insufficient": "the NVIDIA driver is too old for this version of "
    "torch. Update the driver, or install a version for an older CUDA.",
    "have unused parameters": "DistributedDataParallel found parameters without gradients. Set "
    "`find_unused_parameters=True`, or remove them.",
    "parameters that were not used in producing loss": "DistributedDataParallel found parameters "
    "without gradients. Set `find_unused_parameters=True`, or remove them.",
    "indices should be either on cpu or on the same device": "two tensors of the step are on "
    "different devices. Move both to the same one.",
}
