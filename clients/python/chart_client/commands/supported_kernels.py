"""Kernels that `make kernel-test` tried; written by `make kernels-statement`."""

SUPPORTED_KERNELS = (
    "6.12",
)
