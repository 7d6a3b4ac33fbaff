"""Kernels in C++ for what a CPU should not do operator by operator, compiled on first use; all works without them."""
