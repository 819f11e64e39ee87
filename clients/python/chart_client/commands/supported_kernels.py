"""Kernels that `make kernel-test` tried; written by `make kernels-statement`."""

SUPPORTED_KERNELS = (
    "6.1",
    "6.12",
    "7.3",
)
