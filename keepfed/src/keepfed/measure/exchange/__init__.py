"""Read and write traces of other tools: Chrome, Perfetto and torch.profiler."""

from keepfed.measure.exchange.chrome import chrome_ranks, load_chrome, save_chrome, trace_of
from keepfed.measure.exchange.torch_profiler import load_profile
